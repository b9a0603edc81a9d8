"""Schedules as the API shows them: ScheduleState, the Task that a schedule reads as, Instance."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.v1 import schedule_pb2, task_pb2

from ..domain.calendar import Calendar, parse
from ..domain.schedule import LedgerRow, Outcome, Schedule, Source, View
from ..domain.task import Status, Task
from ..ids import text_of
from .convert import task_message, timestamp
from .schedule_convert import filled_message

LAST_RUN = "it has made its last run"
"""How recurrence.py words the end of a schedule that nobody cancelled."""

MOST_LIVE = 100


def schedule_status(schedule: Schedule) -> Status:
    """The status that a schedule reads as: PENDING while it makes instances."""
    if schedule.live:
        return Status.PENDING
    return Status.SUCCEEDED if schedule.end_reason == LAST_RUN else Status.CANCELLED


def next_nominal(schedule: Schedule, calendar: Calendar, now: int) -> int | None:
    """The nominal time of the next instance, made already or not."""
    if not schedule.live or schedule.paused_at is not None:
        return None
    if schedule.next_nominal_at is not None:
        return schedule.next_nominal_at
    if calendar.runs_left(schedule.runs) == 0:
        return None
    after = now if schedule.resume_from is None else max(now, schedule.resume_from - 1)
    return calendar.next_after(after)


def next_due(schedule: Schedule, calendar: Calendar, now: int) -> int | None:
    """When the next instance is due."""
    nominal_at = next_nominal(schedule, calendar, now)
    return None if nominal_at is None else calendar.due_at(nominal_at)


def state_message(
    view: View, counts: Mapping[Outcome, int] | None = None
) -> schedule_pb2.ScheduleState:
    """A schedule as it stands."""
    schedule = view.schedule
    calendar = parse(schedule.spec)
    message = schedule_pb2.ScheduleState(
        cron=filled_message(schedule.spec, schedule.policy, calendar, schedule.created_at),
        etag=etag_of(schedule),
        paused=schedule.paused_at is not None,
        pause_note=schedule.pause_note or "",
        tzdata_version=schedule.tz_version,
    )
    if schedule.paused_at is not None:
        message.pause_time.CopyFrom(timestamp(schedule.paused_at))
    nominal_at = next_nominal(schedule, calendar, view.now)
    if nominal_at is not None:
        message.next_nominal_time.CopyFrom(timestamp(nominal_at))
        for row, _ in view.open:
            if row.source is Source.CRON and row.nominal_at == nominal_at and row.task_id:
                message.next_task_id = text_of(row.task_id)
    live = [task for task in view.live if task.due_at <= view.now]
    live.sort(key=lambda task: (task.nominal_at or 0, task.task_id))
    message.live_task_ids.extend(text_of(task.task_id) for task in live[:MOST_LIVE])
    for outcome, count in sorted((counts or {}).items()):
        if outcome is not Outcome.OPEN:
            message.counts.add(outcome=schedule_pb2.InstanceOutcome.ValueType(outcome), count=count)
    return message


def etag_of(schedule: Schedule) -> str:
    """Changes with each change by a caller, not with the schedule's own instances."""
    return f"v{schedule.version}"


def task_of(schedule: Schedule, now: int) -> Task:
    """The task that a schedule reads as."""
    first = schedule.template[0]
    calendar = parse(schedule.spec)
    due_at = next_due(schedule, calendar, now)
    return Task(
        task_id=schedule.schedule_id,
        namespace=schedule.namespace,
        task_type=first.task_type,
        queue=first.queue,
        priority=first.priority,
        status=schedule_status(schedule),
        version=schedule.version,
        due_at=schedule.settled_at if due_at is None else due_at,
        created_at=schedule.created_at,
        retry=first.retry,
        timeouts=first.timeouts,
        completed_at=schedule.ended_at,
        status_reason=schedule.end_reason,
        labels=schedule.labels,
        schedule_id=schedule.schedule_id,
        payload=first.payload,
    )


def schedule_task_message(
    schedule: Schedule, now: int, view: task_pb2.TaskView.ValueType
) -> task_pb2.Task:
    """A schedule, read as a task; its due time is that of its next instance."""
    message = task_message(task_of(schedule, now), view)
    if next_due(schedule, parse(schedule.spec), now) is None:
        message.ClearField("due_time")
    return message


def instance_message(row: LedgerRow, task: Task | None) -> schedule_pb2.Instance:
    """One nominal time and what came of it."""
    message = schedule_pb2.Instance(
        nominal_time=timestamp(row.nominal_at),
        due_time=timestamp(row.due_at),
        outcome=schedule_pb2.InstanceOutcome.ValueType(row.outcome),
        task_id=text_of(row.task_id) if row.task_id else "",
        source=schedule_pb2.InstanceSource.ValueType(row.source),
        reason=row.reason or "",
    )
    if row.outcome_at is not None:
        message.outcome_time.CopyFrom(timestamp(row.outcome_at))
    if task is not None:
        message.task_status = task_pb2.TaskStatus.ValueType(task.status)
    return message
