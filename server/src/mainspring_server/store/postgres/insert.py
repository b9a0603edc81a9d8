"""Insert: by COPY where a batch is large and has no idempotency keys, else in one statement.

COPY costs two thirds of the statement, but several round trips, and knows no ON CONFLICT. In the
statement columns travel as arrays, one that no task of the batch uses as an empty array (`unnest`
fills the shorter ones up with NULL).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import asyncpg

from ...domain.errors import Unavailable
from ...domain.retry import DEFAULT_RETRY
from ...domain.task import IdempotencyKey, Inserted, InsertState, NewTask, Status
from .pool import Door, Session
from .rows import AT, CLOCK, NOW, STATEMENT_CLOCK

_COLUMNS = {
    "task_id": "uuid",
    "namespace": "text",
    "task_type": "text",
    "queue": "text",
    "priority": "smallint",
    "shard": "smallint",
    "status": "smallint",
    "due_at": "bigint",
    "created_at": "bigint",
    "next_check_at": "bigint",
    "max_attempts": "integer",
    # From here on most batches send nothing.
    "labels": "text",
    "trace_context": "text",
    "retry_initial_ms": "bigint",
    "retry_multiplier": "float8",
    "retry_max_ms": "bigint",
    "queue_ms": "bigint",
    "run_ms": "bigint",
    "total_ms": "bigint",
    "deadline_at": "bigint",
    "retry_of": "uuid",
    "schedule_id": "uuid",
    "nominal_at": "bigint",
    "rule": "smallint",
    "delay_after_ms": "bigint",
    "has_dependents": "boolean",
    "graph_id": "uuid",
    "local_ref": "text",
}
_LEAN = 11
_DUE_AT = 7
_PAYLOAD = {"task_id": "uuid", "kind": "smallint", "body": "bytea", "metadata": "text"}
_KEY = {"digest": "uuid", "key_task": "uuid", "expires_at": "bigint", "request_hash": "bytea"}

COPY_FROM = 250
"""A batch of so many tasks is worth the round trips of COPY."""

_DEFAULT = (DEFAULT_RETRY.initial_delay_ms, DEFAULT_RETRY.multiplier, DEFAULT_RETRY.max_delay_ms)
_NO_RETRY = (None, None, None)
_READY = int(Status.READY)


def _unnest(columns: dict[str, str], first: int, alias: str) -> str:
    arrays = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(columns.values(), first))
    return f"unnest({arrays}) AS {alias}({', '.join(columns)})"


def _statement(*, keyed: bool) -> str:
    first_payload = 2 + len(_COLUMNS)
    first_key = first_payload + len(_PAYLOAD)
    names = ", ".join(_COLUMNS)
    values = names.replace(
        "due_at", f"CASE WHEN u.status = {_READY} THEN least(u.due_at, {AT}) ELSE u.due_at END"
    )
    ready = f"CASE WHEN u.status = {_READY} THEN {AT} END"
    won = only = also = ""
    tasks, payloads = _unnest(_COLUMNS, 2, "u"), _unnest(_PAYLOAD, first_payload, "p")
    if keyed:
        # Keys are taken in digest order, so that two batches cannot wait for each other. `IN`
        # behind an OR is a hashed lookup; alone it would become a join of the two lists.
        won = f""", won AS (
    INSERT INTO idempotency_keys AS k (digest, task_id, expires_at, request_hash)
    SELECT * FROM {_unnest(_KEY, first_key, "x")} ORDER BY digest
    ON CONFLICT (digest) DO UPDATE SET task_id = excluded.task_id,
        expires_at = excluded.expires_at, request_hash = excluded.request_hash
    WHERE k.expires_at <= {AT}
    RETURNING k.digest)"""
        tasks = _unnest(_COLUMNS | {"digest": "uuid"}, 2, "u").replace(
            f"${first_payload}::uuid[]", f"${first_key + 4}::uuid[]"
        )
        payloads = _unnest(_PAYLOAD | {"digest": "uuid"}, first_payload, "p").replace(
            f"${first_key}::uuid[]", f"${first_key + 5}::uuid[]"
        )
        only = "WHERE u.digest IS NULL OR u.digest IN (SELECT digest FROM won)"
        also = "WHERE p.digest IS NULL OR p.digest IN (SELECT digest FROM won)"
    return f"""WITH {NOW}{won}, bodies AS (
    INSERT INTO task_payloads ({", ".join(_PAYLOAD)})
    SELECT {", ".join(_PAYLOAD)} FROM {payloads} {also}
    ON CONFLICT (task_id) DO NOTHING), added AS (
    INSERT INTO tasks ({names}, ready_at, published_at)
    SELECT {values}, {ready}, {ready} FROM {tasks} {only}
    ON CONFLICT (task_id) DO NOTHING)
