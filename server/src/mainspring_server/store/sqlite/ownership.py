"""Small tables: paused queues, connected workers, shard leases."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from ..port import PausedQueue, ShardLease, WorkerRow
from .rows import Row

WORKER_SEEN_MS = 60_000

_PAUSE = (
    "INSERT INTO paused_queues (lane, reason, paused_at) VALUES (?, ?, ?) "
    "ON CONFLICT (lane) DO UPDATE SET reason = excluded.reason"
)

_WORKER_COLUMNS = (
    "worker_id, namespace, session_id, node, hostname, sdk, slots, in_use, queues, task_types, "
    "connected_at, seen_at"
)
_MARKS = ", ".join("?" * 12)
_SAVE_WORKER = f"INSERT OR REPLACE INTO workers ({_WORKER_COLUMNS}) VALUES ({_MARKS})"
_WORKERS = (
    f"SELECT {_WORKER_COLUMNS} FROM workers WHERE namespace = ? AND seen_at >= ? "
    "ORDER BY worker_id, session_id"
)

# Expired comes before mine: a lease that lapsed may have had another owner's
# work in between, so it begins a new term.
_ACQUIRE = (
    "INSERT INTO shard_leases (name, owner, term, expires_at) VALUES (?1, ?2, 1, ?4) "
    "ON CONFLICT (name) DO UPDATE SET owner = ?2, expires_at = ?4, "
    "term = term + (expires_at <= ?3) WHERE owner = ?2 OR expires_at <= ?3"
)
_LEASES = "SELECT name, owner, term, expires_at FROM shard_leases"
_RELEASE = "UPDATE shard_leases SET expires_at = ? WHERE name = ? AND owner = ? AND term = ?"


def pause(db: sqlite3.Connection, now: int, lane: str, reason: str) -> None:
    """See QueueStore.pause."""
    db.execute(_PAUSE, (lane, reason, now))


def resume(db: sqlite3.Connection, lane: str) -> bool:
    """See QueueStore.resume."""
    return db.execute("DELETE FROM paused_queues WHERE lane = ?", (lane,)).rowcount == 1


def paused(db: sqlite3.Connection) -> list[PausedQueue]:
    """See QueueStore.paused."""
    rows = db.execute("SELECT lane, reason, paused_at FROM paused_queues ORDER BY lane")
    return [PausedQueue(*row) for row in rows]


def save_workers(
    db: sqlite3.Connection, now: int, rows: Sequence[WorkerRow], gone: Sequence[str]
) -> None:
    """See QueueStore.save_workers."""
    db.executemany(
        _SAVE_WORKER,
        [
            (
                row.worker_id,
                row.namespace,
                row.session_id,
                row.node,
                row.hostname,
                row.sdk,
                row.slots,
                row.in_use,
                json.dumps(row.queues),
                json.dumps(row.task_types),
                row.connected_at,
                row.seen_at,
            )
            for row in rows
        ],
    )
    db.executemany("DELETE FROM workers WHERE session_id = ?", [(session,) for session in gone])
    db.execute("DELETE FROM workers WHERE seen_at < ?", (now - WORKER_SEEN_MS,))


def workers(db: sqlite3.Connection, now: int, namespace: str) -> list[WorkerRow]:
    """See QueueStore.workers."""
    rows = db.execute(_WORKERS, (namespace, now - WORKER_SEEN_MS))
    return [_to_worker(row) for row in rows]


def _to_worker(row: Row) -> WorkerRow:
    queues, task_types = tuple(json.loads(row[8])), tuple(json.loads(row[9]))
    return WorkerRow(*(*row[:8], queues, task_types, *row[10:]))


def acquire(
    db: sqlite3.Connection, now: int, names: Sequence[str], owner: str, ttl_ms: int
) -> list[ShardLease]:
    """See ShardLeases.acquire."""
    db.executemany(_ACQUIRE, [(name, owner, now, now + ttl_ms) for name in sorted(names)])
    wanted = set(names)
    rows = db.execute(f"{_LEASES} WHERE owner = ? AND expires_at > ? ORDER BY name", (owner, now))
    return [ShardLease(*row) for row in rows if row[0] in wanted]


def release(db: sqlite3.Connection, now: int, leases: Sequence[ShardLease]) -> None:
    """See ShardLeases.release."""
    db.executemany(_RELEASE, [(now, lease.name, lease.owner, lease.term) for lease in leases])


def shard_leases(db: sqlite3.Connection, now: int, prefixes: tuple[str, ...]) -> list[ShardLease]:
    """See ShardLeases.shard_leases."""
    rows = db.execute(f"{_LEASES} WHERE expires_at > ? ORDER BY name", (now,))
    return [ShardLease(*row) for row in rows if row[0].startswith(prefixes)]
