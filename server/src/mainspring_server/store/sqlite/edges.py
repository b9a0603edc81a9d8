"""Dependencies: graphs in, edges marked and counted, outcomes handed on."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NoReturn

from ...domain.errors import AlreadyExists, NotFound
from ...domain.task import (
    TERMINAL,
    Handed,
    Inserted,
    InsertState,
    NewTask,
    Status,
    Waiting,
)
from ...ids import text_of
from .insert import holders_of, store_rows, take_keys
from .rows import TASK_COLUMNS, TASK_WIDTH, by_ids, to_task, update_by

_STATES = "SELECT task_id, namespace, status, due_at FROM tasks"
_MARK_PARENTS = "UPDATE tasks SET has_dependents = 1 WHERE task_id"
_ADD_EDGE = "INSERT INTO task_dependencies (downstream, predecessor, outcome) VALUES (?, ?, ?)"
_TERMINAL = ", ".join(str(int(status)) for status in sorted(TERMINAL))
_OUTCOME = (
    "UPDATE task_dependencies SET outcome = (SELECT status FROM tasks "
    f"WHERE task_id = predecessor AND status IN ({_TERMINAL})) WHERE outcome IS NULL AND "
)
_DEPENDENTS = "SELECT downstream FROM task_dependencies"
_CREATED = f"SELECT {TASK_COLUMNS} FROM tasks"
_COUNTS = (
    "SELECT downstream, count(*) FILTER (WHERE outcome IS NULL), "
    "count(*) FILTER (WHERE outcome = 5), count(*) FILTER (WHERE outcome = 6), "
    "count(*) FILTER (WHERE outcome = 7), "
    "coalesce(min(predecessor) FILTER (WHERE outcome = 6), "
    "min(predecessor) FILTER (WHERE outcome = 7)) FROM task_dependencies"
)
_TOLD = f"UPDATE tasks SET next_check_at = NULL WHERE status IN ({_TERMINAL}) AND task_id"
_HANDED = (
    "SELECT d.downstream, d.predecessor, t.local_ref, coalesce(t.status, d.outcome), t.outcome "
    "FROM task_dependencies d LEFT JOIN tasks t ON t.task_id = d.predecessor"
)


def insert_graph(db: sqlite3.Connection, now: int, tasks: Sequence[NewTask]) -> list[Inserted]:
    """See Edges.insert_graph."""
    existing = _existing(db, now, tasks)
    if existing is not None:
        return existing
    own = {task.task_id for task in tasks}
    outcomes = _lock_predecessors(db, tasks, own)
    store_rows(db, now, tasks)
    take_keys(db, tasks)
    inside = {p for task in tasks if task.waits for p in task.waits.predecessors if p in own}
    update_by(db, _MARK_PARENTS, (), sorted(inside))
    db.executemany(
        _ADD_EDGE,
        (
            (task.task_id, predecessor, outcomes.get(predecessor))
            for task in tasks
            if task.waits
            for predecessor in dict.fromkeys(task.waits.predecessors)
        ),
    )
    return [Inserted(InsertState.INSERTED, t.task_id, t.status, t.due_at) for t in tasks]


def _existing(db: sqlite3.Connection, now: int, tasks: Sequence[NewTask]) -> list[Inserted] | None:
    """The tasks of an earlier call with the same keys; None if no key is known."""
    holders = holders_of(db, now, tasks)
    known = [task for task in tasks if task.idempotency and task.idempotency.digest in holders]
    if not known:
        return None
    first = {t.task_id: holders[t.idempotency.digest] for t in known if t.idempotency}
    rows = {row[0]: row for row in by_ids(db, _STATES, [task_id for _, task_id in first.values()])}
    same = len(known) == len(tasks) and all(
        t.idempotency and first[t.task_id][0] == t.idempotency.request_hash for t in known
    )
    if not same or len(rows) < len(set(first.values())):
        raise AlreadyExists(
            "IDEMPOTENCY_KEY_REUSED",
            "an idempotency key of this graph belongs to another request; send the graph as before, "
            "or with new keys",
        )
    return [
        Inserted(InsertState.EXISTING, row[0], Status(row[2]), row[3])
        for row in (rows[first[task.task_id][1]] for task in tasks)
    ]


def _lock_predecessors(
    db: sqlite3.Connection, tasks: Sequence[NewTask], own: set[bytes]
) -> dict[bytes, int | None]:
    """Existing predecessors marked as such; their outcome, None while they live."""
    wanted = {
        predecessor: task
        for task in tasks
        if task.waits
        for predecessor in task.waits.predecessors
        if predecessor not in own
    }
    found = {row[0]: row for row in by_ids(db, _STATES, sorted(wanted))}
    for predecessor, task in sorted(wanted.items(), key=itemgetter(0)):
        row = found.get(predecessor)
        if row is None or row[1] != task.namespace:
            _refuse(predecessor)
    update_by(db, _MARK_PARENTS, (), sorted(wanted))
    return {
        task_id: row[2] if Status(row[2]) in TERMINAL else None for task_id, row in found.items()
    }


def _refuse(predecessor: bytes) -> NoReturn:
    name = text_of(predecessor)
    raise NotFound(
        "PREDECESSOR_NOT_FOUND", f"no task {name} to depend on", metadata={"task_id": name}
    )


def resolve(
    db: sqlite3.Connection, predecessors: Sequence[bytes], after: bytes | None, limit: int
) -> list[Waiting]:
    """See Edges.resolve. The page is of dependents, so that each is looked at once a page."""
    children: set[bytes] = set()
    for row in by_ids(db, _DEPENDENTS, predecessors, column="predecessor"):
        if after is None or row[0] > after:
            children.add(row[0])
    page: list[Waiting] = []
    pending = sorted(children)
    for start in range(0, len(pending), limit):
        page += waiting(db, pending[start : start + limit])
        if len(page) >= limit:
            break
    return page[:limit]


def waiting(db: sqlite3.Connection, ids: Sequence[bytes]) -> list[Waiting]:
    """See Edges.waiting."""
    created = {row[0]: row for row in by_ids(db, _CREATED, ids, column="status = 1 AND task_id")}
    found = sorted(created)
    update_by(db, f"{_OUTCOME} downstream", (), found)
    counts = {
        row[0]: row[1:]
        for part in _grouped(found)
        for row in db.execute(
            f"{_COUNTS} WHERE downstream IN ({','.join('?' * len(part))}) GROUP BY downstream", part
        )
    }
    return [Waiting(to_task(created[i][:TASK_WIDTH]), *counts[i]) for i in found if i in counts]


def _grouped(ids: Sequence[bytes], size: int = 500) -> list[Sequence[bytes]]:
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def told(db: sqlite3.Connection, ids: Sequence[bytes]) -> None:
    """See Edges.told."""
    update_by(db, _TOLD, (), sorted(ids))


def predecessors(db: sqlite3.Connection, ids: Sequence[bytes]) -> dict[bytes, list[Handed]]:
    """See Edges.predecessors."""
    rows = sorted(by_ids(db, _HANDED, ids, column="d.downstream"), key=itemgetter(0, 1))
    return {
        downstream: [Handed(r[1], r[2], Status(r[3]), r[4]) for r in group if r[3] is not None]
        for downstream, group in groupby(rows, key=itemgetter(0))
    }
