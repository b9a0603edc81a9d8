"""Submit with a cron schedule, and recurring graphs: requests as schedules to be stored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from mainspring.v1 import schedule_pb2, task_requests_pb2

from ..batching import Batcher
from ..domain.calendar import parse, tzdata_version
from ..domain.schedule import Schedule, TemplateTask
from ..domain.task import IdempotencyKey, Inserted, InsertState, NewTask, Rule
from ..ids import mint
from ..schedules import Schedules
from ..store.schedules import ScheduleKey
from .convert import check_text, invalid
from .graphs import placed as placed_at
from .graphs import read_graph
from .schedule_convert import first_time, read_calendar, read_policy
from .schedule_messages import next_due, schedule_status
from .submit import SubmitReader, key_digest

BATCH = 500
"""Schedules of one insert."""

TEMPLATE_BYTES = 4 * 1_024 * 1_024
"""Payloads of a recurring graph in all: each visit reads them."""

Request = task_requests_pb2.SubmitRequest


class ScheduleSubmissions:
    """Reads and stores schedules; calls that arrive together share a transaction."""

    def __init__(self, schedules: Schedules, reader: SubmitReader) -> None:
        self._schedules = schedules
        self._reader = reader
        self._inserts: Batcher[ScheduleKey, Inserted] = Batcher(schedules.submit, BATCH)

    def read(
        self, request: Request, namespace: str, now: int, schedule_id: bytes, trace: str | None
    ) -> ScheduleKey:
        """The schedule of a request, or the error of its first field at fault."""
        template, labels = read_template(self._reader, request, namespace, now, trace)
        schedule = self._schedule(
            request.schedule.cron, (template,), (schedule_id, namespace, now), "schedule.cron"
        )
        schedule.labels = labels
        return ScheduleKey(schedule, self._key(request, namespace, now))

    async def read_graph(
        self,
        request: task_requests_pb2.SubmitBatchRequest,
        namespace: str,
        now: int,
        trace: str | None,
    ) -> ScheduleKey:
        """The schedule of a recurring graph: its template is the batch."""
        if not request.atomic:
            raise invalid("cron", "makes a graph recurring: it needs atomic")
        tasks = await read_graph(self._reader, request.requests, namespace, now, trace)
        template = graph_template(request.requests, tasks, now)
        place = (mint(now, 1)[0], namespace, now)
        schedule = self._schedule(request.cron, template, place, "cron")
        key = next((task.idempotency for task in tasks if task.idempotency), None)
        if key is not None:
            body = request.SerializeToString(deterministic=True)
            key = key._replace(request_hash=hashlib.sha256(body).digest())
        return ScheduleKey(schedule, key)

    def _schedule(
        self,
        cron: schedule_pb2.CronSchedule,
        template: tuple[TemplateTask, ...],
        identity: tuple[bytes, str, int],
        place: str,
    ) -> Schedule:
        schedule_id, namespace, now = identity
        limits = self._reader.limits
        spec, calendar = read_calendar(cron, schedule_id, now, place, limits)
        first_time(calendar, now, place)
        return Schedule(
            schedule_id=schedule_id,
            namespace=namespace,
            spec=spec,
            policy=read_policy(cron, place, limits),
            template=template,
            created_at=now,
            settled_at=now,
            next_check_at=now,  # the materialiser makes its first instance at once
            tz_version=tzdata_version(),
        )

    def _key(self, request: Request, namespace: str, now: int) -> IdempotencyKey | None:
        if not request.idempotency_key:
            return None
        limits = self._reader.limits
        key = check_text(request.idempotency_key, "idempotency_key", limits.idempotency_key_chars)
        return IdempotencyKey(
            key_digest(namespace, request.task_type, key),
            hashlib.sha256(request.SerializeToString(deterministic=True)).digest(),
            now + limits.idempotency_ms,
        )

    async def store(self, keys: Sequence[ScheduleKey]) -> list[Inserted | Exception]:
        """Store them; each is answered with the time at which it is due first, or next."""
        if not keys:
            return []
        answers = await self._inserts.submit(list(keys))
        known = await self._known(answers, keys[0].schedule.namespace)
        found: list[Inserted | Exception] = []
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, Exception) or answer.state is InsertState.CONFLICT:
                found.append(answer)
                continue
            schedule = key.schedule
            if answer.state is InsertState.EXISTING:
                if answer.task_id not in known:  # the key is a task's
                    found.append(answer)
                    continue
                schedule = known[answer.task_id]
            found.append(_as_it_stands(answer, schedule, key.schedule.created_at))
        return found

    async def _known(
        self, answers: Sequence[Inserted | Exception], namespace: str
    ) -> dict[bytes, Schedule]:
        """The schedules that keys stood for."""
        ids = [
            answer.task_id
            for answer in answers
            if not isinstance(answer, Exception) and answer.state is InsertState.EXISTING
        ]
        rows = await self._schedules.load(ids, namespace) if ids else []
        return {row.schedule_id: row for row in rows if row is not None}

    async def drain(self) -> None:
        """Return when every batch under way is stored."""
        await self._inserts.drain()


def _as_it_stands(answer: Inserted, schedule: Schedule, now: int) -> Inserted:
    due_at = next_due(schedule, parse(schedule.spec), now)
    status = schedule_status(schedule)
    return answer._replace(status=status, due_at=schedule.settled_at if due_at is None else due_at)


def read_template(
    reader: SubmitReader, request: Request, namespace: str, now: int, trace: str | None
) -> tuple[TemplateTask, str | None]:
    """What each instance of a plain schedule is made of, and the schedule's labels."""
    if request.HasField("dependencies") and request.dependencies.ByteSize():
        raise invalid("dependencies", "must not be set together with a cron schedule")
    plain = Request()
    plain.CopyFrom(request)
    plain.ClearField("idempotency_key")
    plain.schedule.immediate.SetInParent()
    task = reader.read(plain, namespace, now, bytes(16), trace)
    return template_of(task), task.labels


