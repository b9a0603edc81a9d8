"""The enums of the protos as text: `TaskStatus.FAILED == "FAILED"`.

Each has the members of the proto enum of the same name, prefix dropped. UNSPECIFIED stands for
"not set": in a request it means the documented default, in a reply that the server had nothing
to say, or said something that this release of the SDK does not know yet.
"""

from enum import StrEnum


class TaskStatus(StrEnum):
    """Where a task stands; SUCCEEDED, FAILED and CANCELLED are final."""

    UNSPECIFIED = "UNSPECIFIED"
    CREATED = "CREATED"
    PENDING = "PENDING"
    READY = "READY"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        """Whether a task in this status never changes again."""
        return self in TERMINAL


TERMINAL = frozenset({TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELLED})
"""The statuses that are final."""


class TaskView(StrEnum):
    """How much of a task a read returns; FULL adds payload, retry, timeouts and dependencies."""

    UNSPECIFIED = "UNSPECIFIED"
    BASIC = "BASIC"
    FULL = "FULL"


class DependencyRule(StrEnum):
    """What predecessors must have done before a task runs."""

    UNSPECIFIED = "UNSPECIFIED"
    ALL_SUCCEEDED = "ALL_SUCCEEDED"
    ALL_DONE = "ALL_DONE"
    ANY_SUCCEEDED = "ANY_SUCCEEDED"
    ANY_FAILED = "ANY_FAILED"
    NONE_FAILED = "NONE_FAILED"


class AttemptOutcome(StrEnum):
    """How one attempt ended."""

    UNSPECIFIED = "UNSPECIFIED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    LOST = "LOST"
    CANCELLED = "CANCELLED"
    SNOOZED = "SNOOZED"


class OverlapPolicy(StrEnum):
    """What happens to an instance that is due while an older one of its schedule is live."""

    UNSPECIFIED = "UNSPECIFIED"
    SKIP = "SKIP"
    BUFFER_ONE = "BUFFER_ONE"
    BUFFER_ALL = "BUFFER_ALL"
    CANCEL_OTHER = "CANCEL_OTHER"
    ALLOW_ALL = "ALLOW_ALL"


class CatchUpPolicy(StrEnum):
    """Which of several missed nominal times still fire."""

    UNSPECIFIED = "UNSPECIFIED"
    LATEST = "LATEST"
    NONE = "NONE"
    ALL = "ALL"


class DstGapPolicy(StrEnum):
    """What happens at a local time that a clock change leaves out."""

    UNSPECIFIED = "UNSPECIFIED"
    RUN_AFTER_GAP = "RUN_AFTER_GAP"
    SKIP = "SKIP"


class DstOverlapPolicy(StrEnum):
    """What happens at a local time that a clock change repeats."""

    UNSPECIFIED = "UNSPECIFIED"
    FIRST = "FIRST"
    LAST = "LAST"
    BOTH = "BOTH"


class InstanceOutcome(StrEnum):
    """What came of one nominal time of a schedule."""

    UNSPECIFIED = "UNSPECIFIED"
    OPEN = "OPEN"
    FIRED = "FIRED"
    SKIPPED = "SKIPPED"
    COALESCED = "COALESCED"
    MISSED = "MISSED"
    PAUSED = "PAUSED"
    CANCELLED = "CANCELLED"


class InstanceSource(StrEnum):
    """Why an instance was made."""

    UNSPECIFIED = "UNSPECIFIED"
    CRON = "CRON"
    TRIGGER = "TRIGGER"
    BACKFILL = "BACKFILL"


class CountGroupBy(StrEnum):
    """What to group a count by."""

    UNSPECIFIED = "UNSPECIFIED"
    STATUS = "STATUS"
    TASK_TYPE = "TASK_TYPE"
    QUEUE = "QUEUE"


class GateName(StrEnum):
    """The gates between a task and its handler, in the order in which it passes them."""

    UNSPECIFIED = "UNSPECIFIED"
    DEPENDENCIES = "DEPENDENCIES"
    SCHEDULE = "SCHEDULE"
    DUE_TIME = "DUE_TIME"
    TRIGGER = "TRIGGER"
    QUEUE = "QUEUE"
    BACKLOG = "BACKLOG"
    WORKER = "WORKER"
    CREDIT = "CREDIT"
    LEASE = "LEASE"


class GateState(StrEnum):
    """How a task stands to a gate."""

    UNSPECIFIED = "UNSPECIFIED"
    PASSED = "PASSED"
    BLOCKING = "BLOCKING"
    NOT_REACHED = "NOT_REACHED"


class DstEffect(StrEnum):
    """What a clock change does to a nominal time."""

    UNSPECIFIED = "UNSPECIFIED"
    NONE = "NONE"
    AFTER_GAP = "AFTER_GAP"
    SKIPPED = "SKIPPED"
    FIRST = "FIRST"
    LAST = "LAST"


class TriggerRung(StrEnum):
    """How due tasks are found: by polling the store, or by the time wheel."""

    UNSPECIFIED = "UNSPECIFIED"
    STORE = "STORE"
    WHEEL = "WHEEL"


class QueueRung(StrEnum):
    """How ready tasks reach dispatchers: claimed from the store, or from the broker."""

    UNSPECIFIED = "UNSPECIFIED"
    STORE = "STORE"
    BROKER = "BROKER"
