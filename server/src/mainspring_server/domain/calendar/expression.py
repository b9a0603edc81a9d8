"""Reads what people write: five or six fields, `@daily` and its like, `@every 90s`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from ..errors import InvalidArgument
from .days import EVERY_DAY, Days, read_month_days, read_week_days
from .fields import FIELDS, HOUR, MINUTE, MONTH, SECOND, mask_of, read_values, replace_hashes

LONGEST = 256
"""Characters of an expression at most."""

SHORTEST_EVERY_MS = 1_000
"""An interval of `@every` at least."""

LONGEST_EVERY_MS = 3_653 * 86_400_000
"""An interval of `@every` at most: ten years."""

_CACHED = 16_384

_MACROS = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_UNITS_MS = {"MS": 1, "S": 1_000, "M": 60_000, "H": 3_600_000, "D": 86_400_000, "W": 604_800_000}
_DURATION = re.compile(r"(?:[0-9]{1,12}(?:MS|S|M|H|D|W))+")
_PART = re.compile(r"([0-9]+)(MS|S|M|H|D|W)")


@dataclass(frozen=True, slots=True)
class Expression:
    """A cron expression as masks. `real_time`: its hour or minute field begins with `*`."""

    seconds: int
    minutes: int
    hours: int
    days: Days
    real_time: bool

    @property
    def clock_aligned(self) -> bool:
        """Whether it names whole minutes: where everybody's schedules fall together."""
        return self.seconds == 1


@dataclass(frozen=True, slots=True)
class Every:
    """`@every`: an interval of real time, counted from an anchor."""

    interval_ms: int


EVERY_SECOND = Expression(
    seconds=mask_of(0, 59),
    minutes=mask_of(0, 59),
    hours=mask_of(0, 23),
    days=EVERY_DAY,
    real_time=True,
)
"""`* * * * * *`."""


def read_expression(text: str, schedule_id: bytes) -> Expression | Every:
    """The meaning of an expression; `schedule_id` decides what `H` stands for.

    Raises:
        InvalidArgument: CRON_INVALID, with the field at fault and what was expected.
    """
    return _read(resolve(text, schedule_id))


def resolve(text: str, schedule_id: bytes) -> str:
    """The expression as everybody would write it: six plain fields, or `@every` and its duration.

    Equal results mean equal calendars, so this is what a cache goes by.

    Raises:
        InvalidArgument: CRON_INVALID, where the shape is wrong; what `_read` finds comes later.
    """
    if len(text) > LONGEST:
        _refuse(f"has {len(text)} characters; expected at most {LONGEST}")
    if not text.isascii():
        _refuse("has characters outside ASCII")
    parts = text.upper().split()
    if not parts:
        _refuse("is empty; expected five fields, as in 0 9 * * MON-FRI")
    if parts[0].startswith("@"):
        if parts[0] == "@EVERY":
            return " ".join(parts)
        parts = _macro(parts)
    if parts[0].startswith(("TZ=", "CRON_TZ=")):
        _refuse("names a time zone; set time_zone instead")
    if len(parts) == 5:
        parts.insert(0, "0")
    if len(parts) != 6:
        _refuse(f"has {len(parts)} fields; expected 5, or 6 with leading seconds")
    # `?` means "not this one" elsewhere; here that is what `*` does in a day field.
    for index in (3, 5):
        if parts[index] == "?":
            parts[index] = "*"
    if "H" in text.upper():
        parts = [
            replace_hashes(field, part, schedule_id)
            for field, part in zip(FIELDS, parts, strict=True)
        ]
    return " ".join(parts)


def _macro(parts: list[str]) -> list[str]:
    if parts[0] == "@REBOOT":
        _refuse("@reboot names no time: that a machine starts is no event of a calendar", "")
    if parts[0] not in _MACROS or len(parts) > 1:
        known = ", ".join(sorted(name.lower() for name in _MACROS))
        _refuse(f"is not read; expected {known} alone, or @every and a duration")
    return _MACROS[parts[0]].split()


@lru_cache(maxsize=_CACHED)
def _read(resolved: str) -> Expression | Every:
    parts = resolved.split(" ")
    if parts[0] == "@EVERY":
        return Every(_interval_ms("".join(parts[1:])))
    second, minute, hour, month_day, month, week_day = parts
    return Expression(
        seconds=read_values(SECOND, second),
        minutes=read_values(MINUTE, minute),
        hours=read_values(HOUR, hour),
        days=Days(
            months=read_values(MONTH, month),
            month_days=read_month_days(month_day),
            week_days=read_week_days(week_day),
            both=month_day.startswith("*") or week_day.startswith("*"),
        ),
        real_time=minute.startswith("*") or hour.startswith("*"),
    )


def _interval_ms(text: str) -> int:
    if not _DURATION.fullmatch(text):
        _refuse(
            f"has no duration after @every, but {text.lower()!r}; expected one like 90s or 1h30m"
        )
    total = sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))
    if total % 1_000:
        _refuse(f"has an interval of {text.lower()}; expected whole seconds")
    if not SHORTEST_EVERY_MS <= total <= LONGEST_EVERY_MS:
        _refuse(
            f"has an interval of {text.lower()}; expected 1s to {LONGEST_EVERY_MS // 86_400_000}d"
        )
    return total


def _refuse(problem: str, subject: str = "the expression ") -> NoReturn:
    raise InvalidArgument("CRON_INVALID", f"{subject}{problem}", field="expression")
