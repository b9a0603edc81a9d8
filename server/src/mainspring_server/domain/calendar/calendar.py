"""A schedule's calendar: which instants it names, between which bounds, and how far each is shifted.

Pure, frozen and cheap: what an expression means is computed once and shared by every schedule with
the same expression, zone, policies and exclusions. Instants are milliseconds since the epoch, UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from functools import lru_cache
from itertools import islice

from ..errors import InvalidArgument
from .every import EveryInstants
from .expression import EVERY_SECOND, Every, Expression, read_expression, resolve
from .hashing import draw_jitter
from .instants import CronInstants, Instants
from .policy import DstGap, DstOverlap
from .wall import WallTimes
from .zones import END_OF_TIME, Zone, find_zone

DEFAULT_JITTER_MS = 30_000
"""The bound of the shift of a clock-aligned schedule that says nothing about jitter."""

LONGEST_JITTER_MS = 86_400_000
"""The largest bound that a schedule may ask for."""

MOST_EXCLUSIONS = 100
"""Exclusions of one schedule at most."""

NO_ID = bytes(16)
"""Stands for the schedule's id where there is none yet: the preview of an expression."""

_CACHED = 16_384
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_FIRE = 0


@dataclass(frozen=True, slots=True)
class CalendarSpec:
    """What a schedule says about its times. `start_at` is inclusive, `end_at` exclusive.

    `anchor_at` is where `@every` begins to count, by default `start_at`. `jitter_ms` None asks for
    the default. `exclusions` are cron expressions and dates (`2026-12-25`) of the same zone.
    """

    expression: str
    time_zone: str = "UTC"
    schedule_id: bytes = NO_ID
    dst_gap: DstGap = DstGap.RUN_AFTER_GAP
    dst_overlap: DstOverlap = DstOverlap.FIRST
    exclusions: tuple[str, ...] = ()
    start_at: int | None = None
    end_at: int | None = None
    anchor_at: int | None = None
    max_runs: int | None = None
    jitter_ms: int | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Calendar:
    """The nominal times of one schedule. Made by `parse`."""

    instants: Instants
    zone: Zone
    schedule_id: bytes
    start_at: int
    end_at: int
    max_runs: int | None
    jitter_bound_ms: int

    def next_after(self, instant: int) -> int | None:
        """The first nominal time strictly after the instant, None if there is none."""
        found = self.instants.next_after(max(instant, self.start_at - 1))
        return found if found is not None and found < self.end_at else None

    def previous_before(self, instant: int) -> int | None:
        """The last nominal time strictly before the instant, None if there is none."""
        found = self.instants.previous_before(min(instant, self.end_at))
        return found if found is not None and found >= self.start_at else None

    def fires(self, start: int, end: int, limit: int | None = None) -> Iterator[int]:
        """Nominal times from `start` to before `end`, in order, at most `limit`."""
        return islice(self._from(start - 1, end), limit)

    def between(self, after: int, until: int, limit: int) -> list[int]:
        """Nominal times in (after, until], in order, the first `limit` of them."""
        return list(islice(self._from(after, until + 1), limit))

    def _from(self, after: int, end: int) -> Iterator[int]:
        find = self.instants.next_after
        end = min(end, self.end_at)
        found = find(max(after, self.start_at - 1))
        while found is not None and found < end:
            yield found
            found = find(found)

    def runs_left(self, fired: int) -> int | None:
        """How many more instances may fire after so many; None means no end."""
        return None if self.max_runs is None else max(self.max_runs - fired, 0)

    def jitter_ms(self, nominal_at: int) -> int:
        """The shift of a nominal time: fixed, never negative, never up to the next nominal time."""
        bound = self.jitter_bound_ms
        if bound:
            # Not `next_after`: a bound of the schedule must not change the shift of its last time.
            following = self.instants.next_after(nominal_at)
            if following is not None:
                bound = min(bound, following - nominal_at - 1)
        return draw_jitter(self.schedule_id, nominal_at, bound)

    def due_at(self, nominal_at: int) -> int:
        """When the instance of a nominal time is due."""
        return nominal_at + self.jitter_ms(nominal_at)

    def local_time(self, instant: int) -> str:
        """RFC 3339 in the schedule's zone: `2026-11-01T01:30:00-04:00`."""
        offset = timezone(timedelta(seconds=self.zone.offset_at(instant // 1_000)))
        local = (_EPOCH + timedelta(milliseconds=instant)).astimezone(offset)
        return local.isoformat(timespec="milliseconds" if instant % 1_000 else "seconds")


def parse(spec: CalendarSpec) -> Calendar:
    """The calendar of a schedule.

    Raises:
        InvalidArgument: CRON_INVALID, CRON_NEVER_FIRES, TIME_ZONE_UNKNOWN or FIELD_INVALID; `field`
            is the name in CronSchedule.
    """
    zone = find_zone(spec.time_zone)
    meaning = read_expression(spec.expression, spec.schedule_id)
    exclusions = _resolve_exclusions(spec)
    _check_bounds(spec)
    if isinstance(meaning, Every):
        instants: Instants = _every(meaning, spec, zone, exclusions)
    else:
        resolved = resolve(spec.expression, spec.schedule_id)
        instants = _cron(resolved, zone.name, (spec.dst_gap, spec.dst_overlap), exclusions)
    return Calendar(
        instants=instants,
        zone=zone,
        schedule_id=spec.schedule_id,
        start_at=0 if spec.start_at is None else spec.start_at,
        end_at=END_OF_TIME * 1_000 if spec.end_at is None else spec.end_at,
        max_runs=spec.max_runs,
        jitter_bound_ms=_jitter_bound(spec, meaning),
    )


def _jitter_bound(spec: CalendarSpec, meaning: Expression | Every) -> int:
    if spec.exact:
        return 0
    if spec.jitter_ms is not None:
        return spec.jitter_ms
    aligned = isinstance(meaning, Expression) and meaning.clock_aligned
    return DEFAULT_JITTER_MS if aligned else 0


def _check_bounds(spec: CalendarSpec) -> None:
    start, end = spec.start_at, spec.end_at
    if start is not None and end is not None and end <= start:
        raise InvalidArgument("FIELD_INVALID", "must be after start_time", field="end_time")
    if spec.max_runs is not None and spec.max_runs < 1:
        raise InvalidArgument("FIELD_INVALID", "must be at least 1", field="max_runs")
    if spec.jitter_ms is not None and not 0 <= spec.jitter_ms <= LONGEST_JITTER_MS:
        raise InvalidArgument("FIELD_INVALID", "must be 0 to 24 hours", field="jitter")


def _resolve_exclusions(spec: CalendarSpec) -> tuple[str, ...]:
    """The exclusions as a key: dates as they are, expressions as everybody would write them."""
    if len(spec.exclusions) > MOST_EXCLUSIONS:
        raise InvalidArgument(
            "FIELD_INVALID",
            f"at most {MOST_EXCLUSIONS} exclusions are allowed, these are {len(spec.exclusions)}",
            field="exclusions",
        )
    found: list[str] = []
    for index, text in enumerate(spec.exclusions):
        try:
            found.append(_resolve_exclusion(text.strip(), spec.schedule_id))
        except InvalidArgument as error:
            raise InvalidArgument(
                error.reason,
                error.message,
                field=f"exclusions[{index}]",
                metadata=error.metadata,
            ) from None
    return tuple(sorted(set(found)))


def _resolve_exclusion(text: str, schedule_id: bytes) -> str:
    if _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text).isoformat()
        except ValueError as error:
            raise InvalidArgument("CRON_INVALID", f"{text} is no date: {error}") from None
    if isinstance(read_expression(text, schedule_id), Every):
        raise InvalidArgument(
            "CRON_INVALID", "@every leaves nothing out; expected fields or a date"
        )
    return resolve(text, schedule_id)


@lru_cache(maxsize=_CACHED)
def _wall(resolved: str, exclusions: tuple[str, ...]) -> WallTimes:
    """The matches of a resolved expression, shared by all zones and policies."""
    meaning = read_expression(resolved, NO_ID) if resolved else EVERY_SECOND
    assert isinstance(meaning, Expression)
    expressions = []
    days = []
    for text in exclusions:
        if _DATE.fullmatch(text):
            days.append(date.fromisoformat(text))
        else:
            excluded = read_expression(text, NO_ID)
            assert isinstance(excluded, Expression)
            expressions.append(excluded)
    return WallTimes(meaning, expressions, days)


@lru_cache(maxsize=_CACHED)
def _cron(
    resolved: str,
    zone_name: str,
    policies: tuple[DstGap, DstOverlap],
    exclusions: tuple[str, ...],
) -> CronInstants:
    meaning = read_expression(resolved, NO_ID)
    assert isinstance(meaning, Expression)
    gap, overlap = policies
    found = CronInstants(
        _wall(resolved, exclusions),
        find_zone(zone_name),
        real_time=meaning.real_time,
        gap=gap,
        overlap=overlap,
    )
    if found.next_after(_NO_FIRE) is None:
        _never(exclusions)
    return found


def _every(
    meaning: Every, spec: CalendarSpec, zone: Zone, exclusions: tuple[str, ...]
) -> EveryInstants:
    anchor = spec.anchor_at if spec.anchor_at is not None else spec.start_at or 0
    allowed = _wall("", exclusions) if exclusions else None
    found = EveryInstants(meaning.interval_ms, anchor, zone, allowed)
    if exclusions and found.next_after(anchor - 1) is None:
        _never(exclusions)
    return found


def _never(exclusions: tuple[str, ...]) -> None:
    why = "its exclusions leave none of its times" if exclusions else "no day has what it asks for"
    raise InvalidArgument(
        "CRON_NEVER_FIRES", f"the expression never matches: {why}", field="expression"
    )
