"""What callers do to a schedule: pause, resume, end, trigger, backfill, update.

Each first settles the nominal times up to now under the state as it was (see recurrence.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from .calendar import parse
from .instances import Mint, Slot, make
from .recurrence import add, begin, finish, pause_at, settle, withdraw
from .schedule import Outcome, Overlap, Plan, Schedule, Source, View


def pause(view: View, mint: Mint, note: str) -> Plan:
    """Pause; a second pause replaces the note."""
    visit = begin(view, mint)
    settle(visit)
    if visit.schedule.paused_at is None:
        pause_at(visit, note)
    visit.schedule.pause_note = note or None
    visit.schedule.version += 1
    return finish(visit)


def resume(view: View, mint: Mint, note: str, from_at: int | None) -> Plan:
    """Go on; nominal times before `from_at` (by default now) still count as paused."""
    visit = begin(view, mint)
    settle(visit)
    schedule = visit.schedule
    if schedule.paused_at is not None:
        schedule.paused_at = None
        schedule.pause_note = note or None
        schedule.version += 1
        schedule.resume_from = from_at if from_at is not None and from_at > visit.now else None
    return finish(visit)


def end(view: View, mint: Mint, reason: str) -> Plan:
    """Cancel the schedule and its live instances; the answer is how many instances that were."""
    visit = begin(view, mint)
    settle(visit)
    schedule = visit.schedule
    instances = {task.graph_id or task.task_id for task in view.live if task.task_id in visit.live}
    if schedule.live:
        schedule.ended_at, schedule.end_reason = visit.now, reason or "cancelled"
        schedule.version += 1
        for row, _ in list(visit.open.values()):
            if row.nominal_at > visit.now:
                del visit.open[row.nominal_at, row.source, row.sequence]
                visit.plan.forget.append(row)
        for task in view.live:
            visit.cancel(task, reason or "its schedule was cancelled")
        for row, _ in list(visit.open.values()):
            visit.close(row, Outcome.CANCELLED, reason or "its schedule was cancelled")
        visit.plan.answer = len(instances)
    else:
        visit.plan.answer = 0
    return finish(visit)


def trigger(view: View, mint: Mint, overlap: Overlap | None) -> Plan:
    """An extra instance now, beside the series; the answer is its row."""
    visit = begin(view, mint)
    settle(visit)
    sequence = int.from_bytes(mint(1)[0][9:], "big")  # two of one millisecond differ
    slot = Slot(visit.now, visit.now, Source.TRIGGER, sequence)
    visit.plan.answer = add(visit, slot, overlap or Overlap.ALLOW_ALL)
    return finish(visit)


def backfill(view: View, mint: Mint, nominals: Iterable[int], gap_ms: int, group: bytes) -> Plan:
    """Instances for past nominal times, one every `gap_ms`, all under the id `group`."""
    visit = begin(view, mint)
    settle(visit)
    due_at, made = visit.now, 0
    for nominal in nominals:
        slot = Slot(nominal, due_at + made * gap_ms, Source.BACKFILL, visit.now, group)
        row, tasks = make(visit.schedule, slot, (), visit.now, mint)
        visit.plan.insert += tasks
        visit.plan.record.append(row)
        visit.open[row.nominal_at, row.source, row.sequence] = (row, None)
        made += 1
    visit.plan.answer = made
    return finish(visit)


def update(view: View, mint: Mint, changed: Schedule) -> Plan:
    """New calendar, policy or template; nominal times up to now belong to the old ones."""
    visit = begin(view, mint)
    settle(visit)
    withdraw(visit, "the schedule was changed")
    schedule = visit.schedule
    schedule.spec, schedule.policy = changed.spec, changed.policy
    schedule.template, schedule.labels = changed.template, changed.labels
    schedule.tz_version = changed.tz_version
    schedule.version += 1
    visit.calendar = parse(schedule.spec)
    return finish(visit)
