"""The calls of SchedulerService about tasks: from arguments to requests, from replies to values."""

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime

from ._calls import Call, Pages
from ._convert import Seconds, decode, encode, enum_number, write_field
from ._payload import payload
from .enums import CountGroupBy, TaskView
from .errors import FailedPrecondition, MainspringError, from_status
from .schedules import CronSchedule, Instance, ScheduleState, cron_schedule
from .submission import NewTask, Submitted, SubmittedGraph
from .tasks import Attempt, Count, Explanation, GraphState, Retried, Task
from .v1 import query_requests_pb2, schedule_pb2, task_requests_pb2

_SAME_NAMES = (
    "task_type",
    "idempotency_key",
    "priority",
    "queue",
    "retry",
    "timeouts",
    "labels",
    "dependencies",
    "trace_context",
    "local_ref",
)


def submit_request(task: NewTask, *, dedupe: bool) -> task_requests_pb2.SubmitRequest:
    """The request for one task; with `dedupe` it gets an idempotency key if it has none."""
    request = task_requests_pb2.SubmitRequest(payload=payload(task.payload, task.metadata))
    for name in _SAME_NAMES:
        value = getattr(task, name)
        if value is not None and value != "":
            write_field(request, name, value)
    if dedupe and not task.idempotency_key:
        request.idempotency_key = new_key()
    _write_when(request.schedule, task)
    return request


def _write_when(schedule: schedule_pb2.Schedule, task: NewTask) -> None:
    if task.due_time is not None:
        write_field(schedule, "due_time", task.due_time)
    elif task.delay is not None:
        write_field(schedule, "delay", task.delay)
    elif task.cron is not None:
        encode(cron_schedule(task.cron), schedule.cron)
    else:
        schedule.immediate.SetInParent()


def new_key() -> str:
    """An idempotency key that nobody else has."""
    return uuid.uuid4().hex


def submit(task: NewTask, *, dedupe: bool) -> Call[Submitted]:
    """Submit one task."""
    return Call(
        "SchedulerService/Submit",
        submit_request(task, dedupe=dedupe),
        lambda r: decode(Submitted, r),
    )


BatchResult = Submitted | MainspringError
"""What came of one item of a batch."""
BatchResults = list[BatchResult]
"""What came of a batch, in the order of its items."""


def submit_batch(
    requests: Iterable[task_requests_pb2.SubmitRequest], *, atomic: bool
) -> Call[list[BatchResult]]:
    """Submit a batch that fits into one call."""
    return Call(
        "SchedulerService/SubmitBatch",
        task_requests_pb2.SubmitBatchRequest(requests=requests, atomic=atomic),
        lambda r: [_batch_result(result) for result in r.results],
    )


def _batch_result(result: task_requests_pb2.SubmitBatchResult) -> BatchResult:
    if result.WhichOneof("result") == "error":
        return from_status(result.error)
    return decode(Submitted, result.submitted)


def submit_graph(
    tasks: Sequence[NewTask], cron: CronSchedule | str | None, *, dedupe: bool
) -> Call[SubmittedGraph]:
    """Submit a graph, all or nothing."""
    request = task_requests_pb2.SubmitBatchRequest(
        requests=[submit_request(task, dedupe=dedupe) for task in tasks], atomic=True
    )
    if cron is not None:
        encode(cron_schedule(cron), request.cron)
    return Call("SchedulerService/SubmitBatch", request, _graph)


def _graph(response: task_requests_pb2.SubmitBatchResponse) -> SubmittedGraph:
    schedule = decode(Submitted, response.schedule) if response.HasField("schedule") else None
    return SubmittedGraph(
        graph_id=response.graph_id,
        results=tuple(decode(Submitted, result.submitted) for result in response.results),
        schedule=schedule,
    )


def get(task_id: str, view: TaskView) -> Call[Task]:
    """Read a task."""

    def read(response: task_requests_pb2.StatusResponse) -> Task:
        if not response.HasField("task"):
            raise FailedPrecondition(
                f"{task_id} is a graph, not a task: use get_graph()", reason="NOT_A_TASK"
            )
        return decode(Task, response.task)

    request = task_requests_pb2.StatusRequest(task_id=task_id)
    write_field(request, "view", view)
    return Call("SchedulerService/Status", request, read)


