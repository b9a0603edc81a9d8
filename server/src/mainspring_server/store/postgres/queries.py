"""Reads: whole rows by id, what is due, what the sweeper must see, and lists for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...domain.checks import GRACE_MS
from ...domain.task import Attempt, AttemptOutcome, Task
from ..port import DueDigest, DueEntry, Filter, LaneCounts, ListQuery
from .filters import Condition
from .pool import Door
from .rows import AT, NOW, PAYLOAD_COLUMNS, TASK_COLUMNS, payload_of, task_of

LOAD = f"""SELECT {TASK_COLUMNS}
FROM unnest($1::uuid[]) AS u(task_id) JOIN tasks t ON t.task_id = u.task_id"""

LOAD_FULL = f"""SELECT {TASK_COLUMNS}, {PAYLOAD_COLUMNS}
FROM unnest($1::uuid[]) AS u(task_id) JOIN tasks t ON t.task_id = u.task_id
LEFT JOIN task_payloads p ON p.task_id = t.task_id"""

# A PENDING row is looked at again at due + grace at the latest (checks.next_check), so what is due
# by `until` lies below until + grace. Per shard, so that each walks its own stretch of the index and
# stops at the limit; a deadline brings a row forward by less than the grace.
_ALIVE = f"(t.deadline_at IS NULL OR t.deadline_at > greatest($4, {AT}))"

DUE = f"""WITH {NOW} SELECT d.due_at, d.priority, d.task_id
FROM unnest($2::smallint[]) AS s(shard), LATERAL (
    SELECT t.due_at, t.priority, t.task_id FROM tasks t
    WHERE t.shard = s.shard AND t.next_check_at BETWEEN $4 AND $3::bigint + {GRACE_MS}
        AND t.status = 2 AND t.due_at BETWEEN $4 AND $3 AND {_ALIVE}
    ORDER BY t.next_check_at LIMIT $5) d
ORDER BY 1, 2, 3 LIMIT $5"""

# The same through the ready index of the Postgres-only rung, where nothing but PENDING is in it.
DUE_INDEXED = f"""WITH {NOW} SELECT d.due_at, d.priority, d.task_id
FROM unnest($2::smallint[]) AS s(shard), LATERAL (
    SELECT t.due_at, t.priority, t.task_id FROM tasks t
    WHERE t.shard = s.shard AND t.status = 2 AND t.due_at BETWEEN $4 AND $3 AND {_ALIVE}
    ORDER BY t.due_at LIMIT $5) d
ORDER BY 1, 2, 3 LIMIT $5"""

# The mark of a task is the second half of its id, read as a number (port.id_mark).
DUE_DIGEST = f"""WITH {NOW} SELECT s.shard, d.second, d.count, d.mark
FROM unnest($2::smallint[]) AS s(shard), LATERAL (
    SELECT t.due_at / 1000 AS second, count(*) AS count,
        bit_xor(('x' || encode(substring(uuid_send(t.task_id) FROM 9), 'hex'))::bit(64)::bigint)
            AS mark
    FROM tasks t
    WHERE t.shard = s.shard AND t.next_check_at BETWEEN $4 AND $3::bigint + {GRACE_MS}
        AND t.status = 2 AND t.due_at BETWEEN $4 AND $3 AND {_ALIVE}
    GROUP BY 1) d"""

OVERDUE = f"""SELECT o.* FROM unnest($1::smallint[]) AS s(shard), LATERAL (
    SELECT {TASK_COLUMNS} FROM tasks t
    WHERE t.shard = s.shard AND t.next_check_at IS NOT NULL
        AND t.next_check_at <= $2 AND t.next_check_at >= $3
        AND (t.next_check_at, t.task_id) > ($3, $4)
    ORDER BY t.next_check_at, t.task_id LIMIT $5) o
ORDER BY o.next_check_at, o.task_id LIMIT $5"""

ATTEMPTS = """SELECT task_id, attempt, token, worker_id, outcome, started_at, ended_at,
    error_type, error_message
FROM task_attempts WHERE task_id = $1 ORDER BY attempt, token OFFSET $2 LIMIT $3"""

LANE_COUNTS = """SELECT namespace || '/' || queue, count(*) FILTER (WHERE status = 2),
    count(*) FILTER (WHERE status = 3), count(*) FILTER (WHERE status = 4),
    min(greatest(ready_at, due_at)) FILTER (WHERE status = 3)
