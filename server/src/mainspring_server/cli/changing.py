"""The commands that change tasks: cancel, retry, reschedule."""

from __future__ import annotations

from typing import Annotated

import typer

from .exits import usage_error
from .options import JsonOption, ServerOption, TaskArgument, shared
from .output import message_document, print_json, print_line, print_note
from .parsing import parse_duration, parse_instant


def cancel(
    context: typer.Context,
    task_id: TaskArgument,
    reason: Annotated[
        str, typer.Option("--reason", help="Why, for whoever looks at the task.")
    ] = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a task, a schedule or a graph. One that has ended stays as it is, which is no error."""
    from mainspring.v1.task_requests_pb2 import CancelRequest

    from .connection import connect

    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("Cancel", CancelRequest(task_id=task_id, reason=reason))
    if options.json:
        print_json(message_document(reply))
    elif reply.cancelled_instances:
        number = reply.cancelled_instances
        print_line("cancelled" if number == 1 else f"cancelled {number} tasks", style="yellow")
    else:
        print_line("nothing to cancel: it has ended")


def retry(
    context: typer.Context,
    task_id: TaskArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a failed or cancelled task again, as a copy; it prints the new id."""
    from mainspring.v1.task_requests_pb2 import RetryRequest

    from .connection import connect

    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("Retry", RetryRequest(task_id=task_id))
    if options.json:
        print_json(message_document(reply))
        return
    if reply.existing:
        print_note("It was retried before; these are the ids of that time.")
    copies = dict(reply.new_task_ids)
    if task_id in copies:
        print_line(copies.pop(task_id))
    for old, new in copies.items():
        print_line(f"{new}  (copy of {old}, which depended on it)")


def reschedule(
    context: typer.Context,
    task_id: TaskArgument,
    delay: Annotated[
        str | None,
        typer.Option("--delay", metavar="DURATION", help="Due so long from now: 0s, 5m, 2d."),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Due then: 2030-01-31T08:00:00Z.")
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a task that has not started another due time."""
    from mainspring.v1.task_requests_pb2 import RescheduleRequest

    from .connection import connect
    from .views import instant, status_name

    if (delay is None) == (at is None):
        raise usage_error(
            "a new due time is needed, in one way", hint="Write --delay DURATION or --at TIME."
        )
    request = RescheduleRequest(task_id=task_id)
    if delay is not None:
        request.delay.FromMilliseconds(parse_duration(delay, "--delay"))
    elif at is not None:
        request.due_time.FromDatetime(parse_instant(at, "--at"))
    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        task = connection.call("Reschedule", request).task
    if options.json:
        print_json(message_document(task))
    else:
        print_line(f"{status_name(task.status)}, due {instant(task.due_time)}")
