"""The command that hands in a task: submit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .exits import usage_error
from .options import JsonOption, ServerOption, shared
from .output import message_document, print_fields, print_json, print_line, print_note
from .parsing import check_json, parse_duration, parse_instant, parse_labels, read_payload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.v1.task_pb2 import RetryPolicy, Timeouts
    from mainspring.v1.task_requests_pb2 import SubmitRequest, SubmitResponse

    from .connection import Connection

_WHEN = "When"
_RETRY = "Retries and time limits"


def _duration_option(name: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        name, metavar="DURATION", help=text, rich_help_panel=_RETRY
    )
    return option


def submit(
    context: typer.Context,
    task_type: Annotated[
        str, typer.Argument(metavar="TYPE", help="What kind of work; chooses the worker.")
    ],
    payload: Annotated[
        str | None,
        typer.Argument(
            metavar="[JSON|@FILE|-]", help="What the handler gets; - reads standard input."
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Send the payload's bytes as they are, not as JSON.")
    ] = False,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay",
            metavar="DURATION",
            help="Due after this: 30s, 5m, 2d.",
            rich_help_panel=_WHEN,
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME", help="Due then: 2030-01-31T08:00:00Z.", rich_help_panel=_WHEN
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", metavar="NAME", help="Where it waits. Default: the type."),
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="0-9", help="Lower is sooner. Default 5.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="TEXT", help="Idempotency key: the same within 24 h is the same task."
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="For filters; repeat it for more."),
    ] = None,
    retry_max: Annotated[
        int | None,
        typer.Option(
            "--retry-max", metavar="N", help="Attempts in all. Default 4.", rich_help_panel=_RETRY
        ),
    ] = None,
    retry_delay: Annotated[
        str | None,
        _duration_option("--retry-delay", "At most this before the second attempt. Default 1s."),
    ] = None,
    retry_multiplier: Annotated[
        float | None,
        typer.Option(
            "--retry-multiplier",
            metavar="X",
            help="Growth of that delay. Default 2.",
            rich_help_panel=_RETRY,
        ),
    ] = None,
    retry_max_delay: Annotated[
        str | None, _duration_option("--retry-max-delay", "Its ceiling. Default 5m.")
    ] = None,
    queue_timeout: Annotated[
        str | None, _duration_option("--queue-timeout", "Longest wait from due to start.")
    ] = None,
    run_timeout: Annotated[
        str | None, _duration_option("--run-timeout", "Longest attempt.")
    ] = None,
    total_timeout: Annotated[
        str | None,
        _duration_option("--total-timeout", "Longest time from due to end, over all attempts."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end; exit 1 unless it succeeded.")
    ] = False,
    wait_timeout: Annotated[
        str | None,
        typer.Option(
            "--wait-timeout", metavar="DURATION", help="Wait no longer than this; then exit 124."
        ),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit one task; it prints the task's id.

    Examples: mainspring submit greet '{"name": "you"}'  ·  submit report @report.json --delay 10m
    """
    from mainspring.v1.task_pb2 import RetryPolicy, Timeouts
    from mainspring.v1.task_requests_pb2 import SubmitRequest

    from .connection import connect

    request = SubmitRequest(
        task_type=task_type,
        queue=queue or "",
        priority=priority,
        idempotency_key=key or "",
        labels=parse_labels(label or []),
    )
    _set_payload(request, read_payload(payload), raw)
    _set_due(request, delay, at)
    retry = RetryPolicy(max_attempts=retry_max, multiplier=retry_multiplier)
    _set_durations(
        retry,
        {
            "initial_delay": (retry_delay, "--retry-delay"),
            "max_delay": (retry_max_delay, "--retry-max-delay"),
        },
    )
    timeouts = Timeouts()
    _set_durations(
        timeouts,
        {
            "queue_timeout": (queue_timeout, "--queue-timeout"),
            "run_timeout": (run_timeout, "--run-timeout"),
            "total_timeout": (total_timeout, "--total-timeout"),
        },
    )
    if retry.ByteSize():
        request.retry.CopyFrom(retry)
    if timeouts.ByteSize():
        request.timeouts.CopyFrom(timeouts)
    limit_ms = parse_duration(wait_timeout, "--wait-timeout") if wait_timeout else None
    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("Submit", request)
        if wait or limit_ms is not None:
            _wait(connection, reply, limit_ms, options.json)
        elif options.json:
            print_json(message_document(reply))
        else:
            _show(reply)


def _set_payload(request: SubmitRequest, content: bytes | None, raw: bool) -> None:
    if content is None:
        return
    if raw:
        request.payload.data = content
    else:
        request.payload.json = check_json(content)


def _set_due(request: SubmitRequest, delay: str | None, at: str | None) -> None:
    if delay is not None and at is not None:
        raise usage_error(
            "--delay and --at: a task is due in one way", hint="Leave one of them out."
        )
    if delay is not None:
        request.schedule.delay.FromMilliseconds(parse_duration(delay, "--delay"))
    elif at is not None:
        request.schedule.due_time.FromDatetime(parse_instant(at, "--at"))
    else:
        request.schedule.immediate.SetInParent()


def _set_durations(
    target: RetryPolicy | Timeouts, texts: Mapping[str, tuple[str | None, str]]
) -> None:
    for name, (text, option) in texts.items():
        if text is not None:
            getattr(target, name).FromMilliseconds(parse_duration(text, option))


def _show(reply: SubmitResponse) -> None:
    from .views import instant, status_name

    # The id alone on standard output: `task=$(mainspring submit …)`.
    print_line(reply.task_id)
    due = f", due {instant(reply.due_time)}" if reply.HasField("due_time") else ""
    known = " (the key was used before: this is the first task)" if reply.existing else ""
    print_note(f"{status_name(reply.status)}{due}{known}")


def _wait(
    connection: Connection, reply: SubmitResponse, limit_ms: int | None, as_json: bool
) -> None:
    from .following import exit_by_status, follow, read_task
    from .views import task_fields

    if not as_json:
        print_note(f"submitted {reply.task_id}")
    follow(connection, [reply.task_id], limit_ms, show=None if as_json else print_note)
    task = read_task(connection, reply.task_id)
    if as_json:
        print_json(message_document(task))
    else:
        print_fields(task_fields(task))
    exit_by_status([task.status])
