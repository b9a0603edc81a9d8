"""Deleting what is long over."""

from __future__ import annotations

import sqlite3

from ..port import DEAD_LEASE_MS

# A task ends after it was created, so the oldest come first from the index,
# and what is younger than the bound is never looked at.
_OVER = (
    "SELECT seq, task_id FROM tasks INDEXED BY tasks_created WHERE created_at < ?1 "
    "AND status >= 5 AND next_check_at IS NULL AND completed_at < ?1 "
    "ORDER BY created_at LIMIT ?2"
)
_EXPIRED_KEYS = (
    "DELETE FROM idempotency_keys WHERE digest IN "
    "(SELECT digest FROM idempotency_keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)"
)


_DEAD_LEASES = "DELETE FROM shard_leases WHERE expires_at < ?"


def purge(db: sqlite3.Connection, now: int, completed_before: int, limit: int) -> int:
    """See TaskQueries.purge; the number of deleted tasks."""
    over = db.execute(_OVER, (completed_before, limit)).fetchall()
    seqs = [(seq,) for seq, _ in over]
    db.executemany("DELETE FROM payloads WHERE seq = ?", seqs)
    db.executemany("DELETE FROM task_attempts WHERE task_id = ?", [(id_,) for _, id_ in over])
    # Edges go with the dependent; those of waiting tasks keep what became of a predecessor.
    edges = "DELETE FROM task_dependencies WHERE downstream = ?"
    db.executemany(edges, [(id_,) for _, id_ in over])
    db.executemany("DELETE FROM tasks WHERE seq = ?", seqs)
    db.execute(_EXPIRED_KEYS, (now, limit))
    db.execute(_DEAD_LEASES, (now - DEAD_LEASE_MS,))
    return len(over)
