"""What dispatcher, engine and store say to each other about leases, and how long leases last."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from .task import Handed


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Milliseconds. An acknowledged first lease becomes a full one after `extend_after_ms`."""

    lease_ms: int = 60_000
    first_lease_ms: int = 5_000
    heartbeat_ms: int = 15_000

    @property
    def extend_after_ms(self) -> int:
        """A task that ends before costs no lease write."""
        return self.first_lease_ms * 2 // 5


class Seat(NamedTuple):
    """Seats for `room` tasks at one worker."""

    worker_id: str
    room: int


class Want(NamedTuple):
    """Credit to be filled: any task of `lanes`, for these seats, with a first lease of `lease_ms`.

    `acked` is true where the reply itself is the delivery (Poll): the lease counts as acknowledged.
    """

    lanes: tuple[str, ...]
    seats: tuple[Seat, ...]
    lease_ms: int
    acked: bool = False


class Grant(NamedTuple):
    """A claimed task as the worker gets it; `token` is the lease and fencing token."""

    task_id: bytes
    token: int
    worker_id: str
    lane: str
    task_type: str
    attempt: int
    max_attempts: int
    due_at: int
    lease_expires_at: int
    payload_kind: int
    payload: bytes
    payload_metadata: str | None
    checkpoint: bytes | None
    trace_context: str | None
    run_timeout_ms: int | None
    has_predecessors: bool = False
    nominal_at: int | None = None  # of an instance of a schedule
    handed: tuple[Handed, ...] = ()  # by them; the engine adds it to what the store claimed


class LeaseRef(NamedTuple):
    """A lease by task and token."""

    task_id: bytes
    token: int


class Beat(NamedTuple):
    """One heartbeat of one lease; None leaves progress or checkpoint as stored."""

    task_id: bytes
    token: int
    lease_ms: int
    progress: float | None = None
    progress_message: str | None = None
    checkpoint: bytes | None = None


class Success(NamedTuple):
    """A worker's success."""

    task_id: bytes
    token: int
    outcome: bytes | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A worker's failure. `retry_delay_ms` overrides the backoff."""

    task_id: bytes
    token: int
    message: str
    error_type: str
    retryable: bool = True
    retry_delay_ms: int | None = None


class Snooze(NamedTuple):
    """The handler asks to be called again later; the attempt is taken back."""

    task_id: bytes
    token: int
    delay_ms: int


WorkerResult = Success | Failure | Snooze


class ResultState(IntEnum):
    """The answer to one worker result; the numbers are those of the proto."""

    APPLIED = 1
    DUPLICATE = 2
    STALE = 3


class BeatState(IntEnum):
    """The answer to one heartbeat; the numbers are those of the proto."""

    EXTENDED = 1
    LOST = 2
    CANCEL_REQUESTED = 3


class BeatAnswer(NamedTuple):
    """Stored state of a lease after a beat; `remaining_ms` is 0 unless EXTENDED."""

    state: BeatState
    remaining_ms: int
