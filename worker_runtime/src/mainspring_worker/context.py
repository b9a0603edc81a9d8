"""What a handler knows about its attempt, and can say about it."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from google.protobuf import timestamp_pb2

from mainspring.v1 import lease_pb2, task_pb2

from .outcomes import Cancelled, StopReason, clean_text
from .payloads import encode_checkpoint, input_decoder

T = TypeVar("T")

MAX_PROGRESS_TEXT = 1024


class Reporter(Protocol):
    """Where a context's reports go: the session, or a test's record."""

    def report_progress(self, context: "Context", fraction: float | None, message: str) -> None:
        """Take what the handler says about how far it is."""

    def report_checkpoint(self, context: "Context", data: bytes) -> None:
        """Take what the next attempt is to start from."""


@dataclass(frozen=True, slots=True)
class Predecessor:
    """What came of a task that this one waited for; `outcome` is what its handler returned."""

    task_id: str
    local_ref: str
    succeeded: bool
    outcome: bytes


class Context:
    """One attempt of one task. May be used from any thread of the handler."""

    __slots__ = (
        "_checkpoint",
        "_lease",
        "_reporter",
        "_stop_reason",
        "_stopped",
        "deadline",
        "last_report",
    )

    def __init__(self, lease: lease_pb2.Lease, reporter: Reporter, deadline: float | None) -> None:
        self._lease = lease
        self._reporter = reporter
        self._checkpoint: bytes | None = None
        self._stop_reason: StopReason | None = None
        self._stopped: threading.Event | None = None
        self.deadline = deadline
        """When the run timeout stops this attempt, on `time.monotonic()`; None if there is none."""
        self.last_report: float | None = None
        """When it started or last called `progress`, on `time.monotonic()`; None before it runs."""

    @property
    def task_id(self) -> str:
        """The task."""
        return self._lease.task_id

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return self._lease.attempt

    @property
    def max_attempts(self) -> int:
        """Attempts that the task may use."""
        return self._lease.max_attempts

    @property
    def lease_token(self) -> int:
        """Only grows from attempt to attempt: guard with it what the task writes elsewhere."""
        return self._lease.lease_token

    @property
    def task_type(self) -> str:
        """What kind of work."""
        return self._lease.task_type

    @property
    def queue(self) -> str:
        """The queue that it came from."""
        return self._lease.queue

    @property
    def due_time(self) -> datetime:
        """When it was due, in UTC."""
        return _datetime(self._lease.due_time)

    @property
    def nominal_time(self) -> datetime | None:
        """The tick that it was made for, in UTC; None unless a schedule made it."""
        return _datetime(self._lease.nominal_time) if self._lease.HasField("nominal_time") else None

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the submitter said about the payload."""
        return dict(self._lease.payload.metadata)

    @property
    def trace_context(self) -> str:
        """W3C `traceparent` of the submitter, or empty."""
        return self._lease.trace_context

    @property
    def predecessors(self) -> tuple[Predecessor, ...]:
        """What the tasks that it waited for came to, in the order of its dependencies."""
        succeeded = task_pb2.TASK_STATUS_SUCCEEDED
        return tuple(
            Predecessor(item.task_id, item.local_ref, item.status == succeeded, item.outcome)
            for item in self._lease.predecessors
        )

    def progress(self, fraction: float | None = None, message: str = "") -> None:
        """Say how far it is, 0 to 1, and what it does; also the sign of life for `stall_timeout`."""
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"progress is 0 to 1, not {fraction!r}")
        self.last_report = time.monotonic()
        text = clean_text(message)[:MAX_PROGRESS_TEXT]
        self._reporter.report_progress(self, fraction, text)

    def checkpoint(self, data: Any) -> None:
        """Keep what the next attempt is to start from: bytes, or a value that is written as JSON.

        It is sent within a second, and before this attempt's failure is reported. At most
        64 KiB, or ValueError.
        """
        encoded = encode_checkpoint(data)
        self._checkpoint = encoded
        self.last_report = time.monotonic()
        self._reporter.report_checkpoint(self, encoded)

    @property
    def last_checkpoint(self) -> bytes | None:
        """The newest checkpoint, of this or an earlier attempt; None if there was none."""
        if self._checkpoint is not None:
            return self._checkpoint
        return self._lease.checkpoint or None

    def last_checkpoint_as(self, shape: type[T]) -> T | None:
        """Read the newest checkpoint as a dataclass, a pydantic model, a dict …; None if there is none.

        Raises `InputInvalid` if it is something else.
        """
        data = self.last_checkpoint
        if data is None:
            return None
        checkpoint: T = input_decoder(shape)(task_pb2.Payload(data=data))
        return checkpoint

    @property
    def cancelled(self) -> bool:
        """Whether the handler is to stop: cancelled, lease lost, run timeout, or worker stopping."""
        return self._stop_reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it is to stop; None while it is not."""
        return self._stop_reason

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` if the handler is to stop: for handlers that run in a thread."""
        if self._stop_reason is not None:
            raise Cancelled(self._stop_reason.value)

    def wait_cancelled(self, timeout: float) -> bool:
        """Sleep in a thread, but no longer than until the handler is to stop; answers `cancelled`."""
        if self._stop_reason is None:
            if self._stopped is None:
                self._stopped = threading.Event()
            # Looked at once more: the reason may have been set before the event was there.
            if self._stop_reason is None:
                self._stopped.wait(timeout)
        return self.cancelled

    def stop(self, reason: StopReason) -> None:
        """Tell the handler to stop; called by the runtime, and by tests."""
        self._stop_reason = reason
        if self._stopped is not None:
            self._stopped.set()


def _datetime(stamp: timestamp_pb2.Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)
