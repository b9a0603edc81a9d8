"""What a caller hands in: a task, when it is due, how it is retried, what it waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import TypedDict

from ._convert import Seconds
from .enums import DependencyRule, TaskStatus
from .schedules import CronSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed or lost attempt is tried again; what is None takes the server's default.

    The delay is random between 0 and min(max_delay, initial_delay * multiplier ^ (attempts - 1)).
    """

    max_attempts: int | None = None
    """Attempts in all, the first included. 1 to 1,000, default 4."""
    initial_delay: Seconds | None = None
    """Upper bound of the delay before the second attempt. 0 to 24 h, default 1 s."""
    multiplier: float | None = None
    """Growth of the delay from attempt to attempt. 1 to 100, default 2."""
    max_delay: Seconds | None = None
    """The delay's ceiling. 0 to 30 days, default 5 min."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """A task's time limits, 1 ms to 10 years; None means no limit."""

    queue_timeout: Seconds | None = None
    """From the later of due and READY to the start; past it the task is FAILED."""
    run_timeout: Seconds | None = None
    """One attempt, from its lease; past it the attempt is TIMED_OUT and counted."""
    total_timeout: Seconds | None = None
    """From the first due time to the end, over all attempts; past it the task is FAILED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The predecessors of a task, at most 10,000 in all."""

    task_ids: Sequence[str] = ()
    """Ids of tasks, in any status."""
    local_refs: Sequence[str] = ()
    """`local_ref` of other tasks of the same graph."""
    rule: DependencyRule = DependencyRule.UNSPECIFIED
    """What they must have done; default ALL_SUCCEEDED."""
    delay: Seconds | None = None
    """From the moment the rule holds to due; default 0."""


class TaskOptions(TypedDict, total=False):
    """The keyword arguments of `submit`: the optional fields of `NewTask`, which explains them."""

    delay: Seconds | None
    due_time: datetime | None
    cron: CronSchedule | str | None
    queue: str
    priority: int | None
    idempotency_key: str
    retry: RetryPolicy | None
    timeouts: Timeouts | None
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    dependencies: Dependencies | None
    trace_context: str


@dataclass(frozen=True, slots=True)
class NewTask:
    """One task, or one schedule, to submit.

    It is due at once unless one of `delay`, `due_time` and `cron` is given.
    """

    task_type: str
    """What kind of work; workers say which they do. `[A-Za-z0-9._-]`, at most 128 characters."""
    payload: object = None
    """What the handler gets, at most 1 MiB.

    Bytes go as they are, None is an empty payload, anything else becomes JSON: a dataclass, a
    model with `model_dump()` such as pydantic's, a dict, a list, text, a number.
    """
    _: KW_ONLY
    delay: Seconds | None = None
    """Due so long after the server stored it; seconds or a timedelta, 0 to 10 years."""
    due_time: datetime | None = None
    """Due at this time, an aware datetime; one in the past is due at once."""
    cron: CronSchedule | str | None = None
    """Due again and again: makes a schedule. Text is an expression with the default policies."""
    queue: str = ""
    """Where it waits; default the task type."""
    priority: int | None = None
    """0 to 9, lower is sooner; default 5."""
    idempotency_key: str = ""
    """Within 24 h the same key and task type answer the first task. At most 256 characters."""
    retry: RetryPolicy | None = None
    """How it is retried; default four attempts."""
    timeouts: Timeouts | None = None
    """Its time limits; default none."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """For filters; at most 64 of 63 characters a key and 256 a value."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """About the payload, handed to the handler with it; bounds as for labels."""
    dependencies: Dependencies | None = None
    """What it waits for; default nothing."""
    trace_context: str = ""
    """W3C `traceparent`, handed to the worker."""
    local_ref: str = ""
    """Its name inside a graph, for `Dependencies.local_refs`; only in a graph."""

    def __post_init__(self) -> None:
        given = {"delay": self.delay, "due_time": self.due_time, "cron": self.cron}
        names = [name for name, value in given.items() if value is not None]
        if len(names) > 1:
            raise ValueError(f"a task is due in one way: pass only one of {', '.join(names)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What the server accepted, durably."""

    task_id: str
    """The task's id, or the schedule's."""
    status: TaskStatus
    """Where it stands: CREATED, PENDING or READY when new."""
    due_time: datetime | None = None
    """When it is due; None while it waits for predecessors."""
    existing: bool = False
    """True when the idempotency key matched: these are the first task's fields as they are now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedGraph:
    """A graph that was accepted as a whole."""

    graph_id: str
    """For `cancel`, and as the filter field `graph_id`."""
    results: tuple[Submitted, ...]
    """Its tasks, in the order given; empty when it recurs."""
    schedule: Submitted | None = None
    """The schedule of a graph that recurs."""
