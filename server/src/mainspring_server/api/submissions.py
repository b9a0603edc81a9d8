"""Submit and SubmitBatch: all that is valid goes to the engine in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from mainspring.v1 import task_pb2, task_requests_pb2

from ..admission.limits import Limits
from ..clock import Clock
from ..domain.errors import AlreadyExists, MainspringError, Unavailable
from ..domain.task import Inserted, InsertState, NewTask, Status
from ..engine import Engine
from ..ids import mint, text_of
from ..schedules import Schedules
from ..store.schedules import ScheduleKey
from .convert import invalid, required
from .errors import status_of
from .graphs import SLICE_BYTES, place_unknown, placed, read_graph
from .schedule_submit import ScheduleSubmissions
from .submit import SubmitReader, not_implemented


class Submissions:
    """Reads requests, hands them to the engine, words what came of each."""

    def __init__(
        self, engine: Engine, clock: Clock, limits: Limits, schedules: Schedules | None = None
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._limits = limits
        self._reader = SubmitReader(limits)
        self._scheduled = ScheduleSubmissions(schedules, self._reader) if schedules else None

    async def one(
        self, request: task_requests_pb2.SubmitRequest, namespace: str, trace: str | None
    ) -> task_requests_pb2.SubmitResponse:
        """Submit: the task's answer, or its error."""
        now = self._clock.now()
        task = self._read_one(request, namespace, now, mint(now, 1)[0], trace)
        answer = (await self._store([task]))[0]
        if isinstance(answer, Exception):
            raise answer
        conflict = _conflict(answer, task)
        if conflict is not None:
            raise conflict
        response = task_requests_pb2.SubmitResponse()
        _fill(response, answer)
        return response

    async def many(
        self, request: task_requests_pb2.SubmitBatchRequest, namespace: str, trace: str | None
    ) -> task_requests_pb2.SubmitBatchResponse:
        """SubmitBatch in its list form: a result or a Status for each request, in order."""
        self._check(request)
        if request.HasField("cron"):
            return await self._recurring(request, namespace, trace)
        if request.atomic:
            return await self._graph(request.requests, namespace, trace)
        read = await self._read(request.requests, namespace, trace)
        tasks = [item for item in read if not isinstance(item, Exception)]
        answered = await self._store(tasks)
        if answered and all(isinstance(answer, Unavailable) for answer in answered):
            # Nothing was taken: as an error of the call its client repeats it when that is safe.
            raise answered[0]  # type: ignore[misc]
        answers = iter(answered)
        response = task_requests_pb2.SubmitBatchResponse()
        results = response.results
        for item in read:
            result = results.add()
            refusal = item if isinstance(item, Exception) else _answer(result, next(answers), item)
            if refusal is not None:
                result.error.CopyFrom(status_of(refusal, "SubmitBatch"))
        return response

    def _read_one(
        self,
        request: task_requests_pb2.SubmitRequest,
        namespace: str,
        now: int,
        task_id: bytes,
        trace: str | None,
    ) -> NewTask | ScheduleKey:
        if self._scheduled is not None and request.schedule.HasField("cron"):
            return self._scheduled.read(request, namespace, now, task_id, trace)
        return self._reader.read(request, namespace, now, task_id, trace)

    async def _store(self, items: Sequence[NewTask | ScheduleKey]) -> list[Inserted | Exception]:
        """Schedules to their own store, beside the tasks."""
        tasks = [item for item in items if isinstance(item, NewTask)]
        if len(tasks) == len(items) or self._scheduled is None:
            return await self._store_tasks(tasks)
        keys = [item for item in items if isinstance(item, ScheduleKey)]
        found = await asyncio.gather(self._store_tasks(tasks), self._scheduled.store(keys))
        stored, scheduled = iter(found[0]), iter(found[1])
        return [next(stored if isinstance(item, NewTask) else scheduled) for item in items]

    async def _store_tasks(self, tasks: list[NewTask]) -> list[Inserted | Exception]:
        """To the engine; what waits for existing tasks goes its own way, beside the rest."""
        waiting = [task for task in tasks if task.waits]
        if not waiting:
            return await self._engine.submit(tasks)
        plain = [task for task in tasks if not task.waits]
        found = await asyncio.gather(
            self._engine.submit(plain), self._engine.submit_waiting(waiting)
        )
        others, waited = iter(found[0]), iter(found[1])
        return [next(waited if task.waits else others) for task in tasks]

    async def _graph(
        self,
        requests: Sequence[task_requests_pb2.SubmitRequest],
        namespace: str,
        trace: str | None,
    ) -> task_requests_pb2.SubmitBatchResponse:
        """SubmitBatch in its atomic form: all of it, or the error of what is wrong."""
        now = self._clock.now()
        tasks = await read_graph(self._reader, requests, namespace, now, trace)
        try:
            answers = await self._engine.submit_graph(tasks)
        except MainspringError as error:
            raise place_unknown(error, tasks)
        response = task_requests_pb2.SubmitBatchResponse()
        for answer in answers:
            _fill(response.results.add().submitted, answer)
        graph_id = tasks[0].graph_id
        if answers[0].state is InsertState.EXISTING:
            row = (await self._engine.store.load([answers[0].task_id]))[0]
            graph_id = row.graph_id if row else None
        response.graph_id = text_of(graph_id) if graph_id else ""
        return response

    async def _recurring(
        self, request: task_requests_pb2.SubmitBatchRequest, namespace: str, trace: str | None
    ) -> task_requests_pb2.SubmitBatchResponse:
        """SubmitBatch with a cron schedule: a schedule whose instances are the graph."""
        if self._scheduled is None:
            raise not_implemented("cron", "recurring graphs")
        key = await self._scheduled.read_graph(request, namespace, self._clock.now(), trace)
        answer = (await self._scheduled.store([key]))[0]
        if isinstance(answer, Exception):
            raise answer
        conflict = _conflict(answer, key)
        if conflict is not None:
            raise conflict
        response = task_requests_pb2.SubmitBatchResponse()
        _fill(response.schedule, answer)
        return response

    def _check(self, request: task_requests_pb2.SubmitBatchRequest) -> None:
        limits = self._limits
        count = len(request.requests)
        if not count:
            raise required("requests", "must have at least one request")
        if count > limits.batch_requests:
            raise invalid(
                "requests",
                f"has {count} requests, at most {limits.batch_requests} are allowed; split it",
                "BATCH_TOO_LARGE",
                limit=str(limits.batch_requests),
                actual=str(count),
            )
        size = request.ByteSize()
        if size > limits.batch_bytes:
            raise invalid(
                "requests",
                f"has {size} bytes, at most {limits.batch_bytes} are allowed; split it",
                "BATCH_TOO_LARGE",
                limit=str(limits.batch_bytes),
                actual=str(size),
            )

    async def _read(
        self,
        requests: Sequence[task_requests_pb2.SubmitRequest],
        namespace: str,
        trace: str | None,
    ) -> list[NewTask | ScheduleKey | MainspringError]:
        now = self._clock.now()
        read = self._read_one
        found: list[NewTask | ScheduleKey | MainspringError] = []
        pause_at = SLICE_BYTES
        size = 0
        for request, task_id in zip(requests, mint(now, len(requests)), strict=True):
            try:
                task = read(request, namespace, now, task_id, trace)
            except MainspringError as error:
                found.append(placed(error, len(found)))
                continue
            found.append(task)
            size += (
                request.payload.ByteSize()
                if isinstance(task, ScheduleKey)
                else len(task.payload.body)
            )
            if size > pause_at:
                pause_at = size + SLICE_BYTES
                await asyncio.sleep(0)
        return found