FROM tasks WHERE next_check_at IS NOT NULL AND status < 5 AND namespace = $1
GROUP BY namespace, queue ORDER BY 1"""

_BEFORE_ALL = (-(2**62), bytes(16))
_GROUPS = {"status": "t.status", "task_type": "t.task_type", "queue": "t.queue"}


async def load(
    door: Door, ids: Sequence[bytes], namespace: str | None, *, payload: bool
) -> list[Task | None]:
    """The store's `load`."""
    if not ids:
        return []
    tasks: dict[bytes, Task] = {}
    for row in await door.rows(LOAD_FULL if payload else LOAD, sorted(set(ids))):
        task = task_of(row)
        if namespace is None or task.namespace == namespace:
            task.payload = payload_of(row) if payload else None
            tasks[task.task_id] = task
    return [tasks.get(task_id) for task_id in ids]


class DueSpan(NamedTuple):
    """What is asked for: of these shards, what is due from `since` to `until`."""

    shards: Sequence[int]
    until: int
    since: int


async def due(
    door: Door, clock: int | None, span: DueSpan, limit: int, *, indexed: bool
) -> list[DueEntry]:
    """The store's `due`."""
    rows = await door.rows(DUE_INDEXED if indexed else DUE, clock, *span, limit)
    return [DueEntry(*row) for row in rows]


async def due_digest(door: Door, clock: int | None, span: DueSpan) -> list[DueDigest]:
    """The store's `due_digest`."""
    return [DueDigest(*row) for row in await door.rows(DUE_DIGEST, clock, *span)]


async def overdue(
    door: Door, shards: Sequence[int], until: int, after: tuple[int, bytes] | None, limit: int
) -> list[Task]:
    """The store's `overdue`."""
    rows = await door.rows(OVERDUE, shards, until, *(after or _BEFORE_ALL), limit)
    return [task_of(row) for row in rows]


async def list_tasks(door: Door, query: ListQuery) -> list[Task]:
    """The store's `list_tasks`.

    An id begins with its time of creation, so the order by create_time is that of the primary key.
    """
    condition = Condition(query.namespace, query.limit)
    where = ["t.namespace = $1", condition.sql(query.where)]
    by_due = query.order == "due_time"
    direction, sign = ("DESC", "<") if query.descending else ("ASC", ">")
    if query.after is not None:
        at, task_id = query.after
        last = condition.bind(task_id)
        if by_due:
            where.append(
                f"(t.due_at, t.task_id) {sign} ({condition.bind(at)}::bigint, {last}::uuid)"
            )
        else:
            where.append(f"t.task_id {sign} {last}::uuid")
    order = f"t.due_at {direction}, t.task_id {direction}" if by_due else f"t.task_id {direction}"
    rows = await door.rows(
        f"SELECT {TASK_COLUMNS} FROM tasks t WHERE {' AND '.join(where)} ORDER BY {order} LIMIT $2",
        *condition.parameters,
    )
    return [task_of(row) for row in rows]


async def count_tasks(
    door: Door, namespace: str, where: Filter, group_by: str | None
) -> list[tuple[str | int | None, int]]:
    """The store's `count_tasks`."""
    condition = Condition(namespace)
    column = "NULL::text" if group_by is None else _GROUPS[group_by]
    tail = "" if group_by is None else f" GROUP BY {column} ORDER BY {column}"
    rows = await door.rows(
        f"SELECT {column}, count(*) FROM tasks t "
        f"WHERE t.namespace = $1 AND {condition.sql(where)}{tail}",
        *condition.parameters,
    )
    return [(row[0], row[1]) for row in rows]


async def attempts(door: Door, task_id: bytes, after: int, limit: int) -> list[Attempt]:
    """The store's `attempts`."""
    return [
        Attempt(task_id, attempt, token, worker, AttemptOutcome(outcome), *times_and_error)
        for task_id, attempt, token, worker, outcome, *times_and_error in await door.rows(
            ATTEMPTS, task_id, after, limit
        )
    ]


async def lane_counts(door: Door, namespace: str) -> list[LaneCounts]:
    """The store's `lane_counts`."""
    return [LaneCounts(*row) for row in await door.rows(LANE_COUNTS, namespace)]
