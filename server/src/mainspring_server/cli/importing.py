"""The command that takes schedules over from elsewhere: import crontab."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .crontab import Entry, Refused, read_crontab
from .exits import CliError, ExitCode
from .options import JsonOption, ServerOption, shared
from .output import print_json, print_note, print_table

if TYPE_CHECKING:
    from mainspring.v1.task_requests_pb2 import SubmitRequest

TASK_TYPE = "command"
COLUMNS = ("Line", "Expression", "Zone", "Command", "Schedule")

imports = typer.Typer(help="Take schedules over from elsewhere.", no_args_is_help=True)


@imports.command("crontab")
def import_crontab(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A crontab; - is standard input.")],
    task_type: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="What the command worker takes.")
    ] = TASK_TYPE,
    tz: Annotated[
        str, typer.Option("--tz", metavar="ZONE", help="Zone of entries above any CRON_TZ line.")
    ] = "UTC",
    with_user: Annotated[
        bool, typer.Option("--with-user", help="The sixth field is a user, as in /etc/crontab.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be scheduled.")
    ] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a schedule of each entry of a crontab, for the worker of examples/command_worker.

    Importing the same file again within 24 hours makes nothing twice. Nothing is imported while a
    line is refused: mend it, or take it out.
    """
    found = list(read_crontab(_read(file), with_user=with_user))
    entries = [item for item in found if isinstance(item, Entry)]
    refused = [item for item in found if isinstance(item, Refused)]
    refused += _refused_by_calendar(entries, tz)
    options = shared(context, server, as_json)
    if refused:
        raise _refusal(file, sorted(refused, key=lambda item: item.line))
    requests = [_request(entry, task_type, tz) for entry in entries]
    ids = [""] * len(entries) if dry_run else _submit(requests, options.server)
    if options.json:
        print_json({"schedules": [_document(*row, tz) for row in zip(entries, ids, strict=True)]})
        return
    rows = [
        [str(entry.line), entry.expression, entry.time_zone or tz, entry.command, task_id]
        for entry, task_id in zip(entries, ids, strict=True)
    ]
    print_table(COLUMNS, rows, empty="No entry in it.")
    if dry_run:
        print_note("Nothing was scheduled: --dry-run.")


def _read(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode()
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}", ExitCode.USAGE) from None
    except UnicodeDecodeError:
        raise CliError(f"{file}: it is not UTF-8", ExitCode.INVALID) from None


def _refused_by_calendar(entries: Iterable[Entry], tz: str) -> list[Refused]:
    """Those whose times the calendar refuses, before anything is sent."""
    from ..domain.calendar import CalendarSpec, parse
    from ..domain.errors import InvalidArgument

    refused = []
    for entry in entries:
        try:
            parse(CalendarSpec(expression=entry.expression, time_zone=entry.time_zone or tz))
        except InvalidArgument as error:
            refused.append(Refused(entry.line, entry.expression, error.message))
    return refused


def _refusal(file: str, refused: list[Refused]) -> CliError:
    lines = "\n".join(f"  line {item.line}: {item.reason}: {item.text}" for item in refused)
    return CliError(
        f"{file}: nothing was imported, {len(refused)} of its lines are refused\n{lines}",
        ExitCode.INVALID,
        reason="CRON_INVALID",
        hint="Mend or remove them, and import it again.",
    )


def _request(entry: Entry, task_type: str, tz: str) -> SubmitRequest:
    from mainspring.v1.task_requests_pb2 import SubmitRequest

    payload: dict[str, Any] = {"command": entry.command}
    if entry.stdin is not None:
        payload["stdin"] = entry.stdin
    if entry.environment:
        payload["environment"] = dict(entry.environment)
    if entry.user is not None:
        payload["user"] = entry.user
    request = SubmitRequest(task_type=task_type, labels={"imported-from": "crontab"})
    request.payload.json = json.dumps(payload)
    # cron starts what it starts: no jitter, no second try, and the next run does not wait.
    request.retry.max_attempts = 1
    cron = request.schedule.cron
    cron.expression, cron.time_zone, cron.exact = entry.expression, entry.time_zone or tz, True
    cron.overlap_policy = _allow_all()
    content = request.SerializeToString(deterministic=True)
    request.idempotency_key = f"crontab-{entry.line}-{hashlib.sha256(content).hexdigest()[:32]}"
    return request


def _allow_all() -> Any:
    from mainspring.v1.schedule_pb2 import OVERLAP_POLICY_ALLOW_ALL

    return OVERLAP_POLICY_ALLOW_ALL


def _submit(requests: list[SubmitRequest], server: str) -> list[str]:
    from mainspring.v1.task_requests_pb2 import SubmitBatchRequest

    from .connection import connect

    ids = []
    with connect(server) as connection:
        for start in range(0, len(requests), 1_000):
            part = requests[start : start + 1_000]
            reply = connection.call("SubmitBatch", SubmitBatchRequest(requests=part))
            for result in reply.results:
                if result.HasField("error"):
                    raise CliError(result.error.message, ExitCode.INVALID)
                ids.append(result.submitted.task_id)
    return ids


def _document(entry: Entry, task_id: str, tz: str) -> dict[str, Any]:
    return {
        "line": entry.line,
        "expression": entry.expression,
        "time_zone": entry.time_zone or tz,
        "command": entry.command,
        "stdin": entry.stdin,
        "user": entry.user,
        "environment": dict(entry.environment),
        "task_id": task_id,
    }
