"""Small tables: paused queues, connected workers, named ownerships with terms."""

from __future__ import annotations

from collections.abc import Sequence

from ..port import PausedQueue, ShardLease, WorkerRow
from .pool import Door, Session
from .rows import AT, NOW

SEEN_MS = 60_000
"""A worker that was not seen for so long is gone."""

PAUSE = f"""WITH {NOW} INSERT INTO paused_queues (lane, reason, paused_at) VALUES ($2, $3, {AT})
ON CONFLICT (lane) DO UPDATE SET reason = excluded.reason"""

RESUME = "DELETE FROM paused_queues WHERE lane = $1 RETURNING lane"

PAUSED = "SELECT lane, reason, paused_at FROM paused_queues ORDER BY lane"

_WORKER = {
    "worker_id": "text",
    "namespace": "text",
    "session_id": "text",
    "node": "text",
    "hostname": "text",
    "sdk": "text",
    "slots": "integer",
    "in_use": "integer",
    "connected_at": "bigint",
    "seen_at": "bigint",
}

# An array of arrays cannot be unnested row by row: lists travel joined by a unit separator.
SAVE_WORKER = f"""INSERT INTO workers ({", ".join(_WORKER)}, queues, task_types)
SELECT {", ".join(_WORKER)}, string_to_array(queues, chr(31)), string_to_array(task_types, chr(31))
FROM unnest({", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_WORKER.values(), 1))},
    $11::text[], $12::text[]) AS u({", ".join(_WORKER)}, queues, task_types)
ON CONFLICT (session_id) DO UPDATE SET
{", ".join(f"{name} = excluded.{name}" for name in [*_WORKER, "queues", "task_types"])}"""

FORGET_WORKERS = f"""WITH {NOW} DELETE FROM workers
WHERE session_id = ANY($2::text[]) OR seen_at < {AT} - {SEEN_MS}"""

WORKERS = f"""WITH {NOW} SELECT worker_id, namespace, session_id, node, hostname, sdk, slots, in_use,
    queues, task_types, connected_at, seen_at
FROM workers WHERE namespace = $2 AND seen_at >= {AT} - {SEEN_MS} ORDER BY worker_id, session_id"""

ACQUIRE = f"""WITH {NOW}
INSERT INTO shard_leases AS l (name, owner, term, expires_at)
SELECT u.name, $3, 1, {AT} + $4::bigint FROM unnest($2::text[]) AS u(name) ORDER BY u.name
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at,
    term = l.term + CASE WHEN l.owner = excluded.owner AND l.expires_at > {AT} THEN 0 ELSE 1 END
WHERE l.owner = excluded.owner OR l.expires_at <= {AT}
RETURNING name, owner, term, expires_at"""

RELEASE = f"""WITH {NOW} UPDATE shard_leases l SET expires_at = least(l.expires_at, {AT})
FROM unnest($2::text[], $3::text[], $4::bigint[]) AS u(name, owner, term)
WHERE l.name = u.name AND l.owner = u.owner AND l.term = u.term"""

SHARD_LEASES = f"""WITH {NOW} SELECT name, owner, term, expires_at FROM shard_leases
WHERE EXISTS (SELECT FROM unnest($2::text[]) AS p(prefix) WHERE starts_with(name, prefix))
AND expires_at > {AT} ORDER BY name"""


async def pause(door: Door, clock: int | None, lane: str, reason: str) -> None:
    """The store's `pause`."""
    await door.rows(PAUSE, clock, lane, reason)


async def resume(door: Door, lane: str) -> bool:
    """The store's `resume`."""
    return bool(await door.rows(RESUME, lane))


async def paused(door: Door) -> list[PausedQueue]:
    """The store's `paused`."""
    return [PausedQueue(*row) for row in await door.rows(PAUSED)]


async def save_workers(
    door: Door, clock: int | None, rows: Sequence[WorkerRow], gone: Sequence[str]
) -> None:
    """The store's `save_workers`."""
    latest = {row.session_id: row for row in rows}
    batch = [latest[session_id] for session_id in sorted(latest)]

    async def work(session: Session) -> None:
        if batch:
            await session.rows(
                SAVE_WORKER,
                *([getattr(row, name) for row in batch] for name in _WORKER),
                [chr(31).join(row.queues) for row in batch],
                [chr(31).join(row.task_types) for row in batch],
            )
        await session.rows(FORGET_WORKERS, clock, list(gone))

    await door.run(work)


async def workers(door: Door, clock: int | None, namespace: str) -> list[WorkerRow]:
    """The store's `workers`."""
    return [
        WorkerRow(*(*row[:8], tuple(row[8]), tuple(row[9]), *row[10:]))
        for row in await door.rows(WORKERS, clock, namespace)
    ]


async def acquire(
    door: Door, clock: int | None, names: Sequence[str], owner: str, ttl_ms: int
) -> list[ShardLease]:
    """The store's `acquire`."""
    rows = await door.rows(ACQUIRE, clock, sorted(set(names)), owner, ttl_ms)
    return [ShardLease(*row) for row in rows]


async def release(door: Door, clock: int | None, leases: Sequence[ShardLease]) -> None:
    """The store's `release`."""
    held = sorted((lease.name, lease.owner, lease.term) for lease in leases)
    if held:
        await door.rows(RELEASE, clock, *zip(*held, strict=True))


async def shard_leases(door: Door, clock: int | None, prefixes: Sequence[str]) -> list[ShardLease]:
    """The store's `shard_leases`."""
    return [ShardLease(*row) for row in await door.rows(SHARD_LEASES, clock, prefixes)]
