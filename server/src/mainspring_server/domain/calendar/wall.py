"""The wall clock without a zone: which local seconds an expression matches, less its exclusions.

Local seconds are counted from 1970-01-01 00:00:00 as if every day had 86,400 of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Protocol

from .expression import Expression
from .zones import LAST_YEAR

DAY = 86_400
_HOUR = 3_600
_MINUTE = 60
_ALL_SECONDS = (1 << 60) - 1
_WHOLE_DAY = (1 << DAY) - 1
_CARVED_KEPT = 64

_EPOCH = date(1970, 1, 1).toordinal()
# One year more at either end: local time runs up to a day ahead of UTC or behind it.
_YEARS = range(1969, LAST_YEAR + 2)
_YEAR_STARTS = tuple(date(year, 1, 1).toordinal() - _EPOCH for year in (*_YEARS, _YEARS[-1] + 1))
# Whether it is a leap year, and the weekday of 1 January: 0 is Sunday, and 1970 began on a Thursday.
_KINDS = tuple((end - start == 366, (start + 4) % 7) for start, end in pairwise(_YEAR_STARTS))


def day_number(day: date) -> int:
    """Days since the epoch."""
    return day.toordinal() - _EPOCH


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


class _Times(Protocol):
    """The matching seconds of one day."""

    def next(self, second: int) -> int | None:
        """The first at or after this second of the day."""

    def previous(self, second: int) -> int | None:
        """The last at or before this second of the day."""


@dataclass(frozen=True, slots=True)
class _ClockTimes:
    """Every combination of an hour, a minute and a second."""

    seconds: int
    minutes: int
    hours: int
    first: tuple[int, int]  # the earliest second, and the earliest second of an hour
    last: tuple[int, int]

    @staticmethod
    def of(expression: Expression) -> _ClockTimes:
        seconds, minutes, hours = expression.seconds, expression.minutes, expression.hours
        low = _lowest(minutes) * _MINUTE + _lowest(seconds)
        high = (minutes.bit_length() - 1) * _MINUTE + seconds.bit_length() - 1
        first = (_lowest(hours) * _HOUR + low, low)
        last = ((hours.bit_length() - 1) * _HOUR + high, high)
        return _ClockTimes(seconds, minutes, hours, first, last)

    def next(self, second: int) -> int | None:
        hour, rest = divmod(second, _HOUR)
        if self.hours >> hour & 1:
            minute, rest = divmod(rest, _MINUTE)
            if self.minutes >> minute & 1:
                later = self.seconds >> rest
                if later:
                    return second + _lowest(later)
            later = self.minutes >> (minute + 1)
            if later:
                minute += 1 + _lowest(later)
                return hour * _HOUR + minute * _MINUTE + _lowest(self.seconds)
        later = self.hours >> (hour + 1)
        return (hour + 1 + _lowest(later)) * _HOUR + self.first[1] if later else None

    def previous(self, second: int) -> int | None:
        hour, rest = divmod(second, _HOUR)
        if self.hours >> hour & 1:
            minute, rest = divmod(rest, _MINUTE)
            if self.minutes >> minute & 1:
                earlier = self.seconds & (2 << rest) - 1
                if earlier:
                    return second - rest + earlier.bit_length() - 1
            earlier = self.minutes & (1 << minute) - 1
            if earlier:
                minute = earlier.bit_length() - 1
                return hour * _HOUR + minute * _MINUTE + self.seconds.bit_length() - 1
        earlier = self.hours & (1 << hour) - 1
        return (earlier.bit_length() - 1) * _HOUR + self.last[1] if earlier else None

    def mask(self) -> int:
        """The same as 86,400 bits."""
        hour = _repeat(self.seconds, self.minutes, _MINUTE)
        return _repeat(hour, self.hours, _HOUR)


def _repeat(pattern: int, where: int, width: int) -> int:
    mask = 0
    while where:
        place = _lowest(where)
        mask |= pattern << place * width
        where &= where - 1
    return mask


@dataclass(frozen=True, slots=True)
class _CarvedTimes:
    """What exclusions leave of a day, second by second."""

    bits: int

    def next(self, second: int) -> int | None:
        later = self.bits >> second
        return second + _lowest(later) if later else None

    def previous(self, second: int) -> int | None:
        earlier = self.bits & (2 << second) - 1
        return earlier.bit_length() - 1 if earlier else None


class WallTimes:
    """The local seconds that an expression matches, from 1970 to LAST_YEAR."""

    def __init__(
        self,
        expression: Expression,
        without: Sequence[Expression] = (),
        without_days: Sequence[date] = (),
    ) -> None:
        self._days = expression.days
        self._times = _ClockTimes.of(expression)
        self._without = [(other.days, _left_by(other)) for other in without]
        self._without_days = _by_year(without_days)
        self._bits = self._times.mask() if without or without_days else 0
        # Answers that were needed once; at most fourteen kinds of year.
        self._masks: dict[tuple[bool, int], int] = {}
        self._others: dict[tuple[bool, int], list[int]] = {}
        self._carved: dict[int, _CarvedTimes] = {}

    def next(self, second: int) -> int | None:
        """The first match at or after this local second."""
        day, rest = divmod(second, DAY)
        matching = self._next_day(day)
        if matching == day:
            found = self._times_of(day).next(rest)
            if found is not None:
                return day * DAY + found
            matching = self._next_day(day + 1)
        if matching is None:
            return None
        found = self._times_of(matching).next(0)
        assert found is not None, "a day without times is no matching day"
        return matching * DAY + found

    def previous(self, second: int) -> int | None:
        """The last match at or before this local second."""
        day, rest = divmod(second, DAY)
        matching = self._previous_day(day)
        if matching == day:
            found = self._times_of(day).previous(rest)
            if found is not None:
                return day * DAY + found
            matching = self._previous_day(day - 1)
        if matching is None:
            return None
        found = self._times_of(matching).previous(DAY - 1)
        assert found is not None, "a day without times is no matching day"
        return matching * DAY + found

    def day_mask(self, day: int) -> int:
        """The matching seconds of a day since the epoch, one bit each."""
        if self._next_day(day) != day:
            return 0
        times = self._times_of(day)
        return times.bits if isinstance(times, _CarvedTimes) else self._bits or self._times.mask()

    def _next_day(self, day: int) -> int | None:
        year = bisect_right(_YEAR_STARTS, day) - 1
        if not 0 <= year < len(_YEARS):
            return None if year >= 0 else self._next_day(_YEAR_STARTS[0])
        later = self._year_mask(year) >> (day - _YEAR_STARTS[year])
        if later:
            return day + _lowest(later)
        for after in range(year + 1, len(_YEARS)):
            mask = self._year_mask(after)
            if mask:
                return _YEAR_STARTS[after] + _lowest(mask)
        return None

    def _previous_day(self, day: int) -> int | None:
        year = min(bisect_right(_YEAR_STARTS, day), len(_YEARS)) - 1
        if year < 0:
            return None
        earlier = self._year_mask(year) & (2 << day - _YEAR_STARTS[year]) - 1
        while not earlier and year:
            year -= 1
            earlier = self._year_mask(year)
        return _YEAR_STARTS[year] + earlier.bit_length() - 1 if earlier else None

    def _year_mask(self, year: int) -> int:
        kind = _KINDS[year]
        mask = self._masks.get(kind)
        if mask is None:
            mask = self._masks[kind] = self._kind_mask(kind)
        left_out = self._without_days.get(year) if self._without_days else None
        return mask & ~left_out if left_out else mask

    def _kind_mask(self, kind: tuple[bool, int]) -> int:
        """The days on which something is left, in years of this kind."""
        mask = self._days.year_mask(*kind)
        if self._without:
            others = self._others[kind] = [days.year_mask(*kind) for days, _ in self._without]
            touched = mask
            while touched:
                day = _lowest(touched)
                touched &= touched - 1
                active = _active(others, day)
                if active and not self._carve(active).bits:
                    mask &= ~(1 << day)
        return mask

    def _times_of(self, day: int) -> _Times:
        if not self._without:
            return self._times
        year = bisect_right(_YEAR_STARTS, day) - 1
        active = _active(self._others[_KINDS[year]], day - _YEAR_STARTS[year])
        return self._carve(active) if active else self._times

    def _carve(self, active: int) -> _CarvedTimes:
        found = self._carved.get(active)
        if found is None:
            bits = self._bits
            for index, (_, left) in enumerate(self._without):
                if active >> index & 1:
                    bits &= left
                    if not bits:
                        break
            if len(self._carved) >= _CARVED_KEPT:
                self._carved.clear()
            found = self._carved[active] = _CarvedTimes(bits)
        return found


def _left_by(excluded: Expression) -> int:
    """What an exclusion leaves of a day; one that names no seconds leaves whole minutes out."""
    times = _ClockTimes.of(excluded)
    if excluded.clock_aligned:
        out = _repeat(_repeat(_ALL_SECONDS, times.minutes, _MINUTE), times.hours, _HOUR)
    else:
        out = times.mask()
    return _WHOLE_DAY & ~out


def _active(masks: list[int], day: int) -> int:
    return sum(1 << index for index, mask in enumerate(masks) if mask >> day & 1)


def _by_year(days: Sequence[date]) -> Mapping[int, int]:
    found: dict[int, int] = {}
    for day in days:
        year = day.year - _YEARS[0]
        if 0 <= year < len(_YEARS):
            found[year] = found.get(year, 0) | 1 << day_number(day) - _YEAR_STARTS[year]
    return found
