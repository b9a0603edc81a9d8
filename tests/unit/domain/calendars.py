"""Short ways to ask a calendar: local times in, local times out."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any

from mainspring_server.domain.calendar import Calendar, CalendarSpec, parse

HOUR = 3_600_000
DAY = 24 * HOUR


def at(text: str) -> int:
    """Milliseconds of an RFC 3339 time; without an offset it is UTC."""
    instant = datetime.fromisoformat(text if text[-6] in "+-" else f"{text}+00:00")
    return round(instant.timestamp() * 1_000)


def calendar(expression: str, zone: str = "UTC", **options: Any) -> Calendar:
    """A calendar of the expression."""
    return parse(CalendarSpec(expression, zone, **options))


def fires(expression: str, after: str, count: int, zone: str = "UTC", **options: Any) -> list[str]:
    """The next local times; whichever way they are asked for, they are the same."""
    found = calendar(expression, zone, **options)
    times = found.between(at(after), found.end_at, count)
    for earlier, later in pairwise(times):
        assert found.next_after(earlier) == later
        assert found.previous_before(later) == earlier
    return [found.local_time(time) for time in times]


def days(expression: str, after: str, count: int) -> list[str]:
    """The next days, in UTC."""
    return [time.partition("T")[0] for time in fires(expression, after, count)]