def get_graph(graph_id: str) -> Call[GraphState]:
    """Read a graph."""

    def read(response: task_requests_pb2.StatusResponse) -> GraphState:
        if not response.HasField("graph"):
            raise FailedPrecondition(
                f"{graph_id} is a task, not a graph: use get()", reason="FIELD_INVALID"
            )
        return decode(GraphState, response.graph)

    request = task_requests_pb2.StatusRequest(task_id=graph_id)
    return Call("SchedulerService/Status", request, read)


def get_schedule(task_id: str) -> Call[ScheduleState]:
    """Read a schedule."""

    def read(response: task_requests_pb2.StatusResponse) -> ScheduleState:
        if not response.HasField("schedule"):
            raise FailedPrecondition(
                f"{task_id} is a task, not a schedule: use get()", reason="NOT_A_SCHEDULE"
            )
        return decode(ScheduleState, response.schedule)

    request = task_requests_pb2.StatusRequest(task_id=task_id)
    return Call("SchedulerService/Status", request, read)


def cancel(task_id: str, reason: str) -> Call[int]:
    """Cancel a task, schedule, graph or backfill."""
    request = task_requests_pb2.CancelRequest(task_id=task_id, reason=reason)
    return Call("SchedulerService/Cancel", request, lambda r: int(r.cancelled_instances))


def history(task_id: str, page_size: int) -> Pages[Attempt | Instance]:
    """Read attempts or instances, newest first."""

    def items(response: task_requests_pb2.HistoryResponse) -> Iterable[Attempt | Instance]:
        yield from (decode(Attempt, attempt) for attempt in response.attempts)
        yield from (decode(Instance, instance) for instance in response.instances)

    request = task_requests_pb2.HistoryRequest(task_id=task_id, page_size=page_size)
    return Pages("SchedulerService/History", request, items)


def list_tasks(filter_: str, order_by: str, view: TaskView, page_size: int) -> Pages[Task]:
    """Read the tasks that a filter matches."""
    request = query_requests_pb2.ListRequest(filter=filter_, order_by=order_by, page_size=page_size)
    write_field(request, "view", view)
    return Pages("SchedulerService/List", request, lambda r: (decode(Task, t) for t in r.tasks))


def count(filter_: str, group_by: Iterable[CountGroupBy | str]) -> Call[Count]:
    """Count the tasks that a filter matches."""
    groups = [group_by] if isinstance(group_by, str) else group_by
    enum = query_requests_pb2.CountRequest.DESCRIPTOR.fields_by_name["group_by"].enum_type
    assert enum is not None
    request = query_requests_pb2.CountRequest(filter=filter_)
    for group in groups:
        request.group_by.append(
            query_requests_pb2.CountGroupBy.ValueType(enum_number(enum, str(group)))
        )
    return Call("SchedulerService/Count", request, lambda r: decode(Count, r))


def explain(task_id: str) -> Call[Explanation]:
    """Say why a task is where it is."""
    request = query_requests_pb2.ExplainRequest(task_id=task_id)
    return Call("SchedulerService/Explain", request, lambda r: decode(Explanation, r))


def reschedule(
    task_id: str, due_time: datetime | None, delay: Seconds | None, version: int | None
) -> Call[Task]:
    """Give a task another due time."""
    if (due_time is None) == (delay is None):
        raise ValueError("a task is due in one way: pass one of due_time, delay")
    request = task_requests_pb2.RescheduleRequest(task_id=task_id, version=version)
    if due_time is not None:
        write_field(request, "due_time", due_time)
    else:
        write_field(request, "delay", delay)
    return Call("SchedulerService/Reschedule", request, lambda r: decode(Task, r.task))


def retry(task_id: str) -> Call[Retried]:
    """Submit a copy of a task that failed or was cancelled."""

    def read(response: task_requests_pb2.RetryResponse) -> Retried:
        copies = dict(response.new_task_ids)
        return Retried(
            task_id=copies.get(task_id, ""), new_task_ids=copies, existing=response.existing
        )

    return Call("SchedulerService/Retry", task_requests_pb2.RetryRequest(task_id=task_id), read)
