"""Retention: periods are dropped whole; what outlived its period, and keys, go row by row."""

from __future__ import annotations

from ..port import DEAD_LEASE_MS
from .partitions import Partition, first_id, partitions, retire_partitions
from .pool import Door, Session
from .rows import STATEMENT_CLOCK

FINISHED = """SELECT task_id FROM tasks
WHERE task_id < $1::text::uuid AND completed_at < $2 AND status >= 5 AND next_check_at IS NULL
ORDER BY task_id LIMIT $3 FOR UPDATE SKIP LOCKED"""

DELETE = """WITH gone AS (
    DELETE FROM tasks t USING unnest($1::uuid[]) AS u(task_id)
    WHERE t.task_id = u.task_id RETURNING t.task_id
), payloads AS (
    DELETE FROM task_payloads p USING unnest($1::uuid[]) AS u(task_id) WHERE p.task_id = u.task_id
), attempts AS (
    DELETE FROM task_attempts a USING unnest($1::uuid[]) AS u(task_id) WHERE a.task_id = u.task_id
), edges AS (
    DELETE FROM task_dependencies d USING unnest($1::uuid[]) AS u(task_id)
    WHERE d.downstream = u.task_id
)
SELECT count(*) FROM gone"""

PURGE_KEYS = f"""DELETE FROM idempotency_keys k USING (
    SELECT digest FROM idempotency_keys WHERE expires_at <= coalesce($1::bigint, {STATEMENT_CLOCK})
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED) old
WHERE k.digest = old.digest"""

PURGE_LEASES = f"""DELETE FROM shard_leases
WHERE expires_at < coalesce($1::bigint, {STATEMENT_CLOCK}) - {DEAD_LEASE_MS}"""


async def purge(
    door: Door, clock: int | None, completed_before: int, limit: int, *, every_row: bool
) -> int:
    """The store's `purge`: answers how many rows were deleted one by one.

    Without `every_row` only the carried partition is searched for single rows: those of a younger
    period go with it when it is dropped, which costs nothing per row.
    """
    await retire_partitions(door, completed_before)
    await door.rows(PURGE_KEYS, clock, limit)
    await door.rows(PURGE_LEASES, clock)

    async def work(session: Session) -> int:
        below = completed_before if every_row else _carried_end(await partitions(session))
        rows = await session.rows(FINISHED, first_id(max(below, 0)), completed_before, limit)
        if not rows:
            return 0
        return int((await session.rows(DELETE, [row[0] for row in rows]))[0][0])

    return await door.run(work)


def _carried_end(known: list[Partition]) -> int:
    return known[0].end if known and known[0].carried else 0
