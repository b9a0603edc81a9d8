"""One lease in the worker's hands, and the numbers that a session counts."""

from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Final, TypeAlias

from google.protobuf import duration_pb2

from mainspring.v1 import lease_pb2

from .outcomes import Failed, Outcome, Snoozed, StopReason, Succeeded

Key: TypeAlias = tuple[str, int]
"""Task id and lease token."""


class HandBack(Enum):
    """The ending of a lease that is given back: no outcome, the attempt is not counted."""

    HAND_BACK = auto()


HAND_BACK: Final = HandBack.HAND_BACK

Ending: TypeAlias = Outcome | HandBack

# Its lease is no longer ours: whatever the handler still comes to, the server would refuse.
GONE: Final = frozenset({StopReason.CANCELLED, StopReason.LOST, StopReason.EXPIRED})


class Held:
    """A lease from its grant to its handler's end. All times are monotonic seconds."""

    __slots__ = (
        "beat_time",
        "checkpoint",
        "deadline",
        "ending",
        "key",
        "lease",
        "progress",
        "report_time",
        "run_deadline",
        "saving_since",
        "stop_reason",
        "task_id",
    )

    def __init__(
        self, lease: lease_pb2.Lease, deadline: float, run_deadline: float, beat_time: float
    ) -> None:
        self.lease = lease
        self.task_id = lease.task_id
        self.key: Key = (self.task_id, lease.lease_token)
        self.deadline = deadline
        """When the lease ends, as far as the server has said."""
        self.run_deadline = run_deadline
        """When the attempt's run timeout ends, or infinity."""
        self.beat_time = beat_time
        """When its next sign of life is due."""
        self.stop_reason: StopReason | None = None
        self.progress: tuple[float | None, str] | None = None
        """What is still to be sent."""
        self.checkpoint: bytes | None = None
        """What the server has not yet stored."""
        self.saving_since: float | None = None
        """When `checkpoint` was sent on this stream; None if it was not."""
        self.report_time = -inf
        """When progress or a checkpoint was last sent."""
        self.ending: Ending | None = None
        """What is reported once `checkpoint` is stored."""

    @property
    def has_report(self) -> bool:
        """Whether there is progress or a checkpoint to send."""
        return self.progress is not None or (
            self.checkpoint is not None and self.saving_since is None
        )


@dataclass(slots=True)
class Stats:
    """What has come of the leases of one session; only ever grows."""

    granted: int = 0
    late_grants: int = 0
    """Dropped unstarted: the grant's lease had ended when it was read."""
    applied: int = 0
    duplicate: int = 0
    stale: int = 0
    invalid: int = 0
    handed_back: int = 0
    stopped: int = 0
    """Stopped because the lease was cancelled, lost or had ended."""
    dropped_results: int = 0
    """Not reported: their lease was gone when the handler ended."""
    connections: int = 0


def read_duration(value: duration_pb2.Duration) -> float:
    """Read seconds."""
    return value.seconds + value.nanos / 1e9


def write_duration(target: duration_pb2.Duration, value: float) -> None:
    """Write seconds into a field."""
    whole = int(value)
    target.seconds = whole
    target.nanos = int((value - whole) * 1e9)


def write_result(result: lease_pb2.TaskResult, outcome: Outcome) -> int:
    """Write what came of a task; answers about how many bytes it takes."""
    match outcome:
        case Succeeded():
            result.succeeded.outcome = outcome.outcome
            return len(outcome.outcome) + 80
        case Failed():
            failed = result.failed
            failed.message = outcome.message
            failed.type = outcome.type
            if not outcome.retryable:
                failed.retryable = False
            if outcome.retry_delay is not None:
                write_duration(failed.retry_delay, outcome.retry_delay)
                failed.retry_delay.SetInParent()
            # Text of four bytes a character at worst.
            return 4 * len(outcome.message) + 512
        case Snoozed():
            write_duration(result.snoozed.delay, outcome.delay)
            result.snoozed.delay.SetInParent()
            return 96
