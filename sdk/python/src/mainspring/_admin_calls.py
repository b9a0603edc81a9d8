"""The calls of AdminService: arguments to requests, replies to values."""

from datetime import datetime

from ._calls import Call, Pages
from ._convert import Seconds, decode, write_field
from .admin import ConnectedWorker, Forecast, Queue, ServerInfo
from .v1 import admin_service_pb2


def queues(page_size: int) -> Pages[Queue]:
    """Read the queues, by name."""
    request = admin_service_pb2.ListQueuesRequest(page_size=page_size)
    return Pages("AdminService/ListQueues", request, lambda r: (decode(Queue, q) for q in r.queues))


def pause_queue(queue: str, reason: str) -> Call[Queue]:
    """Stop a queue from giving tasks to workers."""
    request = admin_service_pb2.PauseQueueRequest(queue=queue, reason=reason)
    return Call("AdminService/PauseQueue", request, lambda r: decode(Queue, r.queue))


def resume_queue(queue: str) -> Call[Queue]:
    """Let a paused queue go on."""
    request = admin_service_pb2.ResumeQueueRequest(queue=queue)
    return Call("AdminService/ResumeQueue", request, lambda r: decode(Queue, r.queue))


def workers(queue: str, page_size: int) -> Pages[ConnectedWorker]:
    """Read the connected workers."""
    request = admin_service_pb2.ListWorkersRequest(queue=queue, page_size=page_size)
    return Pages(
        "AdminService/ListWorkers",
        request,
        lambda r: (decode(ConnectedWorker, w) for w in r.workers),
    )


def forecast(
    from_time: datetime | None, window: Seconds | None, step: Seconds | None, queue: str
) -> Call[Forecast]:
    """Tell the load to come."""
    request = admin_service_pb2.ForecastRequest(queue=queue)
    for name, value in {"from_time": from_time, "window": window, "step": step}.items():
        if value is not None:
            write_field(request, name, value)
    return Call("AdminService/Forecast", request, lambda r: decode(Forecast, r))


def server_info() -> Call[ServerInfo]:
    """Ask the server about itself."""
    request = admin_service_pb2.GetServerInfoRequest()
    return Call("AdminService/GetServerInfo", request, lambda r: decode(ServerInfo, r))
