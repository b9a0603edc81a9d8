"""SchedulerService: one short method per RPC; the work is in the modules beside this one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from mainspring.v1 import (
    query_requests_pb2,
    schedule_requests_pb2,
    scheduler_service_pb2_grpc,
    task_pb2,
    task_requests_pb2,
)

from ..admission.limits import Limits
from ..clock import Clock
from ..engine import Engine
from ..ids import parse
from ..schedules import Schedules
from ..store.port import Store
from .convert import (
    check_text,
    check_view,
    duration_ms,
    invalid,
    required,
    task_message,
    unknown_task,
)
from .copies import retry
from .explain import explain
from .graphs import cancel_graph, graph_status
from .interceptors import namespace_of
from .queries import count_tasks, history, list_tasks
from .schedule_backfill import BackfillCalls
from .schedule_calls import ScheduleCalls, Stage
from .schedule_preview import PreviewCalls
from .schedule_update import UpdateCalls
from .submissions import Submissions, trace_of
from .submit import OUT_OF_RANGE, due_time
from .watch import Watcher


def task_id_of(text: str, field: str = "task_id") -> bytes:
    """The id that a request must name."""
    if not text:
        raise required(field)
    return parse(text, field)


class SchedulerService(scheduler_service_pb2_grpc.SchedulerServiceServicer):
    """For those who submit tasks and ask after them."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        schedules: Schedules,
        watcher: Watcher,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._engine = engine
        self._store = store
        self._watcher = watcher
        self._clock = clock
        self._limits = limits
        self._submissions = Submissions(engine, clock, limits, schedules)
        stage = Stage(schedules, engine, store, limits)
        self._schedules = ScheduleCalls(stage)
        self._backfills = BackfillCalls(stage)
        self._updates = UpdateCalls(stage)
        self._previews = PreviewCalls(stage)

    def register(self, server: Any) -> None:
        """Add this service to a gRPC server."""
        scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(self, server)

    # --- Tasks --------------------------------------------------------------------------------

    async def Submit(
        self, request: task_requests_pb2.SubmitRequest, context: Any
    ) -> task_requests_pb2.SubmitResponse:
        """Accept one task, or one schedule."""
        trace = trace_of(context, self._limits)
        return await self._submissions.one(request, namespace_of(context), trace)

    async def SubmitBatch(
        self, request: task_requests_pb2.SubmitBatchRequest, context: Any
    ) -> task_requests_pb2.SubmitBatchResponse:
        """Accept many tasks, each with its own result."""
        trace = trace_of(context, self._limits)
        return await self._submissions.many(request, namespace_of(context), trace)

    async def Status(
        self, request: task_requests_pb2.StatusRequest, context: Any
    ) -> task_requests_pb2.StatusResponse:
        """Read one task, schedule or graph."""
        task_id = task_id_of(request.task_id)
        view = check_view(request.view)
        namespace = namespace_of(context)
        rows = await self._store.load(
            [task_id], payload=view == task_pb2.TASK_VIEW_FULL, namespace=namespace
        )
        if rows[0] is None:
            found = await self._schedules.status(task_id, namespace, view)
            found = found or await graph_status(self._store, task_id, namespace)
            if found is None:
                raise unknown_task(task_id)
            return found
        full = view == task_pb2.TASK_VIEW_FULL and rows[0].rule is not None
        edges = await self._store.edges([task_id]) if full else []
        message = task_message(rows[0], view, [edge.predecessor for edge in edges])
        return task_requests_pb2.StatusResponse(task=message)

    async def Cancel(
        self, request: task_requests_pb2.CancelRequest, context: Any
    ) -> task_requests_pb2.CancelResponse:
        """Cancel a task, a schedule, what is left of a backfill, or what lives of a graph."""
        task_id = task_id_of(request.task_id)
        reason = check_text(request.reason, "reason", self._limits.reason_chars)
        namespace = namespace_of(context)
        cancelled = await self._engine.cancel([task_id], reason, namespace)
        if not cancelled and (await self._store.load([task_id], namespace=namespace))[0] is None:
            count = await self._schedules.cancel(task_id, reason, namespace)
            if count is None:
                count = await cancel_graph(self._engine, self._store, task_id, reason, namespace)
            if count is None:
                raise unknown_task(task_id)
            return task_requests_pb2.CancelResponse(cancelled_instances=count)
        return task_requests_pb2.CancelResponse(cancelled_instances=len(cancelled))

    async def Reschedule(
        self, request: task_requests_pb2.RescheduleRequest, context: Any
    ) -> task_requests_pb2.RescheduleResponse:
        """Give a waiting task another due time."""
        task_id = task_id_of(request.task_id)
        now = self._clock.now()
        kind = request.WhichOneof("when")
        if kind == "due_time":
            due_at = max(due_time(request, "due_time", now, self._limits), now)
        elif kind == "delay":
            longest = self._limits.delay_ms
            due_at = now + duration_ms(request.delay, "delay", maximum=longest, reason=OUT_OF_RANGE)
        else:
            raise required("when", "is required: set due_time or delay")
        version = request.version if request.HasField("version") else None
        await self._schedules.refuse(task_id, namespace_of(context))
        row = await self._engine.reschedule(task_id, due_at, namespace_of(context), version)
        return task_requests_pb2.RescheduleResponse(task=task_message(row))

    async def Retry(
        self, request: task_requests_pb2.RetryRequest, context: Any
    ) -> task_requests_pb2.RetryResponse:
        """Submit a copy of a task that ended without success."""
        task_id = task_id_of(request.task_id)
        namespace = namespace_of(context)
        await self._schedules.refuse(task_id, namespace)
        return await retry(self._engine, self._store, task_id, namespace, self._limits)

    # --- Questions ----------------------------------------------------------------------------

    async def History(
        self, request: task_requests_pb2.HistoryRequest, context: Any
    ) -> task_requests_pb2.HistoryResponse:
        """Read a task's attempts, or a schedule's instances, newest first."""
        task_id = task_id_of(request.task_id)
        namespace = namespace_of(context)
        found = await self._schedules.history(request, task_id, namespace)
        return found or await history(self._store, request, task_id, namespace, self._limits)

    async def List(
        self, request: query_requests_pb2.ListRequest, context: Any
    ) -> query_requests_pb2.ListResponse:
        """Read the tasks that a filter matches."""
        return await list_tasks(self._store, request, namespace_of(context), self._limits)

    async def Count(
        self, request: query_requests_pb2.CountRequest, context: Any
    ) -> query_requests_pb2.CountResponse:
        """Count the tasks that a filter matches."""
        return await count_tasks(self._store, request, namespace_of(context), self._limits)

    async def Explain(
        self, request: query_requests_pb2.ExplainRequest, context: Any
    ) -> query_requests_pb2.ExplainResponse:
        """Say why a task is not running."""
        task_id = task_id_of(request.task_id)
        namespace = namespace_of(context)
        found = await self._schedules.explain(task_id, namespace)
        return found or await explain(self._engine, self._store, task_id, namespace)

    async def Watch(
        self, request: query_requests_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[query_requests_pb2.WatchResponse]:
        """Stream the transitions of some tasks."""
        count = len(request.task_ids)
        if not count:
            raise required("task_ids", "must name at least one task")
        if count > self._limits.watched_tasks:
            raise invalid(
                "task_ids",
                f"has {count} ids, at most {self._limits.watched_tasks} are allowed",
                limit=str(self._limits.watched_tasks),
                actual=str(count),
            )
        ids = [task_id_of(text, f"task_ids[{n}]") for n, text in enumerate(request.task_ids)]
        news = self._watcher.watch(
            ids, namespace_of(context), until_terminal=request.until_terminal
        )
        async for transitions in news:
            yield query_requests_pb2.WatchResponse(transitions=transitions)

    # --- Schedules ----------------------------------------------------------------------------

    async def Pause(
        self, request: schedule_requests_pb2.PauseRequest, context: Any
    ) -> schedule_requests_pb2.PauseResponse:
        """Stop a schedule from making instances."""
        return await self._schedules.pause(request, namespace_of(context))

    async def Resume(
        self, request: schedule_requests_pb2.ResumeRequest, context: Any
    ) -> schedule_requests_pb2.ResumeResponse:
        """Let a paused schedule go on."""
        return await self._schedules.resume(request, namespace_of(context))

    async def Trigger(
        self, request: schedule_requests_pb2.TriggerRequest, context: Any
    ) -> schedule_requests_pb2.TriggerResponse:
        """Make an instance now, or let a PENDING task run now."""
        return await self._schedules.trigger(request, namespace_of(context))

    async def Backfill(
        self, request: schedule_requests_pb2.BackfillRequest, context: Any
    ) -> schedule_requests_pb2.BackfillResponse:
        """Make the instances of a range of nominal times."""
        return await self._backfills.backfill(request, namespace_of(context))

    async def Update(
        self, request: schedule_requests_pb2.UpdateRequest, context: Any
    ) -> schedule_requests_pb2.UpdateResponse:
        """Change a schedule, or say what a change would do."""
        return await self._updates.update(request, namespace_of(context))

    async def Preview(
        self, request: schedule_requests_pb2.PreviewRequest, context: Any
    ) -> schedule_requests_pb2.PreviewResponse:
        """Compute the next times of an expression or a schedule."""
        return await self._previews.preview(request, namespace_of(context))
