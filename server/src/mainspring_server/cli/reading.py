"""The commands that read tasks: get, list, history, explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import JsonOption, ServerOption, TaskArgument, shared
from .output import message_document, print_fields, print_json, print_line, print_note, print_table

if TYPE_CHECKING:
    from mainspring.v1.query_requests_pb2 import ListResponse
    from mainspring.v1.task_requests_pb2 import HistoryResponse, StatusResponse

    from .connection import Connection

PAGE = 1_000


def get(
    context: typer.Context,
    task_id: TaskArgument,
    full: Annotated[
        bool,
        typer.Option("--full", help="With payload, retry policy, time limits and predecessors."),
    ] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one task, one schedule, or how far a graph is."""
    from mainspring.v1.task_pb2 import TASK_VIEW_BASIC, TASK_VIEW_FULL
    from mainspring.v1.task_requests_pb2 import StatusRequest

    from .connection import connect

    options = shared(context, server, as_json)
    view = TASK_VIEW_FULL if full else TASK_VIEW_BASIC
    with connect(options.server) as connection:
        reply = connection.call("Status", StatusRequest(task_id=task_id, view=view))
    if options.json:
        document = message_document(reply.graph if reply.HasField("graph") else reply.task)
        if reply.HasField("schedule"):
            document["schedule"] = message_document(reply.schedule)
        print_json(document)
    else:
        _show_task(reply)


def _show_task(reply: StatusResponse) -> None:
    from .views import full_fields, graph_fields, schedule_fields, task_fields

    if reply.HasField("graph"):
        print_fields(graph_fields(reply.graph))
        print_note(f"mainspring graph {reply.graph.graph_id} draws it.")
        return
    fields = task_fields(reply.task)
    fields.update(full_fields(reply.task))
    if reply.HasField("schedule"):
        fields.update(schedule_fields(reply.schedule))
    print_fields(fields)


def list_tasks(
    context: typer.Context,
    filter_: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="EXPRESSION",
            help="""Such as 'status=FAILED AND labels.team="video"'. Default: all tasks.""",
        ),
    ] = "",
    order_by: Annotated[
        str,
        typer.Option(
            "--order-by",
            metavar="FIELD",
            help="create_time or due_time, with ' desc' for newest first. Default: create_time desc.",
        ),
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="At most so many; 0 means all.")
    ] = 50,
    full: Annotated[bool, typer.Option("--full", help="With payloads, in --json.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tasks. Fields of filters: status, task_type, queue, labels.KEY, create_time, and more."""
    from mainspring.v1.query_requests_pb2 import ListRequest
    from mainspring.v1.task_pb2 import TASK_VIEW_BASIC, TASK_VIEW_FULL

    from .connection import connect
    from .views import TASK_COLUMNS, task_row

    options = shared(context, server, as_json)
    view = TASK_VIEW_FULL if full else TASK_VIEW_BASIC
    request = ListRequest(filter=filter_, order_by=order_by, view=view)
    with connect(options.server) as connection:
        reply = _list(connection, request, limit)
    if options.json:
        print_json(message_document(reply))
        return
    print_table(TASK_COLUMNS, map(task_row, reply.tasks), empty="No task matches.")
    if reply.next_page_token:
        print_note(f"The first {len(reply.tasks)}; --limit 0 shows all.")


def _list(connection: Connection, request: Any, limit: int) -> ListResponse:
    """One reply with the tasks of as many pages as the limit needs."""
    from mainspring.v1.query_requests_pb2 import ListResponse

    found = ListResponse()
    while True:
        left = limit - len(found.tasks)
        request.page_size = min(left, PAGE) if limit else PAGE
        page = connection.call("List", request)
        found.tasks.extend(page.tasks)
        found.next_page_token = request.page_token = page.next_page_token
        if not page.next_page_token or (limit and len(found.tasks) >= limit):
            return found


def history(
    context: typer.Context,
    task_id: TaskArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every attempt of a task, or every instance of a schedule."""
    from .connection import connect
    from .views import ATTEMPT_COLUMNS, INSTANCE_COLUMNS, attempt_row, instance_row

    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = _history(connection, task_id)
    if options.json:
        print_json(message_document(reply))
    elif reply.instances:
        print_table(INSTANCE_COLUMNS, map(instance_row, reply.instances), empty="")
    else:
        print_table(ATTEMPT_COLUMNS, map(attempt_row, reply.attempts), empty="No attempt so far.")


def _history(connection: Connection, task_id: str) -> HistoryResponse:
    from mainspring.v1.task_requests_pb2 import HistoryRequest, HistoryResponse

    found = HistoryResponse()
    request = HistoryRequest(task_id=task_id, page_size=PAGE)
    while True:
        page = connection.call("History", request)
        found.attempts.extend(page.attempts)
        found.instances.extend(page.instances)
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found


def explain(
    context: typer.Context,
    task_id: TaskArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a task is where it is, since when, and what would move it."""
    from mainspring.v1.query_requests_pb2 import ExplainRequest

    from .connection import connect
    from .views import GATE_COLUMNS, gate_rows, rung_name

    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("Explain", ExplainRequest(task_id=task_id))
    if options.json:
        print_json(message_document(reply))
        return
    print_line(reply.summary, style="bold")
    if reply.lost_grants:
        print_line(f"Grants that no worker acknowledged: {reply.lost_grants}")
    if reply.gates:
        print_table(GATE_COLUMNS, gate_rows(reply), empty="")
        trigger, queue = rung_name(reply.trigger_rung), rung_name(reply.queue_rung, queue=True)
        print_line(f"Due tasks are found by the {trigger}, ready ones handed out by the {queue}.")
