"""Dependencies: graphs in, edges marked and counted, outcomes handed on.

There is one writer, so nothing here can come between a look and the write that follows from it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NoReturn

from ...domain.errors import AlreadyExists
from ...domain.task import (
    HANDED_BYTES,
    HANDED_OVERHEAD,
    TERMINAL,
    Edge,
    Handed,
    Inserted,
    InsertState,
    NewTask,
    Status,
    Waiting,
)
from ..schedules import refused_predecessor
from .insert import STATES, holders_of, schedule_states, store_rows, take_keys
from .rows import TASK_COLUMNS, Row, by_ids, to_task, update_by

_MARK_PARENTS = "UPDATE tasks SET has_dependents = 1 WHERE task_id"
_ADD_EDGE = "INSERT INTO task_dependencies (downstream, predecessor, outcome) VALUES (?, ?, ?)"

# A page of each predecessor's dependents is enough to know the first page of them all.
_FIND_WAITING = (
    "SELECT d.downstream, d.outcome IS NULL FROM task_dependencies d "
    "JOIN tasks t ON t.task_id = d.downstream WHERE d.predecessor = ? AND d.downstream > ? "
    "AND t.status = 1 ORDER BY d.downstream LIMIT ?"
)
_MARK = (
    "UPDATE task_dependencies SET outcome = ? "
    "WHERE downstream = ? AND predecessor = ? AND outcome IS NULL"
)
_MARK_ALL = (
    "UPDATE task_dependencies SET outcome = "
    "(SELECT status FROM tasks WHERE task_id = predecessor) WHERE outcome IS NULL AND EXISTS "
    "(SELECT 1 FROM tasks WHERE task_id = predecessor AND status >= 5) AND downstream"
)
_CREATED = f"SELECT {TASK_COLUMNS} FROM tasks"
_COUNTS = (
    "SELECT downstream, count(*) FILTER (WHERE outcome IS NULL), "
    "count(*) FILTER (WHERE outcome = 5), count(*) FILTER (WHERE outcome = 6), "
    "count(*) FILTER (WHERE outcome = 7), "
    "coalesce(min(predecessor) FILTER (WHERE outcome = 6), "
    "min(predecessor) FILTER (WHERE outcome = 7)) FROM task_dependencies "
    "WHERE downstream = ? GROUP BY downstream"
)
_TOLD = "UPDATE tasks SET next_check_at = NULL WHERE status >= 5 AND task_id"
_HANDED = (
    "SELECT d.predecessor, t.local_ref, coalesce(t.status, d.outcome), t.outcome "
    "FROM task_dependencies d LEFT JOIN tasks t ON t.task_id = d.predecessor "
    "WHERE d.downstream = ? AND coalesce(t.status, d.outcome) >= 5 ORDER BY d.predecessor"
)
_EDGES = "SELECT downstream, predecessor, outcome FROM task_dependencies"


def insert_graph(db: sqlite3.Connection, now: int, tasks: Sequence[NewTask]) -> list[Inserted]:
    """See Edges.insert_graph."""
    existing = existing_tasks(db, now, tasks)
    if existing is not None:
        return existing
    store_graph(db, now, tasks)
    take_keys(db, tasks)
    return [Inserted(InsertState.INSERTED, t.task_id, t.status, t.due_at) for t in tasks]


def store_graph(db: sqlite3.Connection, now: int, tasks: Sequence[NewTask]) -> list[bytes]:
    """Insert rows and edges; those of the tasks of which a predecessor has ended already."""
    own = {task.task_id for task in tasks}
    outcomes = _mark_predecessors(db, tasks, own)
    store_rows(db, now, tasks)
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
    ended = {task_id for task_id, outcome in outcomes.items() if outcome is not None}
    return [t.task_id for t in tasks if t.waits and ended.intersection(t.waits.predecessors)]


def existing_tasks(
    db: sqlite3.Connection, now: int, tasks: Sequence[NewTask]
) -> list[Inserted] | None:
    """The tasks of an earlier call with the same keys; None if the keys are free."""
    keys = [task.idempotency for task in tasks if task.idempotency]
    if len({key.digest for key in keys}) < len(keys):
        _refuse_keys()
    holders = holders_of(db, now, keys)
    holding = [holder[1] for holder in holders.values()]
    rows = {row[0]: row for row in by_ids(db, STATES, holding)}
    rows |= {row[0]: row for row in schedule_states(db, [i for i in holding if i not in rows])}
    if not rows:
        return None  # no key is known, or the tasks behind them are gone
    found = []
    for task in tasks:
        key = task.idempotency
        request_hash, first = holders.get(key.digest, (b"", b"")) if key else (b"", b"")
        row = rows.get(first)
        if key is None or row is None or request_hash != key.request_hash:
            _refuse_keys()
        found.append(Inserted(InsertState.EXISTING, row[0], Status(row[2]), row[3]))
    return found


def _refuse_keys() -> NoReturn:
    raise AlreadyExists(
        "IDEMPOTENCY_KEY_REUSED",
        "an idempotency key belongs to another request; send all of it as before, or with new keys",
    )


def _mark_predecessors(
    db: sqlite3.Connection, tasks: Sequence[NewTask], own: set[bytes]
) -> dict[bytes, int | None]:
    """Existing predecessors marked as such; their outcome, None while they live."""
    wanted: dict[bytes, set[str]] = {}
    for task in tasks:
        for predecessor in task.waits.predecessors if task.waits else ():
            if predecessor not in own:
                wanted.setdefault(predecessor, set()).add(task.namespace)
    found = {row[0]: row for row in by_ids(db, STATES, sorted(wanted))}
    for predecessor in sorted(wanted):
        row = found.get(predecessor)
        if row is None or wanted[predecessor] != {row[1]}:
            # Read to the end: the error below would keep an open statement alive.
            schedules = list(schedule_states(db, [predecessor]))
            known = any(wanted[predecessor] == {namespace} for _, namespace, *_ in schedules)
            raise refused_predecessor(predecessor, schedule=known)
    update_by(db, _MARK_PARENTS, (), sorted(wanted))
    return {
        task_id: row[2] if Status(row[2]) in TERMINAL else None for task_id, row in found.items()
    }


def resolve(
    db: sqlite3.Connection, predecessors: Sequence[bytes], after: bytes | None, limit: int
) -> list[Waiting]:
    """See Edges.resolve. The page is of dependents, so that each is looked at once a page."""
    status = {row[0]: row[2] for row in by_ids(db, STATES, sorted(set(predecessors)))}
    page: set[bytes] = set()
    unmarked: list[tuple[int, bytes, bytes]] = []
    for predecessor in sorted(set(predecessors)):
        ended = Status(status.get(predecessor, Status.CREATED)) in TERMINAL
        for child, unknown in db.execute(_FIND_WAITING, (predecessor, after or b"", limit)):
            page.add(child)
            if unknown and ended:
                unmarked.append((status[predecessor], child, predecessor))
    chosen = sorted(page)[:limit]
    if not chosen:
        return []
    last = chosen[-1]
    db.executemany(_MARK, (edge for edge in unmarked if edge[1] <= last))
    return _counted(db, chosen)


def waiting(db: sqlite3.Connection, ids: Sequence[bytes]) -> list[Waiting]:
    """See Edges.waiting."""
    found = by_ids(db, STATES, sorted(set(ids)), column="status = 1 AND task_id")
    chosen = sorted(row[0] for row in found)
    update_by(db, _MARK_ALL, (), chosen)
    return _counted(db, chosen)


def _counted(db: sqlite3.Connection, ids: Sequence[bytes]) -> list[Waiting]:
    rows = {row[0]: row for row in by_ids(db, _CREATED, ids)}
    counts = (row for i in sorted(rows) for row in db.execute(_COUNTS, (i,)))
    return [Waiting(to_task(rows[row[0]]), *row[1:]) for row in counts]


def told(db: sqlite3.Connection, ids: Sequence[bytes]) -> None:
    """See Edges.told."""
    update_by(db, _TOLD, (), sorted(set(ids)))


def predecessors(db: sqlite3.Connection, ids: Sequence[bytes]) -> dict[bytes, list[Handed]]:
    """See Edges.predecessors."""
    found = {}
    for task_id in sorted(set(ids)):
        handed, size = [], 0
        for row in db.execute(_HANDED, (task_id,)):
            size += HANDED_OVERHEAD + len(row[3] or b"")
            if size > HANDED_BYTES:
                break
            handed.append(Handed(row[0], row[1], Status(row[2]), row[3]))
        if handed:
            found[task_id] = handed
    return found


def edges(db: sqlite3.Connection, downstream: Sequence[bytes]) -> list[Edge]:
    """See Edges.edges."""
    return _edges(by_ids(db, _EDGES, sorted(set(downstream)), column="downstream"))


def dependents(db: sqlite3.Connection, predecessors: Sequence[bytes], limit: int) -> list[Edge]:
    """See Edges.dependents."""
    found: list[Row] = []
    statement = f"{_EDGES} WHERE predecessor = ? ORDER BY downstream LIMIT ?"
    for predecessor in sorted(set(predecessors)):
        found += db.execute(statement, (predecessor, limit))
    return _edges(found)[:limit]


def _edges(rows: Iterator[Row] | Sequence[Row]) -> list[Edge]:
    return [
        Edge(row[0], row[1], None if row[2] is None else Status(row[2]))
        for row in sorted(rows, key=itemgetter(0, 1))
    ]
