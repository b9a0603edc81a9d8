"""The command that shows transitions as they happen: watch."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import JsonOption, ServerOption, shared
from .output import message_document, print_json_line, print_line
from .parsing import parse_duration


def watch(
    context: typer.Context,
    task_ids: Annotated[
        list[str], typer.Argument(metavar="TASK_ID…", help="One id or several, at most 1,000.")
    ],
    forever: Annotated[
        bool, typer.Option("--forever", help="Go on when all are terminal, until Ctrl-C.")
    ] = False,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout", metavar="DURATION", help="Watch no longer than this; then exit 124."
        ),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print each change of the tasks until all have ended; exit 1 unless all succeeded.

    With --json one line for each change.
    """
    from .connection import connect
    from .following import exit_by_status, follow

    options = shared(context, server, as_json)
    limit_ms = parse_duration(timeout, "--timeout") if timeout else None
    with connect(options.server) as connection:
        last = follow(
            connection,
            task_ids,
            limit_ms,
            show=None if options.json else _show,
            record=(lambda change: print_json_line(message_document(change)))
            if options.json
            else None,
            forever=forever,
        )
    exit_by_status(last.values())


def _show(line: str) -> None:
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    print_line(f"{now:%H:%M:%S}.{now.microsecond // 1_000:03d}Z  {line}")
