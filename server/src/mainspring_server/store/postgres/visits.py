"""A visit: lock the schedules, look, decide, write; one transaction for a batch.

Nobody who holds a lock on a task waits for a schedule's, so the schedules come first. Their tasks
are read without a lock, since most are not written; those that a plan changes or makes predecessors
of are then locked in id order and compared. Where one moved meanwhile nothing is written yet, and
all is looked at and decided again, still under the schedules' locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from ...domain.errors import Unavailable
from ...domain.schedule import Plan, Schedule, View
from ...domain.task import NewTask, Written
from ..schedules import Decide, KeyTaken, Visited
from ..visiting import changes_definition, join_instances, split_instances, view_of
from . import edges, ledger, queries, transitions
from .insert import inserted
from .pool import Door, Session
from .rows import task_of
from .schedules import DEFINE, LOCK, UPDATE, document_of, state_columns, to_schedule

LOCK_TASKS = """SELECT t.task_id, t.version FROM unnest($1::uuid[]) AS u(task_id)
JOIN tasks t ON t.task_id = u.task_id FOR NO KEY UPDATE OF t"""

ROUNDS = 5
"""How often a visit looks again because a task moved; then the caller tries later."""

TURN = 50
"""Decisions after which the loop gets its turn."""


class _Locked(NamedTuple):
    """A schedule under its lock, with the ids of the tasks that were live."""

    schedule: Schedule
    instances: bytes


_Decided = list[tuple[View, Plan]]


async def visit(
    door: Door, clock: int | None, ids: Sequence[bytes], decide: Decide
) -> list[Visited | None]:
    """The store's `visit`."""
    wanted = sorted(set(ids))

    async def work(session: Session) -> list[Visited]:
        rows = await session.rows(LOCK, clock, wanted)
        if not rows:
            return []
        now = max(row[-1] for row in rows)
        locked = [_Locked(to_schedule(row), row[1]) for row in rows]
        for _ in range(ROUNDS):
            plans = await _decided(await _views(session, now, locked), decide)
            if await _unmoved(session, plans):
                return await _write(session, clock, now, plans)
        raise Unavailable(
            "STORE_UNAVAILABLE", "the tasks of these schedules are changing too fast; try again"
        )

    found = {v.before.schedule.schedule_id: v for v in await door.run(work)} if wanted else {}
    return [found.get(schedule_id) for schedule_id in ids]


async def _views(session: Session, now: int, locked: Sequence[_Locked]) -> list[View]:
    opened = await ledger.open_rows(session, [one.schedule.schedule_id for one in locked])
    wanted = {task_id for one in locked for task_id in split_instances(one.instances)}
    wanted |= {row.task_id for found in opened.values() for row in found if row.task_id}
    rows = await session.rows(queries.LOAD, sorted(wanted)) if wanted else []
    tasks = {row[0]: task_of(row) for row in rows}
    return [
        view_of(one.schedule, now, one.instances, opened[one.schedule.schedule_id], tasks)
        for one in locked
    ]


async def _decided(views: Sequence[View], decide: Decide) -> _Decided:
    plans: _Decided = []
    for number, view in enumerate(views, 1):
        plans.append((view, decide(view)))
        if number % TURN == 0:
            await asyncio.sleep(0)
    return plans


async def _unmoved(session: Session, plans: _Decided) -> bool:
    """Lock what the plans change and build on; False if a task is not at the version seen."""
    versions = {c.task_id: c.version for _, plan in plans for c in plan.changes}
    if not versions:
        return True  # predecessors alone are locked, in order, where their edges are stored
    new = {task.task_id for _, plan in plans for task in plan.insert}
    predecessors = {
        task_id
        for _, plan in plans
        for task in plan.insert
        if task.waits
        for task_id in task.waits.predecessors
    }
    rows = await session.rows(LOCK_TASKS, sorted(versions.keys() | (predecessors - new)))
    found = {row[0]: row[1] for row in rows}
    return all(found.get(task_id) == version for task_id, version in versions.items())


async def _write(session: Session, clock: int | None, now: int, plans: _Decided) -> list[Visited]:
    tasks: list[NewTask] = [task for _, plan in plans for task in plan.insert]
    keyed = [task for task in tasks if task.idempotency]
    known = await edges.take_keys(session, clock, keyed) if keyed else None
    if known:
        raise KeyTaken(known[0].task_id)
    unsettled = set((await edges.store_graph(session, now, tasks))[1]) if tasks else set()
    changes = [change for _, plan in plans for change in plan.changes]
    applied = await transitions.apply(session, now, changes)
    written: dict[bytes, Written] = {
        change.task_id: state for change, state in zip(changes, applied, strict=True)
    }
    await ledger.write(session, [plan for _, plan in plans])
    await _write_schedules(session, plans)
    return [
        Visited(
            plan,
            view,
            [written[change.task_id] for change in plan.changes],
            [inserted(task, now) for task in plan.insert],
            [task.task_id for task in plan.insert if task.task_id in unsettled],
        )
        for view, plan in plans
    ]


async def _write_schedules(session: Session, plans: _Decided) -> None:
    visited = [(view, plan, plan.schedule) for view, plan in plans if plan.schedule is not None]
    if not visited:
        return
    await session.rows(
        UPDATE,
        [view.schedule.schedule_id for view, _, _ in visited],
        [join_instances(view, plan) for view, plan, _ in visited],
        *state_columns([after for _, _, after in visited]),
    )
    changed = [after for view, _, after in visited if changes_definition(view.schedule, after)]
    if changed:
        await session.rows(
            DEFINE,
            [schedule.schedule_id for schedule in changed],
            [document_of(schedule) for schedule in changed],
        )
