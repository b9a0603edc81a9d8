"""Between proto messages and the domain's values: times, durations, names, texts, tasks.

Whatever comes in is checked here or in `submit.py`; whatever fails names the field. Times come in
as Timestamp and Duration and are rounded up to the millisecond, so that nothing is early.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from mainspring.v1 import task_pb2

from ..admission.limits import DEFAULT_LIMITS
from ..domain.errors import InvalidArgument, NotFound
from ..domain.task import (
    NO_PAYLOAD,
    NO_TIMEOUTS,
    Attempt,
    Payload,
    PayloadKind,
    Rule,
    Status,
    Task,
)
from ..domain.task import Timeouts as TaskTimeouts
from ..ids import text_of

NANOS_PER_MS = 1_000_000
MAX_NANOS = 999_999_999
MAX_DURATION_S = 315_576_000_000
"""What a Duration may hold: about ten thousand years, either way."""
MIN_TIMESTAMP_S = -62_135_596_800
MAX_TIMESTAMP_S = 253_402_300_799

NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""A task type or queue: `fullmatch` it."""

FIELD_INVALID = "FIELD_INVALID"


# --- Errors -----------------------------------------------------------------------------------


def invalid(
    field: str, message: str, reason: str = FIELD_INVALID, **metadata: str
) -> InvalidArgument:
    """An error in one field, which the message begins with."""
    return InvalidArgument(
        reason, f"{field} {message}", field=field, metadata={"field": field, **metadata}
    )


def required(field: str, message: str = "is required") -> InvalidArgument:
    """A field that is not set."""
    return invalid(field, message, "FIELD_REQUIRED")


def unknown_task(task_id: bytes) -> NotFound:
    """No task or schedule by this id in the caller's namespace."""
    text = text_of(task_id)
    return NotFound(
        "TASK_NOT_FOUND",
        f"no task {text}: check the id, and whether the task is past its retention",
        metadata={"task_id": text},
    )


# --- Texts ------------------------------------------------------------------------------------


def check_text(value: str, field: str, limit: int, required: bool = False) -> str:
    """The text, if it has at most `limit` characters, no NUL, and is there if it must be."""
    if required and not value:
        raise invalid(field, "is required", "FIELD_REQUIRED")
    if len(value) > limit:
        raise invalid(
            field,
            f"has {len(value)} characters, at most {limit} are allowed",
            limit=str(limit),
            actual=str(len(value)),
        )
    if "\0" in value:
        raise invalid(field, f"holds NUL (U+0000) at character {value.index(chr(0))}")
    return value


def check_name(value: str, field: str) -> str:
    """The name of a task type or queue."""
    if NAME.fullmatch(value):
        return value
    if not value:
        raise required(field)
    if len(value) > DEFAULT_LIMITS.name_chars:
        raise invalid(
            field,
            f"has {len(value)} characters, at most {DEFAULT_LIMITS.name_chars} are allowed",
            limit=str(DEFAULT_LIMITS.name_chars),
            actual=str(len(value)),
        )
    raise invalid(field, f"holds more than letters, digits, '.', '_' and '-': {value[:64]!r}")


def page_size(value: int, default: int, maximum: int, field: str = "page_size") -> int:
    """How many items a page has: 0 is the default, more than the maximum is the maximum."""
    if value < 0:
        raise invalid(field, f"must not be negative, it is {value}", actual=str(value))
    return min(value, maximum) if value else default


# --- Times ------------------------------------------------------------------------------------


def timestamp(ms: int) -> Timestamp:
    """A moment as a Timestamp."""
    seconds, rest = divmod(ms, 1_000)
    return Timestamp(seconds=seconds, nanos=rest * NANOS_PER_MS)


