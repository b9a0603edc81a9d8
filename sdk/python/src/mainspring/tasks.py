"""What the server tells about tasks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from .enums import AttemptOutcome, GateName, GateState, QueueRung, TaskStatus, TriggerRung
from .submission import Dependencies, RetryPolicy, Timeouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What a handler gets; one of `json` and `data`, or neither."""

    json: str | None = None
    """JSON text."""
    data: bytes | None = None
    """Bytes."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """About the content."""

    def value(self) -> Any:
        """The content: JSON parsed, bytes as they are, None if it is empty."""
        return self.data if self.json is None else json.loads(self.json)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """What a running attempt said about itself."""

    fraction: float | None = None
    """Part done, 0 to 1."""
    message: str = ""
    """For people."""
    update_time: datetime | None = None
    """When the server stored it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task as the server sees it; a schedule reads as one too, PENDING while active."""

    task_id: str
    """Lower-case UUIDv7."""
    task_type: str
    """What kind of work."""
    status: TaskStatus
    """Where it stands."""
    queue: str = ""
    """The queue it waits in."""
    version: int = 0
    """Grows by one with each transition; while RUNNING it is the lease token."""
    retry_of: str = ""
    """The task that this one is a copy of."""
    priority: int = 0
    """0 to 9, lower is sooner."""
    due_time: datetime | None = None
    """When it is due; between attempts the time of the next one."""
    create_time: datetime | None = None
    """When it was stored."""
    start_time: datetime | None = None
    """When the current or last attempt was leased."""
    complete_time: datetime | None = None
    """When it became terminal."""
    attempts: int = 0
    """Attempts counted so far."""
    max_attempts: int = 0
    """Attempts that it may use."""
    last_error: str = ""
    """Message of the last attempt that did not succeed."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels from the submission."""
    schedule_id: str = ""
    """The schedule that it is an instance of; for a schedule its own id."""
    nominal_time: datetime | None = None
    """For an instance, the time that the expression names."""
    worker_id: str = ""
    """The worker that holds the lease, or held the last one."""
    lease_expiry_time: datetime | None = None
    """When the lease ends unless it is extended; only while RUNNING."""
    progress: TaskProgress | None = None
    """What the current or last attempt reported."""
    outcome: bytes = b""
    """What the worker returned with success; see `result`."""
    status_reason: str = ""
    """Why it has this status, when something other than a worker's plain result decided."""
    namespace: str = ""
    """The caller's namespace."""
    graph_id: str = ""
    """The graph that it belongs to."""
    local_ref: str = ""
    """Its name inside the graph."""
    payload: Payload | None = None
    """What the handler gets. Only in `TaskView.FULL`."""
    retry: RetryPolicy | None = None
    """How it is retried, defaults filled in. Only in `TaskView.FULL`."""
    timeouts: Timeouts | None = None
    """Its time limits. Only in `TaskView.FULL`."""
    dependencies: Dependencies | None = None
    """Its predecessors. Only in `TaskView.FULL`."""

    def result(self) -> Any:
        """What the handler returned, for workers that answer JSON as this SDK's do; None if nothing.

        Raises:
            ValueError: The outcome is not JSON; read `outcome` instead.
        """
        return json.loads(self.outcome) if self.outcome else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a task."""

    attempt: int
    """Its number, from 1."""
    outcome: AttemptOutcome
    """How it ended."""
    worker_id: str = ""
    """The worker that held the lease."""
    lease_token: int = 0
    """The token that fenced it."""
    start_time: datetime | None = None
    """When it was leased."""
    end_time: datetime | None = None
    """When it ended; None while it runs."""
    error_message: str = ""
    """What went wrong, traceback included."""
    error_type: str = ""
    """The error's class as the worker named it."""
    next_due_time: datetime | None = None
    """When the next attempt became due; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of a task's status."""

    task_id: str
    """The task."""
    status: TaskStatus
    """What it became."""
    version: int = 0
    """The version that the change made; a gap to the one before means that some were left out."""
    transition_time: datetime | None = None
    """When, by the store's clock."""
    attempts: int = 0
    """Attempts counted so far."""
    worker_id: str = ""
    """As `Task.worker_id`."""
    status_reason: str = ""
    """As `Task.status_reason`, or the message of the attempt that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountGroup:
    """One group of a count; what it was not grouped by is not set."""

    status: TaskStatus = TaskStatus.UNSPECIFIED
    """The status of these tasks."""
    task_type: str = ""
    """The type of these tasks."""
    queue: str = ""
    """The queue of these tasks."""
    count: int = 0
    """How many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many tasks there are."""

    total: int = 0
    """All that match."""
    groups: tuple[CountGroup, ...] = ()
    """By group, largest first; at most 1,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCount:
    """How many tasks are in one status."""

    status: TaskStatus = TaskStatus.UNSPECIFIED
    """The status."""
    count: int = 0
    """How many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphState:
    """How far a graph is."""

    graph_id: str
    """Its id."""
    tasks: int = 0
    """How many tasks it has."""
    counts: tuple[StatusCount, ...] = ()
    """How many are in each status, in the order of the states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate between a task and its handler."""

    name: GateName
    """Which."""
    state: GateState
    """How the task stands to it."""
    detail: str = ""
    """What was found, with figures."""
    since_time: datetime | None = None
    """Since when it blocks, or when it was passed."""
    unblock: str = ""
    """What would open it; empty unless it blocks."""
    expected_delay: timedelta | None = None
    """How long it will block, as far as that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a task is where it is."""

    task: Task
    """The task."""
    summary: str = ""
    """The answer in one sentence."""
    gates: tuple[Gate, ...] = ()
    """All gates, in order; at most one blocks."""
    lost_grants: int = 0
    """Grants that no worker acknowledged."""
    trigger_rung: TriggerRung = TriggerRung.UNSPECIFIED
    """How due tasks are found now."""
    queue_rung: QueueRung = QueueRung.UNSPECIFIED
    """How ready tasks reach dispatchers now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """The copies that a retry made."""

    task_id: str
    """The copy of the task that was retried."""
    new_task_ids: Mapping[str, str]
    """From the id of each task that was copied to that of its copy, dependents included."""
    existing: bool = False
    """True when the task had been retried before, and these are the copies made then."""
