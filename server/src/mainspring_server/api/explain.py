"""Explain: the gates between a task and its handler, in order, and the one at which it waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mainspring.v1 import query_requests_pb2, rung_pb2

from ..domain.task import Edge, Status, Task
from ..engine import Engine
from ..ids import text_of
from ..store.port import All, Any, Field, PausedQueue, Store, WorkerRow
from .convert import duration, task_message, timestamp, unknown_task

TRIGGER_RUNGS = {
    "polled": rung_pb2.TRIGGER_RUNG_STORE,
    "redis": rung_pb2.TRIGGER_RUNG_WHEEL,
}
QUEUE_RUNGS = {
    "claimed": rung_pb2.QUEUE_RUNG_STORE,
    "kafka": rung_pb2.QUEUE_RUNG_BROKER,
}
CONFIRM_MS = 5_000
"""A lost hint costs at most this long."""

NAMED = 5
"""So many predecessors are named, the others counted."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the gates of one task are judged by."""

    task: Task
    now: int
    paused: PausedQueue | None
    sooner: int
    workers: Sequence[WorkerRow]
    edges: Sequence[Edge]

    @property
    def free(self) -> int:
        """Slots of these workers that are free."""
        return sum(max(row.slots - row.in_use, 0) for row in self.workers)


@dataclass(frozen=True, slots=True)
class Finding:
    """How a task stands to one gate."""

    passed: bool
    detail: str
    since: int | None = None
    unblock: str = ""
    delay_ms: int | None = None


async def explain(
    engine: Engine, store: Store, task_id: bytes, namespace: str
) -> query_requests_pb2.ExplainResponse:
    """Why the task is where it is."""
    task = (await store.load([task_id], namespace=namespace))[0]
    if task is None:
        raise unknown_task(task_id)
    response = query_requests_pb2.ExplainResponse(
        task=task_message(task),
        lost_grants=task.lost_grants,
        trigger_rung=TRIGGER_RUNGS.get(engine.wheel.rung, rung_pb2.TRIGGER_RUNG_WHEEL),
        queue_rung=QUEUE_RUNGS.get(engine.queue.rung, rung_pb2.QUEUE_RUNG_BROKER),
    )
    if task.terminal:
        because = f": {task.status_reason}" if task.status_reason else ""
        response.summary = f"The task is {task.status.name}{because}. It never changes again."
        return response
    facts = await _facts(store, task, engine.clock.now())
    blocking = _add_gates(response, facts)
    if blocking is None:
        response.summary = (
            f"The task runs: {task.worker_id} holds its lease, attempt {task.attempts} of "
            f"{task.retry.max_attempts}."
        )
    else:
        until = f" It waits for {blocking.unblock}." if blocking.unblock else ""
        response.summary = f"The task is {task.status.name}: {blocking.detail}.{until}"
    return response


async def _facts(store: Store, task: Task, now: int) -> Facts:
    workers = [
        row
        for row in await store.workers(task.namespace)
        if task.queue in row.queues or task.queue in row.task_types
    ]
    paused = next((row for row in await store.paused() if row.lane == task.lane), None)
    sooner = 0
    if task.status is Status.READY:
        where = All(
            (
                Field("queue", "=", task.queue),
                Field("status", "=", Status.READY),
                Any(
                    (
                        Field("priority", "<", task.priority),
                        All(
                            (
                                Field("priority", "=", task.priority),
                                Field("due_time", "<", task.due_at),
                            )
                        ),
                    )
                ),
            )
        )
        sooner = sum(n for _, n in await store.count_tasks(task.namespace, where, None))
    edges = await store.edges([task.task_id]) if task.rule is not None else []
    return Facts(task, now, paused, sooner, workers, edges)


def _add_gates(response: query_requests_pb2.ExplainResponse, facts: Facts) -> Finding | None:
    """Judge the gates in order; after the first that blocks none is reached. Answers that one."""
    blocking: Finding | None = None
    for name, judge in GATES:
        if blocking is not None:
            response.gates.add(name=name, state=query_requests_pb2.GATE_STATE_NOT_REACHED)
            continue
        finding = judge(facts)
        gate = response.gates.add(
            name=name, state=query_requests_pb2.GATE_STATE_PASSED, detail=finding.detail
        )
        if finding.since is not None:
            gate.since_time.CopyFrom(timestamp(finding.since))
        if not finding.passed:
            blocking = finding
            gate.state = query_requests_pb2.GATE_STATE_BLOCKING
            gate.unblock = finding.unblock
            if finding.delay_ms is not None:
                gate.expected_delay.CopyFrom(duration(finding.delay_ms))
    return blocking


