"""The two indexes of the Postgres-only rung: READY by lane, PENDING by due time.

On the distributed rung the ready queue and the wheel answer these questions, and an index that
names `status` would cost every claim its HOT update; so they exist only where the store itself is
queue and wheel. Whether they exist is a fact of the database: every process looks when it opens.
"""

from __future__ import annotations

from .partitions import PARTITION_LOCK
from .pool import Door, Session

INDEXES = {
    "tasks_ready": "(namespace, queue, priority, due_at) WHERE status = 3",
    "tasks_pending": "(shard, due_at) WHERE status = 2",
}


async def has_ready_index(door: Door) -> bool:
    """True where both indexes exist and are complete."""
    rows = await door.rows(
        "SELECT count(*) FROM pg_index WHERE indisvalid "
        "AND indexrelid IN (to_regclass('tasks_ready'), to_regclass('tasks_pending'))"
    )
    return bool(rows[0][0] == len(INDEXES))


async def create_ready_index(door: Door) -> None:
    """Make the indexes. On tables that are filled already, writes wait while they are built."""

    async def work(session: Session) -> None:
        await session.rows("SELECT pg_advisory_xact_lock($1)", PARTITION_LOCK)
        for name, definition in INDEXES.items():
            await session.script(f"CREATE INDEX IF NOT EXISTS {name} ON tasks {definition}")

    await door.run(work)


async def drop_ready_index(door: Door) -> None:
    """Take the indexes away, when a deployment grows to the distributed rung."""

    async def work(session: Session) -> None:
        await session.rows("SELECT pg_advisory_xact_lock($1)", PARTITION_LOCK)
        for name in INDEXES:
            await session.script(f"DROP INDEX IF EXISTS {name}")

    await door.run(work)
