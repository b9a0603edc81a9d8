"""Retry: a copy of a task that ended without success, made once."""

from __future__ import annotations

import hashlib

from mainspring.v1 import task_requests_pb2

from ..admission.limits import Limits
from ..domain.checks import first_check
from ..domain.errors import FailedPrecondition
from ..domain.task import (
    NO_PAYLOAD,
    IdempotencyKey,
    InsertState,
    NewTask,
    Status,
    Task,
)
from ..engine import Engine
from ..ids import mint, text_of
from ..store.port import Field, ListQuery, Store
from .convert import unknown_task
from .submit import key_digest

RETRIABLE = (Status.FAILED, Status.CANCELLED)


async def retry(
    engine: Engine, store: Store, task_id: bytes, namespace: str, limits: Limits
) -> task_requests_pb2.RetryResponse:
    """The copy of a FAILED or CANCELLED task: made now, or the one made before."""
    row = (await store.load([task_id], payload=True, namespace=namespace))[0]
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
    query = ListQuery(
        namespace,
        Field("retry_of", "=", task_id),
        "create_time",
        descending=False,
        after=None,
        limit=1,
    )
    earlier = await store.list_tasks(query)
    if earlier:
        return _answer(task_id, earlier[0].task_id, existing=True)
    # Two calls at one time both find none; the key lets only one of them store its copy.
    answer = (await engine.submit([_copy(row, engine.clock.now(), limits)]))[0]
    if isinstance(answer, Exception):
        raise answer
    return _answer(task_id, answer.task_id, existing=answer.state is not InsertState.INSERTED)


def _answer(origin: bytes, copy: bytes, *, existing: bool) -> task_requests_pb2.RetryResponse:
    return task_requests_pb2.RetryResponse(
        new_task_ids={text_of(origin): text_of(copy)}, existing=existing
    )


def _copy(row: Task, now: int, limits: Limits) -> NewTask:
    deadline = None if row.timeouts.total_ms is None else now + row.timeouts.total_ms
    return NewTask(
        task_id=mint(now, 1)[0],
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
