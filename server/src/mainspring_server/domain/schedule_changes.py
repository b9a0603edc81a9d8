"""What callers do to a schedule: pause, resume, end, trigger, backfill, update.

Each first settles the nominal times up to now under the state as it was (see recurrence.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .calendar import parse, tzdata_version
from .instances import Mint, Slot, make
from .recurrence import WAITING, Visit, add, before, begin, finish, pause_at, settle, withdraw
from .schedule import Outcome, Overlap, Plan, Schedule, Source, View
from .task import Status


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
    """Go on; nominal times before `from_at` (by default now) still count as paused.

    Those from it on count as if there had been no pause, unless they have their outcome already. On
    a schedule that is not paused only the note changes.
    """
    visit = begin(view, mint)
    schedule = visit.schedule
    paused = schedule.paused_at is not None
    if paused and from_at is not None and from_at <= visit.now:
        schedule.paused_at, schedule.resume_from = None, from_at
    settle(visit)
    if paused:
        schedule.paused_at = None
        schedule.resume_from = from_at if from_at is not None and from_at > visit.now else None
    schedule.pause_note = note or None
    schedule.version += 1
    return finish(visit)


def end(view: View, mint: Mint, reason: str) -> Plan:
    """Cancel the schedule and its live instances; the answer is how many instances that were."""
    visit = begin(view, mint)
    settle(visit)
    schedule = visit.schedule
    live = [task for task in view.live if task.task_id in visit.live]
    instances = {(task.graph_id or task.task_id, task.nominal_at) for task in live}
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
    if visit.plan.insert:
        _queue_behind(visit)
    return finish(visit)


def backfill(
    view: View,
    mint: Mint,
    nominals: Iterable[int],
    gap_ms: int,
    group: bytes,
    overlap: Overlap | None = None,
) -> Plan:
    """Instances for past nominal times, one every `gap_ms`, all under the id `group`.

    Under the policies that wait they run one after the other, and none is skipped for that.
    """
    visit = begin(view, mint)
    settle(visit)
    waits = (overlap or visit.schedule.policy.overlap) in WAITING
    patient = replace(
        visit.schedule, policy=replace(visit.schedule.policy, overlap=Overlap.BUFFER_ALL)
    )
    older = before(visit, visit.now) if waits else []
    due_at, made = visit.now, 0
    for nominal in nominals:
        slot = Slot(nominal, due_at + made * gap_ms, Source.BACKFILL, visit.now, group)
        row, tasks = make(patient, slot, older, visit.now, mint)
        visit.plan.insert += tasks
        visit.plan.record.append(row)
        visit.open[row.nominal_at, row.source, row.sequence] = (row, None)
        visit.live.update((task.task_id, None) for task in tasks)
        older = [task.task_id for task in tasks] if waits else []
        made += 1
    visit.plan.answer = made
    if made:
        _queue_behind(visit)
    return finish(visit)


def stop_backfill(view: View, mint: Mint, group: bytes, reason: str) -> Plan:
    """Cancel the instances of a backfill that no worker had; the answer is how many those were."""
    visit = begin(view, mint)
    settle(visit)
    waiting = [
        task
        for task in view.live
        if task.graph_id == group
        and task.status in (Status.CREATED, Status.PENDING)
        and not task.attempts
        and task.task_id in visit.live
    ]
    for task in waiting:
        visit.cancel(task, reason)
    stopped = {task.nominal_at for task in waiting}
    for row, first in list(visit.open.values()):
        if first is not None and first.graph_id == group and row.nominal_at in stopped:
            visit.close(row, Outcome.CANCELLED, reason)
    visit.plan.answer = len(stopped)
    return finish(visit)


def _queue_behind(visit: Visit) -> None:
    """Make the next instance anew where it has to wait for what was inserted just now."""
    if visit.schedule.policy.overlap in WAITING:
        withdraw(visit, "made anew, behind an instance that was asked for")


def rezone(view: View, mint: Mint) -> Plan:
    """Go by the tz database of this process; the answer is the next time before and after, if it moved.

    The instance that is not yet due was made with the database that the schedule names. Where the
    zone's rules have changed it is made anew, for the time that is right now.
    """
    visit = begin(view, mint)
    settle(visit)
    schedule, before = visit.schedule, visit.schedule.next_nominal_at
    schedule.tz_version = tzdata_version()
    if before is not None and before > visit.now and schedule.live:
        after = visit.calendar.next_after(max(visit.now, (schedule.resume_from or 0) - 1))
        if after != before:
            withdraw(visit, "the clock changes of its zone are others now")
            visit.plan.answer = before, after
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
