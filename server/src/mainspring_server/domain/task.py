"""The records that travel between API, engine, store, wheel and ready queue.

Times are integer milliseconds since the epoch (UTC), ids 16 raw bytes (UUIDv7). `version` is the
number of the task's last transition; at a claim it becomes the lease token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from .retry import DEFAULT_RETRY, RetryPolicy

SHARDS = 64

DEFAULT_PRIORITY = 5


class Status(IntEnum):
    """The states of a task; the numbers are those of the proto and of the stored rows."""

    CREATED = 1
    PENDING = 2
    READY = 3
    RUNNING = 4
    SUCCEEDED = 5
    FAILED = 6
    CANCELLED = 7


TERMINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})


class OutcomeBy(IntEnum):
    """Who ended an attempt; only a worker's own outcome can be repeated as a duplicate."""

    WORKER_SUCCEEDED = 1
    WORKER_FAILED = 2
    WORKER_SNOOZED = 3
    LEASE_EXPIRED = 4
    TIMED_OUT = 5
    CANCELLED = 6
    HANDED_BACK = 7


class AttemptOutcome(IntEnum):
    """How an attempt ended; the numbers are those of the proto."""

    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3
    TIMED_OUT = 4
    LOST = 5
    CANCELLED = 6
    SNOOZED = 7


class PayloadKind(IntEnum):
    """How the payload's bytes are to be read."""

    NONE = 0
    JSON = 1
    DATA = 2


class Rule(IntEnum):
    """What must be true of the predecessors; the numbers are those of the proto.

    ALL_DONE_IN_TIME is ALL_DONE for an instance that may be skipped: it is released only before
    its due time, afterwards its schedule's visit decides. Not in the proto.
    """

    ALL_SUCCEEDED = 1
    ALL_DONE = 2
    ANY_SUCCEEDED = 3
    ANY_FAILED = 4
    NONE_FAILED = 5
    ALL_DONE_IN_TIME = 6

    @property
    def shown(self) -> Rule:
        """The one that people see."""
        return Rule.ALL_DONE if self is Rule.ALL_DONE_IN_TIME else self


class Waits(NamedTuple):
    """What a CREATED task waits for: its predecessors, their rule, and the delay after them."""

    predecessors: tuple[bytes, ...]
    rule: Rule = Rule.ALL_SUCCEEDED
    delay_ms: int = 0


def shard_of(task_id: bytes) -> int:
    """The shard of a task: the last byte of a UUIDv7 is uniformly random."""
    return task_id[15] % SHARDS


def lane_of(namespace: str, queue: str) -> str:
    """The lane's name; neither part may contain a slash."""
    return f"{namespace}/{queue}"


def band_of(priority: int) -> int:
    """The priority band: 0 for 0-3, 1 for 4-6, 2 for 7-9; lower is sooner."""
    return 0 if priority <= 3 else 1 if priority <= 6 else 2


class Payload(NamedTuple):
    """A payload as submitted: kind, bytes, and metadata as a JSON object or None."""

    kind: PayloadKind
    body: bytes
    metadata: str | None


NO_PAYLOAD = Payload(PayloadKind.NONE, b"", None)


class IdempotencyKey(NamedTuple):
    """16-byte digest of (namespace, task type, key), 32-byte hash of the request, and expiry."""

    digest: bytes
    request_hash: bytes
    expires_at: int


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Milliseconds, or None for no limit."""

    queue_ms: int | None = None
    run_ms: int | None = None
    total_ms: int | None = None


NO_TIMEOUTS = Timeouts()


@dataclass(slots=True)
class NewTask:
    """A task to be inserted. `status` is CREATED, PENDING or READY; READY needs due_at <= now."""

    task_id: bytes
    namespace: str
    task_type: str
    queue: str
    priority: int
    status: Status
    due_at: int
    created_at: int
    payload: Payload = NO_PAYLOAD
    labels: str | None = None  # JSON object with sorted keys, or None
    retry: RetryPolicy = DEFAULT_RETRY
    timeouts: Timeouts = NO_TIMEOUTS
    trace_context: str | None = None
    idempotency: IdempotencyKey | None = None
    retry_of: bytes | None = None
    schedule_id: bytes | None = None
    nominal_at: int | None = None
    deadline_at: int | None = None  # fixed: first due + total timeout
    next_check_at: int | None = None  # set by the engine from domain.checks
    waits: Waits | None = None  # exactly for CREATED
    graph_id: bytes | None = None
    local_ref: str | None = None

    @property
    def lane(self) -> str:
        """The lane that the task is dispatched through."""
        return f"{self.namespace}/{self.queue}"


class InsertState(IntEnum):
    """What became of one item of an insert."""

    INSERTED = 1
    EXISTING = 2  # the idempotency key's first task is answered
    CONFLICT = 3  # same key, another request: nothing stored


class Inserted(NamedTuple):
    """The answer to one NewTask: the task that now stands for it (the first one when EXISTING)."""

    state: InsertState
    task_id: bytes
    status: Status
    due_at: int


class Written(IntEnum):
    """What became of one conditional write; true if it applied."""

    STALE = 0
    APPLIED = 1
    TELL = 2  # applied and terminal, and there are dependents to be told


class Waiting(NamedTuple):
    """A CREATED task and how its predecessors stand, by its edges.

    `culprit` is one that failed, else one that was cancelled, for the reason that people read.
    """

    task: Task
    waiting: int
    succeeded: int
    failed: int
    cancelled: int
    culprit: bytes | None


class Edge(NamedTuple):
    """One dependency; the outcome is None until the dependent was told of the predecessor's end."""

    downstream: bytes
    predecessor: bytes
    outcome: Status | None


