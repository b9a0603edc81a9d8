"""Which days a cron expression names: day of month, month and day of week together.

A year's days depend on two things alone, whether it is a leap year and on which weekday it begins.
So fourteen masks of 366 bits answer for every year, and an expression that matches none of the
fourteen never matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .fields import DAY_OF_MONTH, DAY_OF_WEEK, Field, read_number, read_term, refuse

_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_WEEKLY = sum(1 << day for day in range(0, 35, 7))
_SATURDAY, _SUNDAY = 6, 0
_EVERY_DAY_OF_MONTH = (1 << 32) - 2
_EVERY_WEEKDAY = (1 << 7) - 1


@dataclass(frozen=True, slots=True)
class MonthDays:
    """The day-of-month field: plain days (bits 1 to 31), and those counted from elsewhere."""

    days: int = 0
    from_last: tuple[int, ...] = ()  # L is 0, L-3 is 3
    last_weekday: bool = False  # LW
    nearest: tuple[int, ...] = ()  # 15W

    def mask(self, length: int, first_weekday: int) -> int:
        """Bits 0 to length - 1 of a month that begins on this weekday (0 is Sunday)."""
        mask = (self.days >> 1) & ((1 << length) - 1)
        for back in self.from_last:
            if back < length:
                mask |= 1 << (length - 1 - back)
        if self.last_weekday:
            mask |= 1 << _nearest_weekday(length - 1, length, first_weekday)
        for day in self.nearest:
            if day <= length:
                mask |= 1 << _nearest_weekday(day - 1, length, first_weekday)
        return mask


def _nearest_weekday(index: int, length: int, first_weekday: int) -> int:
    """The nearest Monday to Friday that lies in the same month."""
    weekday = (first_weekday + index) % 7
    if weekday == _SATURDAY:
        return index - 1 if index else index + 2
    if weekday == _SUNDAY:
        return index + 1 if index + 1 < length else index - 2
    return index


@dataclass(frozen=True, slots=True)
class WeekDays:
    """The day-of-week field: plain weekdays (bits 0 to 6), the n-th and the last of a month."""

    days: int = 0
    nth: tuple[tuple[int, int], ...] = ()  # (weekday, n)
    last: tuple[int, ...] = ()

    def mask(self, length: int, first_weekday: int) -> int:
        """Bits 0 to length - 1 of a month that begins on this weekday (0 is Sunday)."""
        mask = 0
        for weekday in range(7):
            if self.days >> weekday & 1:
                mask |= _WEEKLY << (weekday - first_weekday) % 7
        for weekday, n in self.nth:
            mask |= 1 << (weekday - first_weekday) % 7 + 7 * (n - 1)
        for weekday in self.last:
            first = (weekday - first_weekday) % 7
            mask |= 1 << first + (length - 1 - first) // 7 * 7
        return mask & ((1 << length) - 1)


@dataclass(frozen=True, slots=True)
class Days:
    """The days of an expression. `both` is Debian's rule: AND where either field begins with `*`."""

    months: int
    month_days: MonthDays
    week_days: WeekDays
    both: bool

    def year_mask(self, leap: bool, first_weekday: int) -> int:
        """Bit n is day n (from 0) of a year that begins on this weekday (0 is Sunday)."""
        mask = 0
        start = 0
        for month, length, weekday in _months(leap, first_weekday):
            if self.months >> month & 1:
                mask |= self._month_mask(length, weekday) << start
            start += length
        return mask

    def _month_mask(self, length: int, first_weekday: int) -> int:
        month_days = self.month_days.mask(length, first_weekday)
        week_days = self.week_days.mask(length, first_weekday)
        return month_days & week_days if self.both else month_days | week_days


def _months(leap: bool, first_weekday: int) -> Iterator[tuple[int, int, int]]:
    for month, usual in enumerate(_LENGTHS, 1):
        length = usual + (leap and month == 2)
        yield month, length, first_weekday
        first_weekday = (first_weekday + length) % 7


def read_month_days(text: str) -> MonthDays:
    """The day-of-month field."""
    field = DAY_OF_MONTH
    days, from_last, last_weekday, nearest = 0, [], False, []
    for term in text.split(","):
        if term == "LW":
            last_weekday = True
        elif term.startswith("L"):
            from_last.append(_from_last(field, term, text))
        elif term.endswith("W"):
            if term == "W":
                refuse(field, text, "W wants a day before it, as in 15W")
            nearest.append(read_number(field, term[:-1], text))
        else:
            days |= read_term(field, term, text)
    return MonthDays(days, tuple(from_last), last_weekday, tuple(nearest))


def _from_last(field: Field, term: str, text: str) -> int:
    if term == "L":
        return 0
    if not term.startswith("L-"):
        refuse(field, text, f"{term!r} is not read; expected L, LW or L-1 to L-30")
    back = read_number(field, term[2:], text)
    if back == field.high:
        refuse(field, text, f"{term} is before every month's first day; expected L-1 to L-30")
    return back


def read_week_days(text: str) -> WeekDays:
    """The day-of-week field; 0 and 7 are both Sunday."""
    field = DAY_OF_WEEK
    days, nth, last = 0, [], []
    for term in text.split(","):
        weekday, hash_sign, count = term.partition("#")
        if hash_sign:
            if count.lstrip("0") not in ("1", "2", "3", "4", "5"):
                refuse(field, text, f"#{count} is no week of a month; expected #1 to #5")
            nth.append((read_number(field, weekday, text) % 7, int(count)))
        elif term.endswith("L"):
            if term == "L":
                refuse(field, text, "L wants a weekday before it, as in 5L")
            last.append(read_number(field, term[:-1], text) % 7)
        else:
            mask = read_term(field, term, text)
            # Bit 7 is Sunday too.
            days |= (mask | mask >> 7) & _EVERY_WEEKDAY
    return WeekDays(days, tuple(nth), tuple(last))


EVERY_DAY = Days(
    months=(1 << 13) - 2,
    month_days=MonthDays(_EVERY_DAY_OF_MONTH),
    week_days=WeekDays(_EVERY_WEEKDAY),
    both=True,
)
"""The days of `* * *`."""
