"""How the API's messages read to people: one place for words, times and order of columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mainspring.v1 import query_requests_pb2, rung_pb2, schedule_pb2, task_pb2

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

    from mainspring.v1.query_requests_pb2 import ExplainResponse
    from mainspring.v1.schedule_pb2 import Instance, ScheduleState
    from mainspring.v1.task_pb2 import Attempt, Payload, Task, Transition
    from mainspring.v1.task_requests_pb2 import GraphState

TERMINAL = frozenset(
    {
        task_pb2.TASK_STATUS_SUCCEEDED,
        task_pb2.TASK_STATUS_FAILED,
        task_pb2.TASK_STATUS_CANCELLED,
    }
)
TASK_COLUMNS = ("Task", "Type", "Queue", "Status", "Priority", "Attempts", "Created", "Due")
ATTEMPT_COLUMNS = ("Attempt", "Outcome", "Worker", "Started", "Took", "Next due", "Error")
INSTANCE_COLUMNS = ("Nominal time", "Outcome", "Task", "Status", "Due", "Source", "Reason")
GATE_COLUMNS = ("Gate", "State", "Since", "What was found", "What opens it")


def status_name(status: int) -> str:
    """SUCCEEDED for TASK_STATUS_SUCCEEDED; a number that this version does not know stays one."""
    return _short(task_pb2.TaskStatus, status, "TASK_STATUS_")


def rung_name(rung: int, *, queue: bool = False) -> str:
    """store, wheel or broker."""
    enum = rung_pb2.QueueRung if queue else rung_pb2.TriggerRung
    return _short(enum, rung, "QUEUE_RUNG_" if queue else "TRIGGER_RUNG_").lower()


def _short(enum: object, value: int, prefix: str) -> str:
    try:
        name: str = enum.Name(value)  # type: ignore[attr-defined]
    except ValueError:
        return str(value)
    return name.removeprefix(prefix)


def instant(when: Timestamp) -> str:
    """RFC 3339 in UTC, to the millisecond; nothing for a time that is not set."""
    if not when.seconds and not when.nanos:
        return ""
    return f"{when.ToJsonString()[:19]}.{when.nanos // 1_000_000:03d}Z"


def relative(when: Timestamp, now: datetime) -> str:
    """The time with its distance from now: "… (in 3m 20s)", "… (12s ago)"."""
    if not instant(when):
        return ""
    distance = when.seconds + when.nanos / 1e9 - now.timestamp()
    words = length(abs(distance))
    return f"{instant(when)} ({f'in {words}' if distance > 0 else f'{words} ago'})"


def length(seconds: float) -> str:
    """A length of time in its two largest units: 340ms, 12.5s, 3m 20s, 2d 4h."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + "s"
    whole = round(seconds)
    for unit, size, smaller, part in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit} {rest}{smaller}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def duration(value: Duration) -> str:
    """A Duration as `length` writes it; nothing for zero."""
    seconds = value.seconds + value.nanos / 1e9
    return length(seconds) if seconds else ""


def task_row(task: Task) -> list[str]:
    """A task in a list, by TASK_COLUMNS."""
    return [
        task.task_id,
        task.task_type,
        task.queue,
        status_name(task.status),
        str(task.priority),
        f"{task.attempts}/{task.max_attempts}",
        instant(task.create_time),
        instant(task.due_time),
    ]


def task_fields(task: Task, now: datetime | None = None) -> dict[str, str]:
    """All of one task, for `get`."""
    now = now or datetime.now(UTC)
    return {
        "task": task.task_id,
        "type": task.task_type,
        "queue": task.queue,
        "status": status_name(task.status),
        "reason": task.status_reason,
        "priority": str(task.priority),
        "attempts": f"{task.attempts} of {task.max_attempts}",
        "created": relative(task.create_time, now),
        "due": relative(task.due_time, now),
        "started": relative(task.start_time, now),
        "completed": relative(task.complete_time, now),
        "worker": task.worker_id,
        "lease until": relative(task.lease_expiry_time, now),
        "progress": _progress(task),
        "last error": task.last_error,
        "outcome": readable(task.outcome),
        "labels": "\n".join(f"{key}={value}" for key, value in sorted(task.labels.items())),
        "retry of": task.retry_of,
        "schedule": task.schedule_id,
        "nominal time": instant(task.nominal_time),
        "graph": task.graph_id,
        "version": str(task.version),
        "payload": payload_text(task.payload) if task.HasField("payload") else "",
    }


def _progress(task: Task) -> str:
    if not task.HasField("progress"):
        return ""
    parts = []
    if task.progress.HasField("fraction"):
        parts.append(f"{task.progress.fraction:.0%}")
    if task.progress.message:
        parts.append(task.progress.message)
    return " ".join(parts)


