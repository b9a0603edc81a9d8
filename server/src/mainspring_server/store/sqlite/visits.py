"""A visit is one call of the writer: nothing can come between the look and the writes."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ...domain.lifecycle import Change
from ...domain.schedule import LedgerRow, Plan, View
from ...domain.task import Inserted, InsertState, NewTask, Task, Written
from ..schedules import Decide, KeyTaken, Visited
from ..visiting import changes_definition, join_instances, split_instances, view_of
from . import edges, ledger, transitions
from .insert import take_keys
from .rows import TASK_COLUMNS, Row, by_ids, to_task
from .schedules import DEFINE, SELECT, UPDATE, document_of, state_of, to_schedule


def visit(
    db: sqlite3.Connection, now: int, ids: Sequence[bytes], decide: Decide
) -> list[Visited | None]:
    """See ScheduleStore.visit. Within one transaction of the only writer no change is stale."""
    plans = [(view, decide(view)) for view in _views(db, now, sorted(set(ids)))]
    tasks = [task for _, plan in plans for task in plan.insert]
    keyed = [task for task in tasks if task.idempotency]
    known = edges.existing_tasks(db, now, keyed) if keyed else None
    if known:
        raise KeyTaken(known[0].task_id)
    unsettled = set(edges.store_graph(db, now, tasks))
    take_keys(db, keyed)
    changes = [change for _, plan in plans for change in plan.changes]
    written = dict(zip(map(_id_of, changes), transitions.apply(db, now, changes), strict=True))
    ledger.write(db, [plan for _, plan in plans])
    _write_schedules(db, plans)
    visited = {
        view.schedule.schedule_id: _visited(view, plan, written, unsettled) for view, plan in plans
    }
    return [visited.get(schedule_id) for schedule_id in ids]


def _id_of(change: Change) -> bytes:
    return change.task_id


def _views(db: sqlite3.Connection, now: int, ids: Sequence[bytes]) -> list[View]:
    rows = sorted(by_ids(db, SELECT, ids, column="schedule_id"))
    opened: dict[bytes, list[LedgerRow]] = defaultdict(list)
    for opened_row in ledger.open_rows(db, ids):
        opened[opened_row.schedule_id].append(opened_row)
    wanted = {task_id for row in rows for task_id in split_instances(row[1])}
    wanted |= {row.task_id for found in opened.values() for row in found if row.task_id}
    tasks: dict[bytes, Task] = {
        row[0]: to_task(row)
        for row in by_ids(db, f"SELECT {TASK_COLUMNS} FROM tasks", sorted(wanted))
    }
    return [view_of(to_schedule(row), now, row[1], opened[row[0]], tasks) for row in rows]


def _write_schedules(db: sqlite3.Connection, plans: Sequence[tuple[View, Plan]]) -> None:
    states: list[Row] = []
    documents: list[Row] = []
    for view, plan in plans:
        before, after = view.schedule, plan.schedule
        if after is None:
            continue
        states.append((*state_of(after), join_instances(view, plan), before.schedule_id))
        if changes_definition(before, after):
            documents.append((document_of(after), before.schedule_id))
    db.executemany(UPDATE, states)
    db.executemany(DEFINE, documents)


def _visited(
    view: View, plan: Plan, written: Mapping[bytes, Written], unsettled: set[bytes]
) -> Visited:
    return Visited(
        plan,
        view,
        [written[change.task_id] for change in plan.changes],
        [_inserted(task) for task in plan.insert],
        [task.task_id for task in plan.insert if task.task_id in unsettled],
    )


def _inserted(task: NewTask) -> Inserted:
    return Inserted(InsertState.INSERTED, task.task_id, task.status, task.due_at)