HANDED_BYTES = 1 << 20
"""What the predecessors of one task may hand over in all."""

HANDED_OVERHEAD = 128
"""What one of them counts for beside its outcome: id, name and status."""


class Handed(NamedTuple):
    """What a predecessor hands to a dependent: id, name in the graph, status, small outcome."""

    task_id: bytes
    local_ref: str | None
    status: Status
    outcome: bytes | None


class ReadyRef(NamedTuple):
    """A READY task on its way to a dispatcher; `published_at` is the store's clock at the swap."""

    task_id: bytes
    version: int
    lane: str
    priority: int
    due_at: int
    published_at: int


class ReadyState(IntEnum):
    """The answer of make_ready for one id."""

    APPLIED = 1  # PENDING -> READY now
    EARLY = 2  # not due yet; `due_at` says when
    ALREADY = 3  # READY before: publish again
    STALE = 4  # anything else, or unknown: drop the hint


class ReadyAnswer(NamedTuple):
    """Per id, in order. `ref` for APPLIED and ALREADY, `due_at` for EARLY."""

    state: ReadyState
    ref: ReadyRef | None
    due_at: int | None


@dataclass(slots=True)
class Attempt:
    """One attempt of a task, as History shows it."""

    task_id: bytes
    attempt: int
    token: int
    worker_id: str
    outcome: AttemptOutcome
    started_at: int
    ended_at: int | None
    error_type: str | None = None
    error_message: str | None = None


@dataclass(slots=True)
class Task:
    """A stored task, all columns but the payload (which is read on demand)."""

    task_id: bytes
    namespace: str
    task_type: str
    queue: str
    priority: int
    status: Status
    version: int
    due_at: int
    created_at: int
    retry: RetryPolicy
    timeouts: Timeouts
    attempts: int = 0
    lost_grants: int = 0
    ready_at: int | None = None
    started_at: int | None = None
    completed_at: int | None = None
    deadline_at: int | None = None
    next_check_at: int | None = None
    published_at: int | None = None
    worker_id: str | None = None
    lease_expires_at: int | None = None
    lease_acked: bool = False
    progress: float | None = None
    progress_message: str | None = None
    checkpoint: bytes | None = None
    outcome: bytes | None = None
    outcome_token: int | None = None
    outcome_by: OutcomeBy | None = None
    error_type: str | None = None
    error_message: str | None = None
    status_reason: str | None = None
    labels: str | None = None
    trace_context: str | None = None
    retry_of: bytes | None = None
    schedule_id: bytes | None = None
    nominal_at: int | None = None
    rule: Rule | None = None  # of its predecessors; None: it had none
    delay_after_ms: int = 0
    has_dependents: bool = False
    graph_id: bytes | None = None
    local_ref: str | None = None
    payload: Payload | None = field(default=None)  # only when it was asked for

    @property
    def lane(self) -> str:
        """The lane that the task is dispatched through."""
        return f"{self.namespace}/{self.queue}"

    @property
    def terminal(self) -> bool:
        """True once nothing can change the status any more."""
        return self.status in TERMINAL

    @property
    def queue_deadline(self) -> int | None:
        """When waiting for a worker is over: later of READY and due, plus the queue timeout."""
        if self.timeouts.queue_ms is None or self.ready_at is None:
            return None
        return max(self.ready_at, self.due_at) + self.timeouts.queue_ms

    @property
    def run_deadline(self) -> int | None:
        """When the running attempt is over."""
        if self.timeouts.run_ms is None or self.started_at is None:
            return None
        return self.started_at + self.timeouts.run_ms
