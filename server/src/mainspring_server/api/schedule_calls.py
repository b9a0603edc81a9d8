"""What callers do to schedules and read of them: one method per call, each one visit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from mainspring.v1 import (
    query_requests_pb2,
    schedule_pb2,
    schedule_requests_pb2,
    task_pb2,
    task_requests_pb2,
)

from ..admission.limits import Limits
from ..domain import schedule_changes
from ..domain.errors import Aborted, FailedPrecondition, NotFound
from ..domain.instances import Mint
from ..domain.schedule import LedgerRow, Plan, Schedule, Source, View
from ..domain.task import IdempotencyKey, Status, Task
from ..engine import Engine
from ..ids import parse, text_of
from ..schedules import Operation, Schedules, unknown_schedule
from ..store.port import Field, ListQuery, Store
from ..store.schedules import KeyTaken, Visited
from .convert import check_text, invalid, page_size, required, timestamp, timestamp_ms, unknown_task
from .pages import foreign_token, page_key, page_token
from .schedule_convert import OVERLAPS, choice
from .schedule_messages import instance_message, schedule_task_message, state_message
from .submit import key_digest

ROUNDS = 8
"""How often something is tried again that others were faster with."""


def schedule_id_of(text: str) -> bytes:
    """The id that a request must name."""
    if not text:
        raise required("task_id")
    return parse(text, "task_id")


def has_ended(schedule: Schedule) -> FailedPrecondition:
    """A schedule that is over takes no more changes."""
    name = text_of(schedule.schedule_id)
    return FailedPrecondition(
        "SCHEDULE_ENDED",
        f"schedule {name} is over: {schedule.end_reason or 'cancelled'}; submit a new one",
        metadata={"task_id": name},
    )


def not_a_task(schedule_id: bytes) -> FailedPrecondition:
    """What the call does is done to tasks, and this is a schedule."""
    name = text_of(schedule_id)
    return FailedPrecondition(
        "NOT_A_TASK",
        f"{name} is a schedule; name one of its instances, which History lists",
        metadata={"task_id": name},
    )


@dataclass(frozen=True, slots=True)
class Stage:
    """What the calls work with."""

    schedules: Schedules
    engine: Engine
    store: Store
    limits: Limits

    async def load(self, schedule_id: bytes, namespace: str) -> Schedule:
        """The schedule, or the error that says what its id is instead."""
        schedule = (await self.schedules.load([schedule_id], namespace))[0]
        if schedule is None:
            raise await self.missing(schedule_id, namespace)
        return schedule

    async def change(self, schedule_id: bytes, namespace: str, operation: Operation) -> Visited:
        """Do what is asked for to a schedule that is not over."""

        def guarded(view: View, mint: Mint) -> Plan:
            if not view.schedule.live:
                raise has_ended(view.schedule)
            return operation(view, mint)

        try:
            return await self.schedules.change(schedule_id, namespace, guarded)
        except NotFound:
            raise await self.missing(schedule_id, namespace) from None

    async def missing(self, schedule_id: bytes, namespace: str) -> FailedPrecondition | NotFound:
        """Why there is no schedule by this id."""
        if (await self.store.load([schedule_id], namespace=namespace))[0] is None:
            return unknown_task(schedule_id)
        name = text_of(schedule_id)
        return FailedPrecondition(
            "NOT_A_SCHEDULE", f"{name} is a task, not a schedule", metadata={"task_id": name}
        )

    async def look(self, schedule_id: bytes, namespace: str) -> View | None:
        """The schedule with its open and live instances, all of one moment."""

        def only_look(view: View) -> Plan:
            if view.schedule.namespace != namespace:
                raise unknown_schedule(schedule_id)
            return Plan()

        try:
            visited = (await self.schedules.store.visit([schedule_id], only_look))[0]
        except NotFound:
            return None
        return None if visited is None else visited.before

    async def state(self, schedule_id: bytes, namespace: str) -> schedule_pb2.ScheduleState:
        """The schedule as it stands."""
        view = await self.look(schedule_id, namespace)
        if view is None:
            raise unknown_task(schedule_id)
        return state_message(view, await self.schedules.counts(schedule_id))


class ScheduleCalls:
    """Status, History, Cancel, Pause, Resume, Trigger."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    # --- Reads --------------------------------------------------------------------------------

    async def status(
        self, schedule_id: bytes, namespace: str, view: task_pb2.TaskView.ValueType
    ) -> task_requests_pb2.StatusResponse | None:
        """A schedule read as a task and as such; None where there is none."""
        seen = await self._stage.look(schedule_id, namespace)
        if seen is None:
            return None
        counts = await self._stage.schedules.counts(schedule_id)
        return task_requests_pb2.StatusResponse(
            task=schedule_task_message(seen.schedule, seen.now, view),
            schedule=state_message(seen, counts),
        )

    async def history(
        self, request: task_requests_pb2.HistoryRequest, schedule_id: bytes, namespace: str
    ) -> task_requests_pb2.HistoryResponse | None:
        """One page of a schedule's instances, newest first; None where there is no schedule."""
        limits = self._stage.limits
        check_text(request.page_token, "page_token", limits.filter_chars)
        size = page_size(request.page_size, limits.default_page_size, limits.page_size)
        if (await self._stage.schedules.load([schedule_id], namespace))[0] is None:
            return None
        scope = ("History", namespace, text_of(schedule_id))
        before = _ledger_key(page_key(request.page_token, scope))
        rows = await self._stage.schedules.history(schedule_id, before, size + 1)
        shown = rows[:size]
        ids = sorted({row.task_id for row in shown if row.task_id})
        loaded = await self._stage.store.load(ids) if ids else []
        tasks = {task.task_id: task for task in loaded if task is not None}
        response = task_requests_pb2.HistoryResponse()
        for row in shown:
            response.instances.append(
                instance_message(row, tasks.get(row.task_id) if row.task_id else None)
            )
        if len(rows) > size:
            last = shown[-1]
            key = (last.nominal_at, f"{int(last.source)}:{last.sequence}")
            response.next_page_token = page_token(scope, key)
        return response

    async def explain(
        self, schedule_id: bytes, namespace: str
    ) -> query_requests_pb2.ExplainResponse | None:
        """How a schedule stands, in a sentence; None where there is no schedule."""
        view = await self._stage.look(schedule_id, namespace)
        if view is None:
            return None
        task = schedule_task_message(view.schedule, view.now, task_pb2.TASK_VIEW_BASIC)
        schedule = view.schedule
        if not schedule.live:
            summary = f"The schedule is over: {schedule.end_reason or 'cancelled'}."
        elif schedule.paused_at is not None:
            note = f": {schedule.pause_note}" if schedule.pause_note else ""
            summary = f"The schedule is paused{note}. Resume lets it go on."
        elif task.HasField("due_time"):
            summary = (
                f"The schedule makes instances; the next is due {task.due_time.ToJsonString()}."
            )
        else:
            summary = "The schedule has no times left; it ends once its instances have."
        return query_requests_pb2.ExplainResponse(task=task, summary=summary)

    async def refuse(self, task_id: bytes, namespace: str) -> None:
        """Raise NOT_A_TASK where the id is a schedule's."""
        if (await self._stage.schedules.load([task_id], namespace))[0] is not None:
            raise not_a_task(task_id)

    # --- Changes ------------------------------------------------------------------------------

    async def cancel(self, task_id: bytes, reason: str, namespace: str) -> int | None:
        """End a schedule, or stop a backfill: how many instances that cancelled; None for neither."""

        def end(view: View, mint: Mint) -> Plan:
            return schedule_changes.end(view, mint, reason)

        try:
            answer: int = (await self._stage.schedules.change(task_id, namespace, end)).plan.answer
        except NotFound:
            return await self._stop_backfill(task_id, reason, namespace)
        return answer

    async def _stop_backfill(self, group: bytes, reason: str, namespace: str) -> int | None:
        where = Field("graph_id", "=", group)
        query = ListQuery(namespace, where, "create_time", True, None, 1)
        rows = await self._stage.store.list_tasks(query)
        if not rows or rows[0].schedule_id is None or not await self._backfilled(rows[0]):
            return None

        def stop(view: View, mint: Mint) -> Plan:
            return schedule_changes.stop_backfill(
                view, mint, group, reason or "its backfill was cancelled"
            )

        visited = await self._stage.schedules.change(rows[0].schedule_id, namespace, stop)
        answer: int = visited.plan.answer
        return answer

    async def _backfilled(self, task: Task) -> bool:
        """Whether a backfill made the instance; if not, its group is a graph like others."""
        assert task.schedule_id is not None
        assert task.nominal_at is not None
        below = task.nominal_at + 1, 0, 0
        schedules, store = self._stage.schedules, self._stage.store
        found = await schedules.history(task.schedule_id, below, self._stage.limits.page_size)
        made = [row for row in found if row.nominal_at == task.nominal_at and row.task_id]
        first = await store.load([row.task_id for row in made if row.task_id])
        return any(
            row.source is Source.BACKFILL and other is not None and other.graph_id == task.graph_id
            for row, other in zip(made, first, strict=True)
        )

    async def pause(
        self, request: schedule_requests_pb2.PauseRequest, namespace: str
    ) -> schedule_requests_pb2.PauseResponse:
        """Stop a schedule from making instances."""
        schedule_id = schedule_id_of(request.task_id)
        note = check_text(request.note, "note", self._stage.limits.reason_chars)
        await self._stage.change(
            schedule_id, namespace, lambda view, mint: schedule_changes.pause(view, mint, note)
        )
        state = await self._stage.state(schedule_id, namespace)
        return schedule_requests_pb2.PauseResponse(schedule=state)

    async def resume(
        self, request: schedule_requests_pb2.ResumeRequest, namespace: str
    ) -> schedule_requests_pb2.ResumeResponse:
        """Let a paused schedule go on."""
        schedule_id = schedule_id_of(request.task_id)
        note = check_text(request.note, "note", self._stage.limits.reason_chars)
        from_at = None
        if request.HasField("resume_from_time"):
            from_at = timestamp_ms(request.resume_from_time, "resume_from_time")
            limit = self._stage.limits.delay_ms
            if from_at > self._stage.engine.clock.now() + limit:
                days = limit // 86_400_000
                raise invalid("resume_from_time", f"must be at most {days} d from now")
        await self._stage.change(
            schedule_id,
            namespace,
            lambda view, mint: schedule_changes.resume(view, mint, note, from_at),
        )
        state = await self._stage.state(schedule_id, namespace)
        return schedule_requests_pb2.ResumeResponse(schedule=state)

    # --- Trigger ------------------------------------------------------------------------------

    async def trigger(
        self, request: schedule_requests_pb2.TriggerRequest, namespace: str
    ) -> schedule_requests_pb2.TriggerResponse:
        """Make an instance now, or let a PENDING task run now."""
        task_id = schedule_id_of(request.task_id)
        key = check_text(
            request.idempotency_key, "idempotency_key", self._stage.limits.idempotency_key_chars
        )
        asked = choice(request.overlap_policy, OVERLAPS, "overlap_policy")
        overlap = asked if request.overlap_policy else None
        if (await self._stage.schedules.load([task_id], namespace))[0] is None:
            return await self._run_now(task_id, namespace)

        if key:
            # Before the policy is asked: an instance that is live because of this very key.
            first = await self._stage.schedules.store.key_holder(self._key(request, namespace))
            if first is not None:
                return await self._triggered_before(first)

        def add(view: View, mint: Mint) -> Plan:
            chosen = overlap or view.schedule.policy.overlap
            plan = schedule_changes.trigger(view, mint, chosen)
            if key:
                row: LedgerRow = plan.answer
                for task in plan.insert:
                    if task.task_id == row.task_id:
                        task.idempotency = self._key(request, namespace)
            return plan

        try:
            visited = await self._stage.change(task_id, namespace, add)
        except KeyTaken as taken:
            return await self._triggered_before(taken.first)
        row: LedgerRow = visited.plan.answer
        if row.task_id is None and key:  # skipped, perhaps because of a twin a moment ago
            first = await self._stage.schedules.store.key_holder(self._key(request, namespace))
            if first is not None:
                return await self._triggered_before(first)
        if row.task_id is None:
            return schedule_requests_pb2.TriggerResponse(
                outcome=schedule_pb2.INSTANCE_OUTCOME_SKIPPED
            )
        made = next(answer for answer in visited.inserted if answer.task_id == row.task_id)
        return _triggered(row.task_id, made.status, made.due_at)

    def _key(self, request: schedule_requests_pb2.TriggerRequest, namespace: str) -> IdempotencyKey:
        """A key that no Submit's can meet: a task type is never empty."""
        return IdempotencyKey(
            key_digest(namespace, "", f"trigger\0{request.idempotency_key}"),
            hashlib.sha256(request.SerializeToString(deterministic=True)).digest(),
            self._stage.engine.clock.now() + self._stage.limits.idempotency_ms,
        )

    async def _triggered_before(self, task_id: bytes) -> schedule_requests_pb2.TriggerResponse:
        first = (await self._stage.store.load([task_id]))[0]
        if first is None:
            raise unknown_task(task_id)
        response = _triggered(first.task_id, first.status, first.due_at)
        response.existing = True
        return response

    async def _run_now(
        self, task_id: bytes, namespace: str
    ) -> schedule_requests_pb2.TriggerResponse:
        engine, store = self._stage.engine, self._stage.store
        for _ in range(ROUNDS):
            row = (await store.load([task_id], namespace=namespace))[0]
            if row is None:
                raise unknown_task(task_id)
            if row.status is not Status.PENDING:
                break
            try:
                await engine.reschedule(task_id, engine.clock.now(), namespace, row.version)
            except Aborted:
                continue
            await engine.make_ready([task_id])
            row = (await store.load([task_id], namespace=namespace))[0] or row
            response = _triggered(task_id, row.status, row.due_at)
            response.outcome = schedule_pb2.INSTANCE_OUTCOME_UNSPECIFIED
            return response
        status = row.status.name if row is not None else ""
        raise FailedPrecondition(
            "STATUS_CONFLICT",
            f"task {text_of(task_id)} is {status}; only a PENDING task can be triggered",
            metadata={"task_id": text_of(task_id), "status": status, "allowed": "PENDING"},
        )


def _triggered(
    task_id: bytes, status: Status, due_at: int
) -> schedule_requests_pb2.TriggerResponse:
    response = schedule_requests_pb2.TriggerResponse(
        task_id=text_of(task_id),
        status=task_pb2.TaskStatus.ValueType(status),
        outcome=schedule_pb2.INSTANCE_OUTCOME_FIRED,
    )
    if status is not Status.CREATED:
        response.due_time.CopyFrom(timestamp(due_at))
    return response


def _ledger_key(key: tuple[int, str] | None) -> tuple[int, int, int] | None:
    if key is None:
        return None
    source, _, sequence = key[1].partition(":")
    if not source.isdecimal() or not sequence.isdecimal():
        raise foreign_token()
    return key[0], int(source), int(sequence)