def template_of(task: NewTask) -> TemplateTask:
    """The part of a task that its instances share."""
    return TemplateTask(
        task_type=task.task_type,
        queue=task.queue,
        priority=task.priority,
        payload=task.payload,
        labels=task.labels,
        retry=task.retry,
        timeouts=task.timeouts,
        trace_context=task.trace_context,
    )


def graph_template(
    requests: Sequence[Request], tasks: Sequence[NewTask], now: int
) -> tuple[TemplateTask, ...]:
    """The template of a recurring graph; predecessors are positions in it."""
    positions = {task.task_id: n for n, task in enumerate(tasks)}
    size = sum(len(task.payload.body) for task in tasks)
    if size > TEMPLATE_BYTES:
        raise invalid(
            "requests",
            f"have {size} bytes of payload, at most {TEMPLATE_BYTES} are allowed in a recurring "
            "graph; put the data elsewhere and send references",
            "PAYLOAD_TOO_LARGE",
            limit=str(TEMPLATE_BYTES),
            actual=str(size),
        )
    found = []
    for n, (request, task) in enumerate(zip(requests, tasks, strict=True)):
        kind = request.schedule.WhichOneof("when")
        if kind not in ("immediate", "delay"):
            error = invalid("schedule", "must be immediate or a delay in a recurring graph")
            raise placed_at(error, n)
        predecessors, rule, delay = task.waits or ((), Rule.ALL_SUCCEEDED, 0)
        if any(task_id not in positions for task_id in predecessors):
            error = invalid(
                "dependencies.task_ids",
                "must be empty in a recurring graph: it waits for its own tasks only",
            )
            raise placed_at(error, n)
        found.append(
            replace(
                template_of(task),
                delay_ms=task.due_at - now,
                local_ref=task.local_ref,
                predecessors=tuple(positions[task_id] for task_id in predecessors),
                rule=rule,
                delay_after_ms=delay,
            )
        )
    return tuple(found)
