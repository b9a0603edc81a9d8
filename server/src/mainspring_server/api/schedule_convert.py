"""CronSchedule messages as calendars and policies, and back: every field checked, defaults filled in.

What the calendar itself refuses (expression, zone, bounds) is refused by it; here its errors get the
place in the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from mainspring.v1 import schedule_pb2

from ..admission.limits import Limits
from ..domain.calendar import Calendar, CalendarSpec, DstGap, DstOverlap, parse
from ..domain.calendar.calendar import DEFAULT_JITTER_MS, LONGEST_JITTER_MS
from ..domain.errors import InvalidArgument
from ..domain.schedule import CatchUp, Overlap, Policy
from .convert import (
    FIELD_INVALID,
    duration,
    duration_ms,
    invalid,
    required,
    timestamp,
    timestamp_ms,
)

E = TypeVar("E", bound=Enum)

DEFAULT_POLICY = Policy()
MOST_CATCH_UP = 1_000

DST_GAPS = {0: DstGap.RUN_AFTER_GAP, 1: DstGap.RUN_AFTER_GAP, 2: DstGap.SKIP}
DST_OVERLAPS = {0: DstOverlap.FIRST, 1: DstOverlap.FIRST, 2: DstOverlap.LAST, 3: DstOverlap.BOTH}
OVERLAPS = {0: Overlap.SKIP, **{item.value: item for item in Overlap}}
CATCH_UPS = {0: CatchUp.LATEST, **{item.value: item for item in CatchUp}}

_GAP_NUMBERS = {kind: number for number, kind in DST_GAPS.items()}
_OVERLAP_NUMBERS = {kind: number for number, kind in DST_OVERLAPS.items()}


def choice(value: int, kinds: Mapping[int, E], field: str) -> E:
    """What an enum's number stands for; one that the contract does not know is refused."""
    found = kinds.get(value)
    if found is None:
        raise invalid(field, f"has no value {value}", actual=str(value))
    return found


# --- In ---------------------------------------------------------------------------------------


def read_calendar(
    cron: schedule_pb2.CronSchedule, schedule_id: bytes, anchor_at: int, place: str, limits: Limits
) -> tuple[CalendarSpec, Calendar]:
    """The calendar of a cron schedule; `place` is where the message stands in the request.

    `@every` counts from its start time, without one from `anchor_at`.
    """
    if not cron.expression:
        raise required(f"{place}.expression")
    start_at, end_at = _bounds(cron, anchor_at, place, limits)
    jitter_ms = None
    if cron.HasField("jitter"):
        jitter_ms = duration_ms(cron.jitter, f"{place}.jitter", maximum=LONGEST_JITTER_MS)
    if cron.HasField("max_runs") and cron.max_runs < 1:
        raise invalid(f"{place}.max_runs", f"must be at least 1, it is {cron.max_runs}")
    spec = CalendarSpec(
        expression=cron.expression,
        time_zone=cron.time_zone or "UTC",
        schedule_id=schedule_id,
        dst_gap=choice(cron.dst_gap, DST_GAPS, f"{place}.dst_gap"),
        dst_overlap=choice(cron.dst_overlap, DST_OVERLAPS, f"{place}.dst_overlap"),
        exclusions=tuple(cron.exclusions),
        start_at=start_at,
        end_at=end_at,
        anchor_at=anchor_at if start_at is None else start_at,
        max_runs=cron.max_runs if cron.HasField("max_runs") else None,
        jitter_ms=jitter_ms,
        exact=cron.exact,
    )
    try:
        return spec, parse(spec)
    except InvalidArgument as error:
        raise placed(error, place) from None


def _bounds(
    cron: schedule_pb2.CronSchedule, now: int, place: str, limits: Limits
) -> tuple[int | None, int | None]:
    start_at = end_at = None
    if cron.HasField("start_time"):
        start_at = timestamp_ms(cron.start_time, f"{place}.start_time")
        if start_at > now + limits.delay_ms:
            raise invalid(
                f"{place}.start_time",
                f"must be at most {limits.delay_ms // 86_400_000} d from now",
                limit_ms=str(limits.delay_ms),
            )
    if cron.HasField("end_time"):
        end_at = timestamp_ms(cron.end_time, f"{place}.end_time")
        if start_at is not None and end_at <= start_at:
            raise invalid(f"{place}.end_time", "must be after start_time")
    return start_at, end_at


