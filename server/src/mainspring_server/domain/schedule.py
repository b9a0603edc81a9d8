"""The records of recurring tasks: the schedule, its ledger, and the plan of one visit.

A schedule is only ever changed by a *visit*: the store locks its row, hands a pure function what
stands (`View`), and applies what the function answers (`Plan`) in the same transaction. So two
materialisers, a materialiser and a Pause, or a Cancel and a Trigger never decide at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from .calendar import CalendarSpec
from .lifecycle import Change
from .retry import DEFAULT_RETRY, RetryPolicy
from .task import NO_PAYLOAD, NO_TIMEOUTS, NewTask, Payload, Rule, Task, Timeouts


class Overlap(IntEnum):
    """What happens to an instance that falls due while an older one is live; as in the proto."""

    SKIP = 1
    BUFFER_ONE = 2
    BUFFER_ALL = 3
    CANCEL_OTHER = 4
    ALLOW_ALL = 5


class CatchUp(IntEnum):
    """What happens to nominal times that passed while nothing could fire; as in the proto."""

    LATEST = 1
    NONE = 2
    ALL = 3


class Outcome(IntEnum):
    """What became of a nominal time; as in the proto. OPEN: its time has not come."""

    OPEN = 1
    FIRED = 2
    SKIPPED = 3
    COALESCED = 4
    MISSED = 5
    PAUSED = 6
    CANCELLED = 7


class Source(IntEnum):
    """Who asked for an instance; as in the proto."""

    CRON = 1
    TRIGGER = 2
    BACKFILL = 3


@dataclass(frozen=True, slots=True)
class TemplateTask:
    """One task of an instance; a plain schedule has one, a recurring graph several.

    `predecessors` are positions in the template; `delay_ms` counts from the instance's due time.
    """

    task_type: str
    queue: str
    priority: int
    payload: Payload = NO_PAYLOAD
    labels: str | None = None
    retry: RetryPolicy = DEFAULT_RETRY
    timeouts: Timeouts = NO_TIMEOUTS
    trace_context: str | None = None
    delay_ms: int = 0
    local_ref: str | None = None
    predecessors: tuple[int, ...] = ()
    rule: Rule = Rule.ALL_SUCCEEDED
    delay_after_ms: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of a schedule besides its calendar. Durations in ms."""

    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.LATEST
    window_ms: int = 3_600_000
    max_catch_up: int = 10
    max_buffered: int = 100
    pause_on_failure: bool = False


@dataclass(slots=True)
class Schedule:
    """A stored schedule.

    `settled_at`: every nominal time up to it has its outcome. `next_nominal_at` is that of the one
    open instance made by cron, if there is one. `next_check_at` is when the materialiser visits
    next; None once the schedule has ended. `runs` counts instances fired by cron. `version` grows
    with each change by a caller (the etag), not with visits.
    """

    schedule_id: bytes
    namespace: str
    spec: CalendarSpec
    policy: Policy
    template: tuple[TemplateTask, ...]
    created_at: int
    settled_at: int
    next_check_at: int | None
    version: int = 1
    next_nominal_at: int | None = None
    runs: int = 0
    paused_at: int | None = None
    pause_note: str | None = None
    resume_from: int | None = None
    ended_at: int | None = None
    end_reason: str | None = None
    tz_version: str = ""
    labels: str | None = None

    @property
    def live(self) -> bool:
        """True until it is cancelled or has made its last run."""
        return self.ended_at is None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One nominal time; unique by (schedule, source, nominal time, sequence).

    `sequence` is 0 for cron, the moment of asking for a backfill, random for a trigger. `task_id`
    is the instance's first task, None where none was made.
    """

    schedule_id: bytes
    nominal_at: int
    source: Source
    sequence: int
    task_id: bytes | None
    due_at: int
    outcome: Outcome
    outcome_at: int | None = None
    reason: str | None = None


class View(NamedTuple):
    """What a visit sees, under the schedule's lock.

    `open`: ledger rows without an outcome, each with its task as it stands (None: no task).
    `live`: tasks of the schedule that are not terminal, by id, those of `open` included.
    `failed`: true if an instance has ended FAILED since the last visit.
    """

    schedule: Schedule
    now: int
    open: tuple[tuple[LedgerRow, Task | None], ...]
    live: tuple[Task, ...]
    failed: bool


@dataclass(slots=True)
class Plan:
    """What a visit changes, all in the one transaction.

    `schedule` is written whole if not None. `record` inserts or replaces ledger rows, `forget`
    deletes open ones. `insert` are new tasks (with edges where they wait), `changes` conditional
    writes to existing ones: one that is stale (the task moved meanwhile) makes the store repeat the
    visit with a fresh view. `answer` is handed back to the caller.
    """

    schedule: Schedule | None = None
    record: list[LedgerRow] = field(default_factory=list)
    forget: list[LedgerRow] = field(default_factory=list)
    insert: list[NewTask] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    answer: Any = None
