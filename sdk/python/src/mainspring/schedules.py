"""Recurring schedules: what a caller asks for, and how one stands."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypedDict

from ._convert import Seconds
from .enums import (
    CatchUpPolicy,
    DstEffect,
    DstGapPolicy,
    DstOverlapPolicy,
    InstanceOutcome,
    InstanceSource,
    OverlapPolicy,
    TaskStatus,
)

if TYPE_CHECKING:
    from .submission import RetryPolicy, Timeouts


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """What to do about nominal times that passed while nothing could fire."""

    policy: CatchUpPolicy = CatchUpPolicy.UNSPECIFIED
    """Which of them still fire; default LATEST."""
    window: Seconds | None = None
    """Older ones become MISSED; default 1 h."""
    max_runs: int | None = None
    """Cap for `CatchUpPolicy.ALL`; 1 to 1,000, default 10."""


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Which instants recur, and what happens when they cannot be kept as they are."""

    expression: str
    """Five fields, six with leading seconds, `@hourly` and the like, or `@every 90s`."""
    _: KW_ONLY
    time_zone: str = ""
    """IANA name; default UTC."""
    jitter: Seconds | None = None
    """Upper bound of a fixed shift that spreads schedules; default 30 s if clock-aligned."""
    exact: bool = False
    """No jitter, whatever `jitter` says."""
    overlap_policy: OverlapPolicy = OverlapPolicy.UNSPECIFIED
    """When an older instance is live; default SKIP."""
    catch_up: CatchUp | None = None
    """For times that passed while nothing could fire."""
    dst_gap: DstGapPolicy = DstGapPolicy.UNSPECIFIED
    """For a local time that does not exist; default RUN_AFTER_GAP."""
    dst_overlap: DstOverlapPolicy = DstOverlapPolicy.UNSPECIFIED
    """For a local time that occurs twice; default FIRST."""
    start_time: datetime | None = None
    """No nominal time before it; default the moment of Submit."""
    end_time: datetime | None = None
    """No nominal time from it on; default none."""
    max_runs: int | None = None
    """The schedule ends after so many fired instances; default no end."""
    exclusions: Sequence[str] = ()
    """Times that are left out: cron expressions or dates (`2026-12-25`), at most 100."""
    pause_on_failure: bool = False
    """Pause the schedule when an instance ends FAILED."""


def cron_schedule(cron: CronSchedule | str) -> CronSchedule:
    """A cron schedule as such; text is an expression with the default policies."""
    return CronSchedule(cron) if isinstance(cron, str) else cron


class ScheduleChanges(TypedDict, total=False):
    """The keyword arguments of `update`: what is given replaces what the schedule has.

    `payload` and `metadata` are one field of the schedule: giving one without the other empties
    the other.
    """

    cron: CronSchedule | str
    payload: object
    metadata: Mapping[str, str]
    priority: int
    queue: str
    retry: "RetryPolicy"
    timeouts: "Timeouts"
    labels: Mapping[str, str]


class BackfillOptions(TypedDict, total=False):
    """The optional keyword arguments of `backfill`."""

    max_rate: float
    """Instances a second, up to 1,000; default 10."""
    dry_run: bool
    """Only count them."""
    overlap_policy: OverlapPolicy
    """In place of the schedule's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceCount:
    """How many nominal times had an outcome."""

    outcome: InstanceOutcome
    """The outcome."""
    count: int
    """How many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """A schedule as it stands."""

    cron: CronSchedule | None = None
    """As submitted or updated, defaults filled in."""
    etag: str = ""
    """Changes with each change of the schedule; `update` takes it back."""
    paused: bool = False
    """Whether it is paused."""
    pause_note: str = ""
    """The note of the last pause or resume, or why the server paused it."""
    pause_time: datetime | None = None
    """When it was paused."""
    next_nominal_time: datetime | None = None
    """The nominal time of the next instance; None when paused or ended."""
    next_task_id: str = ""
    """The next instance, once it exists."""
    live_task_ids: tuple[str, ...] = ()
    """Instances past due that have not ended, oldest first; at most 100."""
    counts: tuple[InstanceCount, ...] = ()
    """Nominal times so far, by outcome."""
    tzdata_version: str = ""
    """Version of the tz database that its next times were computed with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One nominal time of a schedule and what came of it."""

    nominal_time: datetime | None = None
    """The time that the expression names, or that of the trigger."""
    due_time: datetime | None = None
    """The nominal time with its jitter."""
    outcome: InstanceOutcome = InstanceOutcome.UNSPECIFIED
    """What came of it."""
    task_id: str = ""
    """The task that was made for it; empty if none was."""
    source: InstanceSource = InstanceSource.UNSPECIFIED
    """Why it was made."""
    reason: str = ""
    """The outcome's reason in words."""
    outcome_time: datetime | None = None
    """When the outcome was written; None while OPEN."""
    task_status: TaskStatus = TaskStatus.UNSPECIFIED
    """The status of that task; UNSPECIFIED if none was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """What a trigger made to run."""

    task_id: str = ""
    """The instance, or the task itself; empty when the overlap policy skipped it."""
    status: TaskStatus = TaskStatus.UNSPECIFIED
    """Its status; UNSPECIFIED when it was skipped."""
    due_time: datetime | None = None
    """Its due time; None when it was skipped."""
    existing: bool = False
    """True when the idempotency key matched."""
    outcome: InstanceOutcome = InstanceOutcome.UNSPECIFIED
    """FIRED or SKIPPED for a schedule; UNSPECIFIED for a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """A backfill that was started, or counted."""

    backfill_id: str = ""
    """For `cancel`, which stops it; empty for a dry run."""
    instances: int = 0
    """Nominal times in the range that will be made."""
    first_nominal_time: datetime | None = None
    """The first of them."""
    last_nominal_time: datetime | None = None
    """The last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """A schedule that was changed, or would be."""

    schedule: ScheduleState
    """The schedule as it is, or as it would be."""
    removed_times: tuple[datetime, ...] = ()
    """Nominal times that the old state has and the new one lacks."""
    added_times: tuple[datetime, ...] = ()
    """Nominal times that the new state has and the old one lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewFire:
    """One time of a preview."""

    nominal_time: datetime
    """The nominal time; for a skipped one, the end of the gap."""
    local_time: str = ""
    """RFC 3339 in the schedule's zone."""
    dst_effect: DstEffect = DstEffect.UNSPECIFIED
    """What a clock change does to it."""
    jitter: timedelta | None = None
    """How far jitter shifts it; zero for an expression."""
    load: int = 0
    """Other tasks due in the same second; zero unless asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The next times of an expression or a schedule."""

    fires: tuple[PreviewFire, ...] = ()
    """In order; fewer than asked for when the schedule ends."""
    tzdata_version: str = ""
    """Version of the tz database."""