def spell(ms: int) -> str:
    """A duration for people: its two largest units, milliseconds below a minute."""
    if ms < 60_000:
        return f"{ms / 1_000:g} s"
    total = ms // 1_000
    sizes = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    first = next(n for n, (_, size) in enumerate(sizes) if total >= size)
    parts = [(total // sizes[first][1], sizes[first][0])]
    name, size = sizes[first + 1]
    parts.append((total % sizes[first][1] // size, name))
    return " ".join(f"{count} {name}" for count, name in parts if count)


# --- The gates --------------------------------------------------------------------------------


def _dependencies(facts: Facts) -> Finding:
    task = facts.task
    if task.rule is None:
        return Finding(passed=True, detail="it waits for no other task", since=task.created_at)
    count = len(facts.edges)
    if task.status is not Status.CREATED:
        return Finding(passed=True, detail=f"{task.rule.shown.name} of {count} predecessors holds")
    waiting = [text_of(edge.predecessor) for edge in facts.edges if edge.outcome is None]
    named = ", ".join(waiting[:NAMED])
    more = f" and {len(waiting) - NAMED} more" if len(waiting) > NAMED else ""
    return Finding(
        passed=False,
        detail=f"{count - len(waiting)} of {count} predecessors are done, its rule is "
        f"{task.rule.shown.name}",
        since=task.created_at,
        unblock=f"task {named}{more}" if waiting else "the resolver",
        delay_ms=None if waiting else CONFIRM_MS,
    )


def _due(facts: Facts) -> Finding:
    task = facts.task
    left = task.due_at - facts.now
    if task.status is not Status.PENDING or left <= 0:
        return Finding(passed=True, detail="its due time has come", since=task.due_at)
    what = "it is not due"
    if task.attempts:
        what = f"it waits before attempt {task.attempts + 1} of {task.retry.max_attempts}"
    return Finding(
        passed=False,
        detail=f"{what} for another {spell(left)}",
        since=task.created_at if task.version == 1 else None,
        unblock="its due time; Reschedule changes it",
        delay_ms=left,
    )


def _trigger(facts: Facts) -> Finding:
    task = facts.task
    if task.status is not Status.PENDING:
        return Finding(passed=True, detail="it was made READY", since=task.ready_at)
    return Finding(
        passed=False,
        detail=f"it is due for {spell(facts.now - task.due_at)} and no trigger saw it yet",
        since=task.due_at,
        unblock="a trigger, or the sweeper",
        delay_ms=CONFIRM_MS,
    )


def _queue(facts: Facts) -> Finding:
    if facts.task.status is Status.RUNNING or facts.paused is None:
        return Finding(passed=True, detail=f"queue {facts.task.queue} is not paused")
    because = f": {facts.paused.reason}" if facts.paused.reason else ""
    return Finding(
        passed=False,
        detail=f"queue {facts.task.queue} is paused{because}",
        since=facts.paused.paused_at,
        unblock=f"ResumeQueue of {facts.task.queue}",
    )


def _backlog(facts: Facts) -> Finding:
    if facts.task.status is Status.RUNNING or not facts.sooner:
        return Finding(passed=True, detail="nothing sooner waits in its queue")
    waiting = f"{facts.sooner} tasks that are sooner wait in its queue"
    # Without a free slot nothing moves whatever the order: the later gates say what is missing.
    if not facts.free:
        return Finding(passed=True, detail=waiting)
    return Finding(
        passed=False, detail=waiting, since=facts.task.ready_at, unblock="these, or more workers"
    )


def _worker(facts: Facts) -> Finding:
    task = facts.task
    if task.status is Status.RUNNING:
        return Finding(passed=True, detail=f"worker {task.worker_id} takes it")
    if not facts.workers:
        return Finding(
            passed=False,
            detail=f"no worker that takes queue {task.queue} is connected",
            since=task.ready_at,
            unblock=f"a worker for queue {task.queue}",
        )
    return Finding(
        passed=True,
        detail=f"{len(facts.workers)} workers take queue {task.queue}",
        since=min(row.connected_at for row in facts.workers),
    )


def _credit(facts: Facts) -> Finding:
    if facts.task.status is Status.RUNNING:
        return Finding(passed=True, detail="the worker had credit")
    slots = sum(row.slots for row in facts.workers)
    if not facts.free:
        return Finding(
            passed=False,
            detail=f"all {slots} slots of the {len(facts.workers)} workers are taken",
            since=facts.task.ready_at,
            unblock="a slot that becomes free, or more workers",
        )
    return Finding(passed=True, detail=f"{facts.free} of {slots} slots are free")


def _lease(facts: Facts) -> Finding:
    task = facts.task
    if task.status is Status.RUNNING:
        return Finding(passed=True, detail=f"{task.worker_id} holds it", since=task.started_at)
    return Finding(
        passed=False,
        detail="a worker is about to be given its lease",
        since=task.ready_at,
        unblock="the dispatcher",
        delay_ms=CONFIRM_MS,
    )


GATES: tuple[tuple[query_requests_pb2.GateName.ValueType, Callable[[Facts], Finding]], ...] = (
    (query_requests_pb2.GATE_NAME_DEPENDENCIES, _dependencies),
    (query_requests_pb2.GATE_NAME_DUE_TIME, _due),
    (query_requests_pb2.GATE_NAME_TRIGGER, _trigger),
    (query_requests_pb2.GATE_NAME_QUEUE, _queue),
    (query_requests_pb2.GATE_NAME_BACKLOG, _backlog),
    (query_requests_pb2.GATE_NAME_WORKER, _worker),
    (query_requests_pb2.GATE_NAME_CREDIT, _credit),
    (query_requests_pb2.GATE_NAME_LEASE, _lease),
)
