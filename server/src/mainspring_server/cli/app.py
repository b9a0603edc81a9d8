"""The command line as a whole: which commands there are, and how an error ends one.

Modules of commands import gRPC, the SDK and the server inside their functions: so `--help`, shell
completion and `version` answer at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from . import (
    changing,
    graphing,
    importing,
    migrating,
    operating,
    previewing,
    reading,
    scheduling,
    serving,
    steering,
    submitting,
    watching,
    working,
)
from .exits import CliError, ExitCode
from .options import JsonOption, RootServerOption, Shared, shared
from .output import print_json, print_line, print_note

app = typer.Typer(
    name="mainspring",
    help="Mainspring, a distributed job scheduler: server, worker and client in one command.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 the task failed, 2 usage, 3 not found, 4 invalid, 5 unavailable, "
    "6 conflict, 7 a limit, 124 waited too long.",
)

_SERVERS = "Servers and workers"
_TASKS = "Tasks"
_SCHEDULES = "Schedules"
_OPERATION = "Operation"

app.command(rich_help_panel=_SERVERS)(serving.dev)
app.command(rich_help_panel=_SERVERS)(serving.serve)
app.command(rich_help_panel=_SERVERS)(migrating.migrate)
app.command(rich_help_panel=_SERVERS)(working.worker)
app.command(rich_help_panel=_TASKS)(submitting.submit)
app.command(rich_help_panel=_TASKS)(reading.get)
app.command("list", rich_help_panel=_TASKS)(reading.list_tasks)
app.command(rich_help_panel=_TASKS)(watching.watch)
app.command(rich_help_panel=_TASKS)(reading.history)
app.command(rich_help_panel=_TASKS)(reading.explain)
app.command(rich_help_panel=_TASKS)(graphing.graph)
app.command(rich_help_panel=_TASKS)(changing.cancel)
app.command(rich_help_panel=_TASKS)(changing.retry)
app.command(rich_help_panel=_TASKS)(changing.reschedule)
app.command(rich_help_panel=_SCHEDULES)(scheduling.schedule)
app.command(rich_help_panel=_SCHEDULES)(previewing.preview)
app.command(rich_help_panel=_SCHEDULES)(steering.pause)
app.command(rich_help_panel=_SCHEDULES)(steering.resume)
app.command(rich_help_panel=_SCHEDULES)(steering.trigger)
app.command(rich_help_panel=_SCHEDULES)(steering.backfill)
app.command(rich_help_panel=_SCHEDULES)(steering.update)
app.add_typer(importing.imports, name="import", rich_help_panel=_SCHEDULES)
app.add_typer(operating.queues, name="queues", rich_help_panel=_OPERATION)
app.command(rich_help_panel=_OPERATION)(operating.workers)
app.command(rich_help_panel=_OPERATION)(operating.info)


@app.command(rich_help_panel=_OPERATION)
def version(context: typer.Context, as_json: JsonOption = False) -> None:
    """Print the version of this command; `info` has the server's."""
    _print_version(shared(context, None, as_json).json)


def _print_version(as_json: bool) -> None:
    from .. import __version__

    if as_json:
        print_json({"version": __version__})
    else:
        print_line(f"mainspring {__version__}")


def _version_first(asked: bool) -> None:
    if asked:
        _print_version(as_json=False)
        raise typer.Exit


@app.callback()
def before(
    context: typer.Context,
    server: RootServerOption = None,
    as_json: JsonOption = False,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version_first, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Mainspring, a distributed job scheduler: server, worker and client in one command."""
    context.obj = Shared(server or "", as_json)


def main() -> None:
    """Run the command line; no error of a user or a server shows a traceback."""
    try:
        app()
    except CliError as error:
        _report(error)
        sys.exit(error.code)
    except BrokenPipeError:
        # `mainspring list | head`: the reader has enough. Nothing is left to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        # The last line of defence: a defect of ours, told without a traceback.
        if os.environ.get("MAINSPRING_TRACEBACK"):
            raise
        _report(
            CliError(
                f"unexpected {type(error).__name__}: {error}",
                ExitCode.INTERNAL,
                hint="Set MAINSPRING_TRACEBACK=1 and run it again, and report what it prints.",
            )
        )
        sys.exit(ExitCode.INTERNAL)


def _report(error: CliError) -> None:
    if "--json" in sys.argv[1:]:
        print_json(error.document(), stderr=True)
        return
    print_note(f"error: {error.message}", style="bold red")
    if error.hint:
        print_note(error.hint)