SELECT now, NULL::uuid FROM c{" UNION ALL SELECT NULL, digest FROM won" if keyed else ""}"""


PLAIN = _statement(keyed=False)
KEYED = _statement(keyed=True)

# Tasks and schedules share ids and keys.
HOLDERS = f"""SELECT k.digest, k.request_hash, k.task_id,
    coalesce(t.status, CASE WHEN s.schedule_id IS NOT NULL THEN {int(Status.PENDING)} END),
    coalesce(t.due_at, s.next_check_at, s.settled_at)
FROM unnest($1::uuid[]) AS u(digest) JOIN idempotency_keys k ON k.digest = u.digest
LEFT JOIN tasks t ON t.task_id = k.task_id LEFT JOIN schedules s ON s.schedule_id = k.task_id"""


KEY_HOLDER = f"""SELECT request_hash, task_id FROM idempotency_keys
WHERE digest = $2 AND expires_at > coalesce($1::bigint, {STATEMENT_CLOCK})"""


class _Holder(NamedTuple):
    """The task that an idempotency key stands for."""

    request_hash: bytes
    task_id: bytes
    status: Status
    due_at: int


def columns_of(tasks: Sequence[NewTask], parents: Collection[bytes] = ()) -> list[list[object]]:
    """One list per entry of _COLUMNS; `parents` have dependents in the same batch."""
    columns: list[list[object]] = [
        [task.task_id for task in tasks],
        [task.namespace for task in tasks],
        [task.task_type for task in tasks],
        [task.queue for task in tasks],
        [task.priority for task in tasks],
        [task.task_id[15] & 63 for task in tasks],
        [task.status for task in tasks],
        [task.due_at for task in tasks],
        [task.created_at for task in tasks],
        [task.next_check_at for task in tasks],
        [task.retry.max_attempts for task in tasks],
    ]
    retries = [_retry(task) for task in tasks]
    sparse: list[list[object]] = [
        [task.labels for task in tasks],
        [task.trace_context for task in tasks],
        [retry[0] for retry in retries],
        [retry[1] for retry in retries],
        [retry[2] for retry in retries],
        [task.timeouts.queue_ms for task in tasks],
        [task.timeouts.run_ms for task in tasks],
        [task.timeouts.total_ms for task in tasks],
        [task.deadline_at for task in tasks],
        [task.retry_of for task in tasks],
        [task.schedule_id for task in tasks],
        [task.nominal_at for task in tasks],
        [task.waits and task.waits.rule for task in tasks],
        [task.waits and (task.waits.delay_ms or None) for task in tasks],
        [task.task_id in parents or None for task in tasks],
        [task.graph_id for task in tasks],
        [task.local_ref for task in tasks],
    ]
    nothing = [None] * len(tasks)
    columns.extend([] if column == nothing else column for column in sparse)
    return columns


def _retry(task: NewTask) -> tuple[int | None, float | None, int | None]:
    retry = task.retry
    if retry is DEFAULT_RETRY:
        return _NO_RETRY
    own = (retry.initial_delay_ms, retry.multiplier, retry.max_delay_ms)
    return _NO_RETRY if own == _DEFAULT else own


def payloads_of(tasks: Sequence[NewTask]) -> list[list[object]]:
    """One list per entry of _PAYLOAD, of the tasks that have one."""
    ids, kinds, bodies, metadata = [], [], [], []
    for task in tasks:
        kind, body, extra = task.payload
        if kind:
            ids.append(task.task_id)
            kinds.append(int(kind))
            bodies.append(body)
            metadata.append(extra)
    return [list(ids), list(kinds), list(bodies), list(metadata)]


async def insert(door: Door, clock: int | None, tasks: Sequence[NewTask]) -> list[Inserted]:
    """The store's `insert`."""
    if not tasks:
        return []
    if any(task.idempotency is not None for task in tasks):
        return await _insert_keyed(door, clock, tasks)
    now = await _copy(door, clock, tasks) if len(tasks) >= COPY_FROM else None
    if now is None:
        rows = await door.rows(PLAIN, clock, *columns_of(tasks), *payloads_of(tasks))
        now = int(rows[0][0])
    return [inserted(task, now) for task in tasks]