def _answer(
    result: task_requests_pb2.SubmitBatchResult,
    answer: Inserted | Exception,
    task: NewTask | ScheduleKey,
) -> Exception | None:
    """Fill in what was accepted, or say why it was not."""
    refusal = answer if isinstance(answer, Exception) else _conflict(answer, task)
    if refusal is None:
        _fill(result.submitted, answer)  # type: ignore[arg-type]
    return refusal


def _conflict(answer: Inserted, task: NewTask | ScheduleKey) -> AlreadyExists | None:
    if answer.state is not InsertState.CONFLICT:
        return None
    first = text_of(answer.task_id)
    task_type = (
        task.schedule.template[0].task_type if isinstance(task, ScheduleKey) else task.task_type
    )
    return AlreadyExists(
        "IDEMPOTENCY_KEY_REUSED",
        f"the idempotency key was used within 24 h for another request, task {first}: use a new "
        "key for a new task",
        field="idempotency_key",
        metadata={"task_id": first, "task_type": task_type},
    )


def _fill(response: task_requests_pb2.SubmitResponse, answer: Inserted) -> None:
    """Word what was stored; in place, because copying messages is what costs here."""
    state, task_id, status, due_at = answer
    response.task_id = text_of(task_id)
    response.status = task_pb2.TaskStatus.ValueType(status)
    if state is InsertState.EXISTING:
        response.existing = True
    if status is not Status.CREATED:
        due_time = response.due_time
        due_time.seconds, rest = divmod(due_at, 1_000)
        due_time.nanos = rest * 1_000_000


def trace_of(context: Any, limits: Limits) -> str | None:
    """The W3C traceparent of a call's metadata; what cannot be one is left out."""
    for key, value in context.invocation_metadata() or ():
        if key == "traceparent":
            usable = isinstance(value, str) and len(value) <= limits.trace_context_chars
            return value if usable and "\0" not in value else None
    return None
