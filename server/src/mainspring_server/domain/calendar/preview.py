"""The next times of a calendar, with what clock changes do to them."""

from __future__ import annotations

from typing import NamedTuple

from .calendar import Calendar
from .policy import DstEffect


class PreviewFire(NamedTuple):
    """One time of a preview; a SKIPPED one does not fire and stands at the end of its gap."""

    nominal_at: int
    local_time: str
    effect: DstEffect
    jitter_ms: int


def preview(calendar: Calendar, after: int, count: int, fired: int = 0) -> list[PreviewFire]:
    """The next `count` times strictly after an instant, and the skipped ones among them.

    Fewer where the schedule ends; `fired` instances count against its limited runs. Skipped times
    are listed for information and not counted.
    """
    left = calendar.runs_left(fired)
    limit = count if left is None else min(count, left)
    found: list[PreviewFire] = []
    since = after
    for nominal_at in calendar.fires(after + 1, calendar.end_at, limit):
        found += _skipped(calendar, since, nominal_at)
        found.append(
            PreviewFire(
                nominal_at,
                calendar.local_time(nominal_at),
                calendar.instants.effect_at(nominal_at),
                calendar.jitter_ms(nominal_at),
            )
        )
        since = nominal_at
    return found


def _skipped(calendar: Calendar, after: int, until: int) -> list[PreviewFire]:
    after = max(after, calendar.start_at - 1)
    return [
        PreviewFire(end, calendar.local_time(end), DstEffect.SKIPPED, 0)
        for end in calendar.instants.skipped_between(after, until)
    ]
