"""Reads of tasks: by id, lists, counts, history."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ...domain.task import Attempt, Task
from ..port import Filter, LaneCounts, ListQuery
from .filters import to_sql
from .rows import ATTEMPT_COLUMNS, TASK_COLUMNS, TASK_WIDTH, by_ids, to_attempt, to_payload, to_task

_TASKS = f"SELECT {TASK_COLUMNS} FROM tasks"
_TASKS_AND_PAYLOADS = (
    f"SELECT {TASK_COLUMNS}, kind, body, metadata FROM tasks LEFT JOIN payloads USING (seq)"
)
_LIST = (
    f"SELECT {TASK_COLUMNS} FROM tasks WHERE namespace = ? AND {{where}}{{after}} "
    "ORDER BY {order} {direction}, task_id {direction} LIMIT ?"
)
_ORDERS = {"create_time": "created_at", "due_time": "due_at"}
_GROUPS = {"status": "status", "task_type": "task_type", "queue": "queue"}

# Every live task has a next_check_at, so this reads no finished one.
_LANES = (
    "SELECT ?1 || '/' || queue, sum(status = 2), sum(status = 3), sum(status = 4), "
    "min(CASE WHEN status = 3 THEN max(coalesce(ready_at, due_at), due_at) END) "
    "FROM tasks INDEXED BY tasks_checks "
    "WHERE next_check_at IS NOT NULL AND namespace = ?1 AND status < 5 "
    "GROUP BY queue ORDER BY queue"
)
_ATTEMPTS = (
    f"SELECT {ATTEMPT_COLUMNS} FROM task_attempts WHERE task_id = ? "
    "ORDER BY attempt, token LIMIT ? OFFSET ?"
)


def load(
    db: sqlite3.Connection, ids: Sequence[bytes], *, payload: bool, namespace: str | None
) -> list[Task | None]:
    """See TaskStore.load."""
    found: dict[bytes, Task] = {}
    for row in by_ids(db, _TASKS_AND_PAYLOADS if payload else _TASKS, ids):
        if namespace is None or row[1] == namespace:
            body = to_payload(*row[TASK_WIDTH:]) if payload else None
            found[row[0]] = to_task(row, body)
    return [found.get(task_id) for task_id in ids]


def list_tasks(db: sqlite3.Connection, query: ListQuery) -> list[Task]:
    """See TaskQueries.list_tasks."""
    where, values = to_sql(query.where)
    order = _ORDERS[query.order]
    after = ""
    if query.after is not None:
        after = f" AND ({order}, task_id) {'<' if query.descending else '>'} (?, ?)"
        values += query.after
    statement = _LIST.format(
        where=where, after=after, order=order, direction="DESC" if query.descending else "ASC"
    )
    return [to_task(row) for row in db.execute(statement, (query.namespace, *values, query.limit))]


def count_tasks(
    db: sqlite3.Connection, namespace: str, where: Filter, group_by: str | None
) -> list[tuple[str | int | None, int]]:
    """See TaskQueries.count_tasks."""
    condition, values = to_sql(where)
    if group_by is None:
        select, group = "NULL", ""
    else:
        select = _GROUPS[group_by]
        group = f" GROUP BY {select} ORDER BY {select}"
    statement = f"SELECT {select}, count(*) FROM tasks WHERE namespace = ? AND {condition}{group}"
    return db.execute(statement, (namespace, *values)).fetchall()


def attempts(db: sqlite3.Connection, task_id: bytes, after: int, limit: int) -> list[Attempt]:
    """See TaskQueries.attempts."""
    return [to_attempt(row) for row in db.execute(_ATTEMPTS, (task_id, limit, after))]


def lane_counts(db: sqlite3.Connection, namespace: str) -> list[LaneCounts]:
    """See TaskQueries.lane_counts."""
    return [LaneCounts(*row) for row in db.execute(_LANES, (namespace,))]
