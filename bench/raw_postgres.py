"""The raw life cycle in PostgreSQL: COPY and three batched updates of the same rows.

The table has the columns, keys and free space of the store's own `tasks`, in one partition, and
lies in the same database; the plan is pinned as the store pins it. One connection, a transaction
per batch, `synchronous_commit` as the server has it.
"""

from __future__ import annotations

import time
import uuid

import asyncpg

from mainspring_server.ids import mint

TABLE = "bench_raw_tasks"
_COLUMNS = (
    *("task_id", "due_at", "created_at", "next_check_at", "max_attempts", "shard"),
    *("status", "priority", "namespace", "task_type", "queue"),
)
_STEPS = (
    "status = 3, version = t.version + 1, ready_at = $2, published_at = $2",
    (
        "status = 4, version = t.version + 1, attempts = t.attempts + 1, worker_id = 'bench', "
        "started_at = $2, lease_expires_at = $2"
    ),
    (
        "status = 5, version = t.version + 1, completed_at = $2, outcome_token = 3, outcome_by = 1, "
        "next_check_at = NULL, lease_expires_at = NULL"
    ),
)
_PLAN = ("hashjoin", "mergejoin", "seqscan", "sort", "bitmapscan")


async def raw_life_cycles(url: str, tasks: int, batch: int) -> float:
    """Life cycles a second."""
    connection = await asyncpg.connect(
        url, server_settings={f"enable_{name}": "off" for name in _PLAN}
    )
    try:
        await connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        await connection.execute(
            f"CREATE TABLE {TABLE} (LIKE tasks INCLUDING DEFAULTS INCLUDING CONSTRAINTS, "
            "PRIMARY KEY (task_id)) WITH (fillfactor = 40)"
        )
        base = time.time_ns() // 1_000_000
        # A batch's ids share a millisecond, as those of one call do.
        ids = [
            uuid.UUID(bytes=raw)
            for n in range(0, tasks, batch)
            for raw in mint(base + n, min(batch, tasks - n))
        ]
        statements = [
            await connection.prepare(
                f"UPDATE {TABLE} t SET {step} FROM unnest($1::uuid[], $3::bigint[]) "
                "AS u(task_id, version) WHERE t.task_id = u.task_id AND t.version = u.version "
                "RETURNING t.task_id"
            )
            for step in _STEPS
        ]
        started = time.perf_counter()
        for first in range(0, tasks, batch):
            part = ids[first : first + batch]
            now = time.time_ns() // 1_000_000
            rows = [(i, now, now, now, 4, 0, 2, 5, "default", "b", "b") for i in part]
            await connection.copy_records_to_table(TABLE, records=rows, columns=_COLUMNS)
            for version, statement in enumerate(statements, 1):
                done = await statement.fetch(part, now, [version] * len(part))
                assert len(done) == len(part)
        return tasks / (time.perf_counter() - started)
    finally:
        await connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        await connection.close()