async def _copy(door: Door, clock: int | None, tasks: Sequence[NewTask]) -> int | None:
    """The batch by COPY; answers the clock, or None if a task was there already (nothing is done)."""
    columns = columns_of(tasks)
    names = list(_COLUMNS)
    if not any(columns[_LEAN:]):
        columns, names = columns[:_LEAN], names[:_LEAN]
    nothing: list[object] = [None] * len(tasks)
    columns = [column or nothing for column in columns]
    ready = any(task.status == _READY for task in tasks)

    async def work(session: Session) -> int:
        now = clock or 0
        if ready:
            if clock is None:
                now = int((await session.rows(f"SELECT {CLOCK}"))[0][0])
            columns[_DUE_AT] = [_due(task, now) for task in tasks]
            at = [now if task.status == _READY else None for task in tasks]
            records = zip(*columns, at, at, strict=True)
            await session.copy("tasks", [*names, "ready_at", "published_at"], records)
        else:
            await session.copy("tasks", names, zip(*columns, strict=True))
        payloads = payloads_of(tasks)
        if payloads[0]:
            await session.copy("task_payloads", list(_PAYLOAD), zip(*payloads, strict=True))
        return now

    try:
        return await door.run(work)
    except asyncpg.UniqueViolationError:
        return None


def inserted(task: NewTask, now: int) -> Inserted:
    """The answer for a task that was stored at `now`."""
    return Inserted(InsertState.INSERTED, task.task_id, task.status, _due(task, now))


def _due(task: NewTask, now: int) -> int:
    return min(task.due_at, now) if task.status == _READY else task.due_at


async def _insert_keyed(door: Door, clock: int | None, tasks: Sequence[NewTask]) -> list[Inserted]:
    first: dict[bytes, tuple[NewTask, IdempotencyKey]] = {}
    sent = []
    for task in tasks:
        key = task.idempotency
        if key is None or key.digest not in first:
            sent.append(task)
            if key is not None:
                first[key.digest] = task, key
    owners = [first[digest] for digest in sorted(first)]
    keys: list[list[object]] = [
        [key.digest for _, key in owners],
        [task.task_id for task, _ in owners],
        [key.expires_at for _, key in owners],
        [key.request_hash for _, key in owners],
    ]
    rows = await door.rows(
        KEYED,
        clock,
        *columns_of(sent),
        *payloads_of(sent),
        *keys,
        [task.idempotency and task.idempotency.digest for task in sent],
        [task.idempotency and task.idempotency.digest for task in sent if task.payload.kind],
    )
    now = rows[0][0]
    won = {row[1] for row in rows[1:]}
    holders = {
        key.digest: _Holder(key.request_hash, task.task_id, task.status, _due(task, now))
        for task, key in owners
        if key.digest in won
    }
    lost = [key.digest for _, key in owners if key.digest not in won]
    if lost:
        holders |= await _holders(door, lost)
    return [_answer(task, now, holders) for task in tasks]


async def _holders(door: Door, digests: list[bytes]) -> dict[bytes, _Holder]:
    rows = await door.rows(HOLDERS, digests)
    found = {
        digest: _Holder(request_hash, task_id, Status(status or Status.SUCCEEDED), due_at or 0)
        for digest, request_hash, task_id, status, due_at in rows
    }
    if len(found) < len(digests):
        # It expired and was purged between the two statements: the same call now takes it.
        raise Unavailable(
            "STORE_UNAVAILABLE", "an idempotency key expired just now; try again", retry_after_ms=0
        )
    return found


def _answer(task: NewTask, now: int, holders: dict[bytes, _Holder]) -> Inserted:
    if task.idempotency is None:
        return inserted(task, now)
    holder = holders[task.idempotency.digest]
    if holder.task_id == task.task_id:
        return inserted(task, now)
    same = holder.request_hash == task.idempotency.request_hash
    state = InsertState.EXISTING if same else InsertState.CONFLICT
    return Inserted(state, holder.task_id, holder.status, holder.due_at)


def no_partition(error: BaseException) -> bool:
    """True if an insert failed because no partition takes one of its ids."""
    return isinstance(error, asyncpg.CheckViolationError) and "no partition" in str(error)