def placed(error: InvalidArgument, place: str) -> InvalidArgument:
    """A calendar's error with its field as the request has it."""
    field = f"{place}.{error.field}" if error.field else place
    between = " " if error.reason == FIELD_INVALID else ": "
    return InvalidArgument(
        error.reason,
        f"{field}{between}{error.message}",
        field=field,
        metadata={**error.metadata, "field": field},
    )


def first_time(calendar: Calendar, now: int, place: str) -> int:
    """The first nominal time after now; a schedule that has none is refused."""
    first = calendar.next_after(now)
    if first is None:
        raise placed(
            InvalidArgument(
                "CRON_NEVER_FIRES",
                "no time of the expression lies after now and between start_time and end_time",
                field="expression",
            ),
            place,
        )
    return first


def read_policy(cron: schedule_pb2.CronSchedule, place: str, limits: Limits) -> Policy:
    """The rules of a schedule besides its calendar."""
    catch_up = cron.catch_up
    window_ms, most = DEFAULT_POLICY.window_ms, DEFAULT_POLICY.max_catch_up
    if catch_up.HasField("window"):
        window_ms = duration_ms(
            catch_up.window, f"{place}.catch_up.window", maximum=limits.delay_ms
        )
    if catch_up.HasField("max_runs"):
        most = catch_up.max_runs
        if not 1 <= most <= MOST_CATCH_UP:
            raise invalid(
                f"{place}.catch_up.max_runs",
                f"must be 1 to {MOST_CATCH_UP}, it is {most}",
                limit=str(MOST_CATCH_UP),
            )
    return Policy(
        overlap=choice(cron.overlap_policy, OVERLAPS, f"{place}.overlap_policy"),
        catch_up=choice(catch_up.policy, CATCH_UPS, f"{place}.catch_up.policy"),
        window_ms=window_ms,
        max_catch_up=most,
        max_buffered=limits.buffered_instances,
        pause_on_failure=cron.pause_on_failure,
    )


# --- Out --------------------------------------------------------------------------------------


def cron_message(spec: CalendarSpec, policy: Policy) -> schedule_pb2.CronSchedule:
    """The schedule as submitted, its policies with their defaults filled in."""
    message = schedule_pb2.CronSchedule(
        expression=spec.expression,
        time_zone=spec.time_zone,
        exact=spec.exact,
        overlap_policy=schedule_pb2.OverlapPolicy.ValueType(policy.overlap),
        catch_up=schedule_pb2.CatchUp(
            policy=schedule_pb2.CatchUpPolicy.ValueType(policy.catch_up),
            window=duration(policy.window_ms),
            max_runs=policy.max_catch_up,
        ),
        dst_gap=schedule_pb2.DstGapPolicy.ValueType(_GAP_NUMBERS[spec.dst_gap]),
        dst_overlap=schedule_pb2.DstOverlapPolicy.ValueType(_OVERLAP_NUMBERS[spec.dst_overlap]),
        max_runs=spec.max_runs,
        exclusions=spec.exclusions,
        pause_on_failure=policy.pause_on_failure,
    )
    if spec.jitter_ms is not None:
        message.jitter.CopyFrom(duration(spec.jitter_ms))
    if spec.start_at is not None:
        message.start_time.CopyFrom(timestamp(spec.start_at))
    if spec.end_at is not None:
        message.end_time.CopyFrom(timestamp(spec.end_at))
    return message


def filled_message(
    spec: CalendarSpec, policy: Policy, calendar: Calendar, created_at: int
) -> schedule_pb2.CronSchedule:
    """The same with the defaults of its times as well."""
    message = cron_message(spec, policy)
    if spec.jitter_ms is None:
        message.jitter.CopyFrom(duration(DEFAULT_JITTER_MS if calendar.jitter_bound_ms else 0))
    if spec.start_at is None:
        message.start_time.CopyFrom(timestamp(created_at))
    return message