def timestamp_ms(message: Timestamp, field: str, reason: str = FIELD_INVALID) -> int:
    """A Timestamp in milliseconds, rounded up."""
    seconds, nanos = message.seconds, message.nanos
    if not (0 <= nanos <= MAX_NANOS and MIN_TIMESTAMP_S <= seconds <= MAX_TIMESTAMP_S):
        raise invalid(
            field,
            f"is no valid Timestamp: seconds must be {MIN_TIMESTAMP_S} to {MAX_TIMESTAMP_S} and "
            f"nanos 0 to {MAX_NANOS}, they are {seconds} and {nanos}",
            reason,
        )
    return seconds * 1_000 - (-nanos // NANOS_PER_MS)


def duration(ms: int) -> Duration:
    """A span as a Duration."""
    seconds, rest = divmod(abs(ms), 1_000)
    if ms < 0:
        return Duration(seconds=-seconds, nanos=-rest * NANOS_PER_MS)
    return Duration(seconds=seconds, nanos=rest * NANOS_PER_MS)


def duration_ms(
    message: Duration,
    field: str,
    *,
    minimum: int = 0,
    maximum: int = DEFAULT_LIMITS.delay_ms,
    reason: str = FIELD_INVALID,
) -> int:
    """A Duration in milliseconds, rounded up, within bounds (milliseconds, both included)."""
    seconds, nanos = message.seconds, message.nanos
    if abs(nanos) > MAX_NANOS or abs(seconds) > MAX_DURATION_S or seconds * nanos < 0:
        raise invalid(
            field,
            f"is no valid Duration: seconds and nanos must have one sign, at most "
            f"{MAX_DURATION_S} and {MAX_NANOS}, they are {seconds} and {nanos}",
            reason,
        )
    ms = seconds * 1_000 - (-nanos // NANOS_PER_MS)
    negative = seconds < 0 or nanos < 0
    if negative or not minimum <= ms <= maximum:
        given = f"{seconds + nanos / 1e9:.9g} s"
        raise invalid(
            field,
            f"must be {_span(minimum)} to {_span(maximum)}, it is {given}",
            reason,
            minimum_ms=str(minimum),
            limit_ms=str(maximum),
        )
    return ms


def _span(ms: int) -> str:
    """A bound in the unit that people read best."""
    if ms and ms % 86_400_000 == 0:
        return f"{ms // 86_400_000} d"
    return f"{ms // 1_000} s" if ms % 1_000 == 0 else f"{ms} ms"


# --- Tasks ------------------------------------------------------------------------------------


def payload_message(payload: Payload) -> task_pb2.Payload:
    """A payload as it was submitted."""
    return payload_from(payload.kind, payload.body, payload.metadata)


def payload_from(kind: int, body: bytes, metadata: str | None) -> task_pb2.Payload:
    """A payload from its stored parts; `metadata` is a JSON object or None."""
    message = task_pb2.Payload(metadata=json.loads(metadata) if metadata else None)
    if kind == PayloadKind.JSON:
        message.json = body.decode()
    elif kind == PayloadKind.DATA:
        message.data = body
    return message


def retry_message(task: Task) -> task_pb2.RetryPolicy:
    """The retry policy with its defaults filled in."""
    return task_pb2.RetryPolicy(
        max_attempts=task.retry.max_attempts,
        initial_delay=duration(task.retry.initial_delay_ms),
        multiplier=task.retry.multiplier,
        max_delay=duration(task.retry.max_delay_ms),
    )


def timeouts_message(limits: TaskTimeouts) -> task_pb2.Timeouts:
    """The time limits that are set."""
    return task_pb2.Timeouts(
        queue_timeout=None if limits.queue_ms is None else duration(limits.queue_ms),
        run_timeout=None if limits.run_ms is None else duration(limits.run_ms),
        total_timeout=None if limits.total_ms is None else duration(limits.total_ms),
    )


def task_message(
    task: Task,
    view: task_pb2.TaskView.ValueType = task_pb2.TASK_VIEW_BASIC,
    predecessors: Sequence[bytes] = (),
) -> task_pb2.Task:
    """A task as reads answer it; FULL needs a row that was loaded with its payload, and the ids of
    its predecessors.
    """
    message = task_pb2.Task(
        task_id=text_of(task.task_id),
        task_type=task.task_type,
        queue=task.queue,
        status=task_pb2.TaskStatus.ValueType(task.status),
        version=task.version,
        retry_of=text_of(task.retry_of) if task.retry_of else "",
        priority=task.priority,
        create_time=timestamp(task.created_at),
        attempts=task.attempts,
        max_attempts=task.retry.max_attempts,
        last_error=task.error_message or "",
        labels=json.loads(task.labels) if task.labels else None,
        schedule_id=text_of(task.schedule_id) if task.schedule_id else "",
        worker_id=task.worker_id or "",
        outcome=task.outcome or b"",
        status_reason=task.status_reason or "",
        namespace=task.namespace,
        graph_id=text_of(task.graph_id) if task.graph_id else "",
        local_ref=task.local_ref or "",
    )
    _add_times(message, task)
    if task.progress is not None or task.progress_message:
        message.progress.message = task.progress_message or ""
        if task.progress is not None:
            message.progress.fraction = task.progress
    if view == task_pb2.TASK_VIEW_FULL:
        if task.payload is not None and task.payload != NO_PAYLOAD:
            message.payload.CopyFrom(payload_message(task.payload))
        message.retry.CopyFrom(retry_message(task))
        if task.timeouts != NO_TIMEOUTS:
            message.timeouts.CopyFrom(timeouts_message(task.timeouts))
        if task.rule is not None:
            message.dependencies.CopyFrom(_dependencies(task, task.rule, predecessors))
    return message


def _dependencies(task: Task, rule: Rule, predecessors: Sequence[bytes]) -> task_pb2.Dependencies:
    return task_pb2.Dependencies(
        task_ids=map(text_of, predecessors),
        rule=task_pb2.DependencyRule.ValueType(rule.shown),
        delay=duration(task.delay_after_ms) if task.delay_after_ms else None,
    )


def _add_times(message: task_pb2.Task, task: Task) -> None:
    if task.status is not Status.CREATED:
        message.due_time.CopyFrom(timestamp(task.due_at))
    if task.started_at is not None:
        message.start_time.CopyFrom(timestamp(task.started_at))
    if task.completed_at is not None:
        message.complete_time.CopyFrom(timestamp(task.completed_at))
    if task.nominal_at is not None:
        message.nominal_time.CopyFrom(timestamp(task.nominal_at))
    if task.status is Status.RUNNING and task.lease_expires_at is not None:
        message.lease_expiry_time.CopyFrom(timestamp(task.lease_expires_at))


def check_view(view: int, field: str = "view") -> task_pb2.TaskView.ValueType:
    """The view asked for; unspecified is BASIC."""
    if view not in task_pb2.TaskView.values():
        raise invalid(field, f"has no value {view}", actual=str(view))
    if view == task_pb2.TASK_VIEW_UNSPECIFIED:
        return task_pb2.TASK_VIEW_BASIC
    return task_pb2.TaskView.ValueType(view)


def attempt_message(attempt: Attempt) -> task_pb2.Attempt:
    """One attempt as History shows it."""
    message = task_pb2.Attempt(
        attempt=attempt.attempt,
        outcome=task_pb2.AttemptOutcome.ValueType(attempt.outcome),
        worker_id=attempt.worker_id,
        lease_token=attempt.token,
        start_time=timestamp(attempt.started_at),
        error_message=attempt.error_message or "",
        error_type=attempt.error_type or "",
    )
    if attempt.ended_at is not None:
        message.end_time.CopyFrom(timestamp(attempt.ended_at))
    return message
