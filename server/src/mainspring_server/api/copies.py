"""Retry: a copy of a task that ended without success, and of the dependents that it took down.

A task is copied once; the same call again answers the same copies. Whoever waited for it and was
cancelled by its rule is copied along with new edges: to the copies, to the last copy of what was
retried before, and to what still stands. A dependent that another failed predecessor holds down is
left for that one's Retry. Two that run at the same time would each leave it to the other: so each
looks again once its copies are stored, when the second of them sees both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from mainspring.v1 import task_requests_pb2

from ..admission.limits import Limits
from ..domain.checks import first_check
from ..domain.errors import AlreadyExists, FailedPrecondition, InvalidArgument, Unavailable
from ..domain.task import (
    NO_PAYLOAD,
    IdempotencyKey,
    InsertState,
    NewTask,
    Status,
    Task,
    Waits,
)
from ..engine import Engine
from ..ids import mint, text_of
from ..store.port import Field, ListQuery, Store, TaskStore
from .convert import unknown_task
from .dependencies import wait_for
from .submit import key_digest
from .taken_down import Plan, find_copies, plan_copies

RETRIABLE = (Status.FAILED, Status.CANCELLED)
ROUNDS = 4
PART = 100

Pairs = list[tuple[bytes | None, bytes]]
"""Ids of originals and of their copies."""


async def retry(
    engine: Engine, store: Store, task_id: bytes, namespace: str, limits: Limits
) -> task_requests_pb2.RetryResponse:
    """The copies for a FAILED or CANCELLED task: made now, or those made before."""
    row = (await store.load([task_id], namespace=namespace))[0]
    if row is None:
        raise unknown_task(task_id)
    if row.status not in RETRIABLE:
        raise FailedPrecondition(
            "STATUS_CONFLICT",
            f"task {text_of(task_id)} is {row.status.name}; only a FAILED or CANCELLED task can be "
            "retried",
            metadata={
                "task_id": text_of(task_id),
                "status": row.status.name,
                "allowed": "FAILED CANCELLED",
            },
        )
    made = False
    for _ in range(ROUNDS):
        earlier = (await find_copies(store, namespace, [task_id])).get(task_id)
        try:
            if earlier is None:
                plan = await plan_copies(store, row, limits)
                graph_id, found = await _submit(engine, plan, limits)
                made = True
            else:
                graph_id, found = earlier.graph_id, await _same_graph(store, earlier)
            plan = await plan_copies(store, row, limits, copied=True)
            if plan.rows:
                found += (await _submit(engine, plan, limits, graph_id))[1]
        except AlreadyExists:
            continue  # another Retry copied one of these meanwhile: look again
        return _response(found, existing=not made)
    raise Unavailable("STORE_UNAVAILABLE", "other calls retry parts of the same graph; try again")


async def _submit(
    engine: Engine, plan: Plan, limits: Limits, graph_id: bytes | None = None
) -> tuple[bytes | None, Pairs]:
    """Store the copies of a plan, in the graph of earlier ones if there is one; what is whose copy.

    Raises AlreadyExists if one of them has a copy that the plan did not know.
    """
    tasks = await _copies(engine.store, plan, engine.clock.now(), limits, graph_id)
    answers = await engine.submit_graph(tasks)
    if answers[0].state is not InsertState.INSERTED:
        raise AlreadyExists("IDEMPOTENCY_KEY_REUSED", "all of them were copied meanwhile")
    pairs = [(task.retry_of, task.task_id) for task in tasks]
    return tasks[0].graph_id, pairs


def _response(
    pairs: Iterable[tuple[bytes | None, bytes]], *, existing: bool
) -> task_requests_pb2.RetryResponse:
    found = {text_of(origin): text_of(copy) for origin, copy in pairs if origin}
    return task_requests_pb2.RetryResponse(new_task_ids=found, existing=existing)


async def _same_graph(store: Store, copy: Task) -> Pairs:
    """A copy and those that were made with it: they are a graph of their own."""
    if copy.graph_id is None:
        return [(copy.retry_of, copy.task_id)]
    found: Pairs = []
    after: tuple[int, bytes] | None = None
    where = Field("graph_id", "=", copy.graph_id)
    while True:
        rows = await store.list_tasks(
            ListQuery(copy.namespace, where, "create_time", False, after, PART)
        )
        found += [(row.retry_of, row.task_id) for row in rows]
        if len(rows) < PART:
            return found
        after = rows[-1].created_at, rows[-1].task_id


async def _copies(
    store: TaskStore, plan: Plan, now: int, limits: Limits, graph_id: bytes | None
) -> list[NewTask]:
    """The new tasks, the retried one first, with the payloads of the old."""
    ids = sorted(mint(now, len(plan.rows)))
    new = {row.task_id: copy for row, copy in zip(plan.rows, ids, strict=True)}
    if graph_id is None and (plan.rows[0].graph_id or plan.rows[0].has_dependents):
        graph_id = mint(now, 1)[0]
    found: list[NewTask] = []
    size = 0
    for start in range(0, len(plan.rows), PART):
        part = plan.rows[start : start + PART]
        for row in await store.load([row.task_id for row in part], payload=True):
            if row is None:
                raise Unavailable("STORE_UNAVAILABLE", "a dependent was just deleted; try again")
            copy = _copy(row, new[row.task_id], now, limits)
            copy.graph_id, copy.local_ref = graph_id, row.local_ref if graph_id else None
            size += len(copy.payload.body)
            waits = _waits(plan, row, new)
            if waits is not None:
                wait_for(copy, waits)
            found.append(copy)
        if size > 4 * limits.batch_bytes:
            raise InvalidArgument(
                "BATCH_TOO_LARGE",
                f"the payloads of its dependents have more than {4 * limits.batch_bytes} bytes; "
                "submit them again instead",
                metadata={"limit": str(4 * limits.batch_bytes)},
            )
    return found


def _waits(plan: Plan, row: Task, new: dict[bytes, bytes]) -> Waits | None:
    """What a copy waits for; nothing where none of its predecessors is left."""
    if row.rule is None:
        return None
    left = tuple(plan.waits_for(row, new))
    again = row.task_id == plan.root
    return Waits(left, row.rule, 0 if again else row.delay_after_ms) if left else None


def _copy(row: Task, task_id: bytes, now: int, limits: Limits) -> NewTask:
    deadline = None if row.timeouts.total_ms is None else now + row.timeouts.total_ms
    return NewTask(
        task_id=task_id,
        namespace=row.namespace,
        task_type=row.task_type,
        queue=row.queue,
        priority=row.priority,
        status=Status.READY,
        due_at=now,
        created_at=now,
        payload=row.payload or NO_PAYLOAD,
        labels=row.labels,
        retry=row.retry,
        timeouts=row.timeouts,
        trace_context=row.trace_context,
        idempotency=_once(row, now, limits),
        retry_of=row.task_id,
        deadline_at=deadline,
        next_check_at=first_check(Status.READY, now, now, deadline, row.timeouts.queue_ms),
    )


def _once(row: Task, now: int, limits: Limits) -> IdempotencyKey:
    """A key that no caller's can meet: a task type is never empty."""
    return IdempotencyKey(
        key_digest(row.namespace, "", f"retry\0{text_of(row.task_id)}"),
        hashlib.sha256(row.task_id).digest(),
        now + limits.idempotency_ms,
    )
