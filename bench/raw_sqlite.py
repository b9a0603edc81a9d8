"""The raw life cycle in SQLite: what the four writes of a task cost when nothing else is done.

The table is the embedded store's own, so the rows have its shape: insert, then three batched
updates of the same rows (READY, RUNNING, SUCCEEDED), WAL, `synchronous=FULL`, one process, a
transaction per batch.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from importlib.resources import files
from pathlib import Path

from mainspring_server.ids import mint

_INSERT = (
    "INSERT INTO tasks (seq, task_id, namespace, task_type, queue, priority, status, due_at, "
    "created_at, next_check_at, version, attempts, lost_grants, lease_acked, max_attempts, "
    "retry_initial_ms, retry_multiplier, retry_max_ms) "
    "VALUES (?, ?, 'default', 'bench.noop', 'bench.noop', 5, 2, ?, ?, ?, 1, 0, 0, 0, 4, 1000, 2.0, "
    "300000)"
)
_STEPS = (
    (
        "UPDATE tasks SET status = 3, version = version + 1, ready_at = ?, published_at = ? "
        "WHERE task_id = ? AND version = 1"
    ),
    (
        "UPDATE tasks SET status = 4, version = version + 1, attempts = attempts + 1, "
        "worker_id = 'bench', started_at = ?, lease_expires_at = ? WHERE task_id = ? AND version = 2"
    ),
    (
        "UPDATE tasks SET status = 5, version = version + 1, completed_at = ?, outcome_token = 3, "
        "outcome_by = ?, next_check_at = NULL, lease_expires_at = NULL "
        "WHERE task_id = ? AND version = 3"
    ),
)


def raw_life_cycles(folder: Path, tasks: int, batch: int, *, indexed: bool) -> float:
    """Life cycles a second; without `indexed` the table has no index but those of its keys."""
    path = folder / f"raw-{uuid.uuid4().hex}.db"
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        schema = files("mainspring_server.store.sqlite") / "schema.sql"
        db.executescript(schema.read_text(encoding="utf-8"))
        if not indexed:
            for (name,) in db.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'tasks' "
                "AND sql IS NOT NULL"
            ).fetchall():
                db.execute(f"DROP INDEX {name}")
        base = time.time_ns() // 1_000_000
        # A batch's ids share a millisecond, as those of one call do.
        ids = [i for n in range(0, tasks, batch) for i in mint(base + n, min(batch, tasks - n))]
        started = time.perf_counter()
        for first in range(0, tasks, batch):
            _one_batch(db, first, ids[first : first + batch])
        seconds = time.perf_counter() - started
        (done,) = db.execute("SELECT count(*) FROM tasks WHERE status = 5").fetchone()
        assert done == tasks
        return tasks / seconds
    finally:
        db.close()
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def _one_batch(db: sqlite3.Connection, first: int, ids: list[bytes]) -> None:
    now = time.time_ns() // 1_000_000
    db.execute("BEGIN IMMEDIATE")
    db.executemany(
        _INSERT, [(first + n, task_id, now, now, now) for n, task_id in enumerate(ids, 1)]
    )
    db.execute("COMMIT")
    for step in _STEPS:
        db.execute("BEGIN IMMEDIATE")
        db.executemany(step, [(now, now, task_id) for task_id in ids])
        db.execute("COMMIT")
