"""The calls of SchedulerService about schedules: arguments to requests, replies to values."""

from datetime import datetime
from typing import Unpack

from ._calls import Call
from ._convert import decode, encode, write_field
from ._payload import payload
from ._task_calls import new_key
from .enums import OverlapPolicy
from .schedules import (
    Backfill,
    BackfillOptions,
    CronSchedule,
    Preview,
    ScheduleChanges,
    ScheduleState,
    Triggered,
    Updated,
    cron_schedule,
)
from .v1 import schedule_requests_pb2


def pause(task_id: str, note: str) -> Call[ScheduleState]:
    """Stop a schedule from making instances."""
    request = schedule_requests_pb2.PauseRequest(task_id=task_id, note=note)
    return Call("SchedulerService/Pause", request, lambda r: decode(ScheduleState, r.schedule))


def resume(task_id: str, note: str, resume_from: datetime | None) -> Call[ScheduleState]:
    """Let a paused schedule go on."""
    request = schedule_requests_pb2.ResumeRequest(task_id=task_id, note=note)
    if resume_from is not None:
        write_field(request, "resume_from_time", resume_from)
    return Call("SchedulerService/Resume", request, lambda r: decode(ScheduleState, r.schedule))


def trigger(
    task_id: str, idempotency_key: str, overlap_policy: OverlapPolicy, *, dedupe: bool
) -> Call[Triggered]:
    """Make an instance now, or let a pending task run now."""
    key = idempotency_key or (new_key() if dedupe else "")
    request = schedule_requests_pb2.TriggerRequest(task_id=task_id, idempotency_key=key)
    write_field(request, "overlap_policy", overlap_policy)
    return Call("SchedulerService/Trigger", request, lambda r: decode(Triggered, r))


def backfill(
    task_id: str, start_time: datetime, end_time: datetime, **options: Unpack[BackfillOptions]
) -> Call[Backfill]:
    """Make the instances of a range of nominal times."""
    request = schedule_requests_pb2.BackfillRequest(task_id=task_id)
    write_field(request, "start_time", start_time)
    write_field(request, "end_time", end_time)
    for name, value in options.items():
        write_field(request, name, value)
    return Call("SchedulerService/Backfill", request, lambda r: decode(Backfill, r))


def update(
    task_id: str,
    changes: ScheduleChanges,
    *,
    etag: str,
    validate_only: bool,
    compare_count: int | None,
) -> Call[Updated]:
    """Change a schedule, or say what a change would do."""
    request = schedule_requests_pb2.UpdateRequest(
        task_id=task_id, etag=etag, validate_only=validate_only, compare_count=compare_count
    )
    submission = request.submission
    submission.SetInParent()
    for name, value in changes.items():
        if name == "cron":
            encode(cron_schedule(changes["cron"]), submission.schedule.cron)
            request.update_mask.paths.append("schedule.cron")
        elif name not in {"payload", "metadata"}:
            write_field(submission, name, value)
            request.update_mask.paths.append(name)
    if "payload" in changes or "metadata" in changes:
        body = payload(changes.get("payload"), changes.get("metadata"))
        if body is not None:
            submission.payload.CopyFrom(body)
        request.update_mask.paths.append("payload")
    return Call("SchedulerService/Update", request, lambda r: decode(Updated, r))


def preview(
    source: CronSchedule | str | None,
    task_id: str | None,
    from_time: datetime | None,
    *,
    count: int | None,
    include_load: bool,
) -> Call[Preview]:
    """Compute the next times of an expression or a schedule."""
    if (source is None) == (task_id is None):
        raise ValueError("a preview looks at one thing: pass one of cron, task_id")
    request = schedule_requests_pb2.PreviewRequest(count=count, include_load=include_load)
    if task_id is not None:
        request.task_id = task_id
    if source is not None:
        encode(cron_schedule(source), request.cron)
    if from_time is not None:
        write_field(request, "from_time", from_time)
    return Call("SchedulerService/Preview", request, lambda r: decode(Preview, r))
