"""The command that runs workers: worker."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .exits import CliError, ExitCode, usage_error
from .options import ServerOption, shared
from .output import print_note

if TYPE_CHECKING:
    from mainspring_worker import Worker


def worker(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:CLASS…", help="Worker classes; modules of this folder come first."
        ),
    ],
    slots: Annotated[
        int | None,
        typer.Option("--slots", metavar="N", min=1, help="Tasks at a time, of all classes."),
    ] = None,
    stop_with: Annotated[
        int | None,
        typer.Option(
            "--stop-with",
            metavar="PID",
            help="Stop when process PID, which started this one, ends.",
        ),
    ] = None,
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = "info",
    server: ServerOption = None,
) -> None:
    """Run worker classes until SIGTERM or Ctrl-C; then finish or hand back what they hold.

    Example: mainspring worker thumbnails:ThumbnailWorker mail:MailWorker --slots 20
    """
    from .starting import begin

    begin(stop_with, log_level)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    workers = [load_worker(name) for name in names]

    from mainspring_worker import Runner

    address = shared(context, server, as_json=False).server
    try:
        runner = Runner(workers, server=address, slots=slots)
    except (TypeError, ValueError) as error:
        raise usage_error(str(error)) from None
    names_shown = ", ".join(type(item).__name__ for item in workers)
    print_note(f"{names_shown}: taking tasks from {address}")
    runner.run()


def load_worker(name: str) -> Worker:
    """An object of the class that MODULE:CLASS names; CliError says what is wrong with it."""
    from mainspring_worker import Worker as Base

    module_name, colon, class_name = name.partition(":")
    if not colon or not module_name or not class_name:
        raise usage_error(
            f"{name!r} is no MODULE:CLASS", hint="Such as thumbnails:ThumbnailWorker."
        )
    found: object = _load_module(module_name)
    for part in class_name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise usage_error(f"module {module_name} has no {class_name}")
    if not inspect.isclass(found) or not issubclass(found, Base):
        raise usage_error(
            f"{name} is no worker class", hint="Let it inherit from mainspring_worker.Worker."
        )
    try:
        return found()
    except Exception as error:
        raise CliError(
            f"{name} cannot be made: {type(error).__name__}: {error}",
            ExitCode.USAGE,
            hint="The command makes a worker without arguments.",
        ) from error


def _load_module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise usage_error(
                f"there is no module {name}",
                hint=f"Run the command in the folder of the module; this one is {Path.cwd()}.",
            ) from None
        raise CliError(
            f"module {name} needs {missing}, which is not installed", ExitCode.USAGE
        ) from None
    except Exception as error:  # noqa: BLE001  # whatever the user's module raises
        import traceback

        # The user's own code failed: here the traceback is what they need.
        print_note(traceback.format_exc())
        raise CliError(f"module {name} cannot be imported: {error}", ExitCode.USAGE) from None
