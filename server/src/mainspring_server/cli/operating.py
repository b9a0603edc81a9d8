"""The commands for those who run Mainspring: queues, workers, info."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, ServerOption, shared
from .output import message_document, print_fields, print_json, print_line, print_note, print_table

if TYPE_CHECKING:
    from mainspring.v1.admin_service_pb2 import ListQueuesResponse, ListWorkersResponse

    from .connection import Connection

queues = typer.Typer(help="Show the queues; pause one, let it go on.", no_args_is_help=False)

QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Its name: what submit named, or the task type.")
]


@queues.callback(invoke_without_command=True)
def list_queues(
    context: typer.Context, server: ServerOption = None, as_json: JsonOption = False
) -> None:
    """Show the queues that hold tasks, have workers or are paused; pause one, let it go on."""
    from .admin_views import QUEUE_COLUMNS, queue_row
    from .connection import connect

    options = shared(context, server, as_json)
    if context.invoked_subcommand is not None:
        # `queues --json pause x` means what `queues pause x --json` means.
        context.obj = options
        return
    with connect(options.server) as connection:
        reply = _queues(connection)
    if options.json:
        print_json(message_document(reply))
    else:
        print_table(QUEUE_COLUMNS, map(queue_row, reply.queues), empty="No queue holds a task.")


def _queues(connection: Connection) -> ListQueuesResponse:
    from mainspring.v1.admin_service_pb2 import ListQueuesRequest, ListQueuesResponse

    found = ListQueuesResponse()
    request = ListQueuesRequest(page_size=1_000)
    while True:
        page = connection.call("ListQueues", request)
        found.queues.extend(page.queues)
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found


@queues.command()
def pause(
    context: typer.Context,
    queue: QueueArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why, for whoever looks at it.")] = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop giving the queue's tasks to workers; what runs goes on, new tasks are accepted."""
    from mainspring.v1.admin_service_pb2 import PauseQueueRequest

    from .connection import connect

    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("PauseQueue", PauseQueueRequest(queue=queue, reason=reason))
    if options.json:
        print_json(message_document(reply.queue))
    else:
        print_line(f"{queue} is paused; {reply.queue.ready} ready, {reply.queue.running} running")


@queues.command()
def resume(
    context: typer.Context,
    queue: QueueArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a paused queue go on."""
    from mainspring.v1.admin_service_pb2 import ResumeQueueRequest

    from .connection import connect

    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("ResumeQueue", ResumeQueueRequest(queue=queue))
    if options.json:
        print_json(message_document(reply.queue))
    else:
        print_line(f"{queue} goes on; {reply.queue.ready} ready, {reply.queue.running} running")


def workers(
    context: typer.Context,
    queue: Annotated[
        str, typer.Option("--queue", metavar="NAME", help="Only those that take this queue.")
    ] = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the connected workers."""
    from .admin_views import WORKER_COLUMNS, worker_row
    from .connection import connect

    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = _workers(connection, queue)
    if options.json:
        print_json(message_document(reply))
        return
    print_table(WORKER_COLUMNS, map(worker_row, reply.workers), empty="No worker is connected.")
    if not reply.workers:
        print_note("`mainspring worker module:Class` starts one.")


def _workers(connection: Connection, queue: str) -> ListWorkersResponse:
    from mainspring.v1.admin_service_pb2 import ListWorkersRequest, ListWorkersResponse

    found = ListWorkersResponse()
    request = ListWorkersRequest(queue=queue, page_size=1_000)
    while True:
        page = connection.call("ListWorkers", request)
        found.workers.extend(page.workers)
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found


def info(context: typer.Context, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Show what the server is: version, roles, rungs, limits."""
    from mainspring.v1.admin_service_pb2 import GetServerInfoRequest

    from .admin_views import info_fields
    from .connection import connect

    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("GetServerInfo", GetServerInfoRequest())
    if options.json:
        print_json(message_document(reply))
    else:
        print_fields(info_fields(reply))