def payload_text(payload: Payload) -> str:
    """A payload's JSON, or what its bytes look like."""
    if payload.WhichOneof("body") == "json":
        return _pretty(payload.json)
    return readable(payload.data)


def readable(content: bytes) -> str:
    """Bytes as JSON or text where they are that, else their number and beginning in hexadecimal."""
    try:
        return _pretty(content.decode())
    except UnicodeDecodeError:
        shown = content[:32].hex(" ")
        return f"{len(content)} bytes: {shown}{' …' if len(content) > 32 else ''}"


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def attempt_row(attempt: Attempt) -> list[str]:
    """An attempt in a history, by ATTEMPT_COLUMNS."""
    took = ""
    if attempt.HasField("end_time") and attempt.HasField("start_time"):
        took = length(
            (attempt.end_time.ToMilliseconds() - attempt.start_time.ToMilliseconds()) / 1_000
        )
    error = attempt.error_message.strip()
    if attempt.error_type and not error.startswith(attempt.error_type):
        error = f"{attempt.error_type}: {error}"
    return [
        str(attempt.attempt),
        _short(task_pb2.AttemptOutcome, attempt.outcome, "ATTEMPT_OUTCOME_"),
        attempt.worker_id,
        instant(attempt.start_time),
        took,
        instant(attempt.next_due_time),
        error,
    ]


def transition_text(transition: Transition) -> str:
    """A transition as one line of `watch`, without its status."""
    parts = [f"v{transition.version}"]
    if transition.attempts:
        parts.append(f"attempt {transition.attempts}")
    if transition.worker_id:
        parts.append(f"on {transition.worker_id}")
    if transition.status_reason:
        parts.append(f"({transition.status_reason})")
    return ", ".join(parts)


def gate_rows(reply: ExplainResponse) -> list[list[str]]:
    """The gates of an explanation, by GATE_COLUMNS."""
    rows = []
    for gate in reply.gates:
        opens = gate.unblock
        if gate.HasField("expected_delay"):
            opens = f"{opens} (expected in {duration(gate.expected_delay) or '0s'})".strip()
        rows.append(
            [
                _short(query_requests_pb2.GateName, gate.name, "GATE_NAME_").lower(),
                _short(query_requests_pb2.GateState, gate.state, "GATE_STATE_"),
                instant(gate.since_time),
                gate.detail,
                opens,
            ]
        )
    return rows


def instance_row(instance: Instance) -> list[str]:
    """A nominal time of a schedule, by INSTANCE_COLUMNS."""
    return [
        instant(instance.nominal_time),
        _short(schedule_pb2.InstanceOutcome, instance.outcome, "INSTANCE_OUTCOME_"),
        instance.task_id,
        status_name(instance.task_status) if instance.task_status else "",
        instant(instance.due_time),
        _short(schedule_pb2.InstanceSource, instance.source, "INSTANCE_SOURCE_").lower(),
        instance.reason,
    ]


def schedule_fields(state: ScheduleState) -> dict[str, str]:
    """What a schedule adds to its task, for `get`."""
    counts = (
        f"{_short(schedule_pb2.InstanceOutcome, item.outcome, 'INSTANCE_OUTCOME_')} {item.count}"
        for item in state.counts
    )
    return {
        "cron": f"{state.cron.expression} ({state.cron.time_zone or 'UTC'})",
        "paused": (f"yes, {state.pause_note}" if state.pause_note else "yes")
        if state.paused
        else "",
        "next": instant(state.next_nominal_time),
        "next task": state.next_task_id,
        "live tasks": "\n".join(state.live_task_ids),
        "so far": ", ".join(counts),
    }


def graph_fields(graph: GraphState) -> dict[str, str]:
    """How many tasks of a graph are in each state."""
    fields = {"graph": graph.graph_id, "tasks": str(graph.tasks)}
    return fields | {status_name(row.status): str(row.count) for row in graph.counts}


def full_fields(task: Task) -> dict[str, str]:
    """What the full view adds to a task, for `get --full`."""
    fields = {}
    if task.HasField("retry"):
        policy = task.retry
        fields["retry"] = (
            f"{policy.max_attempts} attempts, delay up to {duration(policy.initial_delay) or '0s'} "
            f"x {policy.multiplier:g} each time, at most {duration(policy.max_delay) or '0s'}"
        )
    limits = {
        name: duration(getattr(task.timeouts, f"{name}_timeout"))
        for name in ("queue", "run", "total")
    }
    fields["timeouts"] = ", ".join(f"{name} {value}" for name, value in limits.items() if value)
    fields["after"] = "\n".join(task.dependencies.task_ids)
    return fields
