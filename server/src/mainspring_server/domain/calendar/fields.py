"""The fields of a cron expression: their bounds and names, and the values that a text stands for.

A set of values is a bit mask: bit n is set where n matches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from ..errors import InvalidArgument
from .hashing import draw_value

_DIGITS = re.compile(r"[0-9]{1,9}")
_HASHED = re.compile(r"H(?:\(([0-9]{1,2})-([0-9]{1,2})\))?(?:/([0-9]{1,9}))?")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Field:
    """One field: the values that may be written, and those that `H` draws from."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    # Where `H` may not use every value: the 29th is not in every month, 7 is Sunday again.
    hash_high: int | None = None

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        words = f"{self.low} to {self.high}"
        return f"{words} or {self.names[0]} to {self.names[-1]}" if self.names else words


MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
DAY_OF_MONTH = Field("day of month", 1, 31, hash_high=28)
MONTH = Field("month", 1, 12, MONTHS)
DAY_OF_WEEK = Field("day of week", 0, 7, WEEKDAYS, hash_high=6)

FIELDS = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)


def refuse(field: Field, text: str, problem: str) -> NoReturn:
    """Refuse a field with what is wrong in it.

    Raises:
        InvalidArgument: Always.
    """
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    raise InvalidArgument(
        "CRON_INVALID",
        f"{field.name} {shown!r}: {problem}",
        field="expression",
        metadata={"cron_field": field.name.replace(" ", "_")},
    )


def read_number(field: Field, text: str, whole: str) -> int:
    """One value, as a number or a name; `whole` is the text of the field for the message."""
    if text in field.names:
        return field.names.index(text) + field.low
    if not _DIGITS.fullmatch(text):
        what = f"{text!r} is no value" if text else "a value is missing"
        refuse(field, whole, f"{what}; expected {field.expected}")
    value = int(text)
    if not field.low <= value <= field.high:
        refuse(field, whole, f"{text} is out of range; expected {field.expected}")
    return value


def read_term(field: Field, term: str, whole: str) -> int:
    """The mask of `*`, a value or a range, each with or without a step."""
    base, slash, step_text = term.partition("/")
    if base == "*":
        low, high = field.low, field.high
    elif "-" in base:
        first, _, last = base.partition("-")
        low, high = read_number(field, first, whole), read_number(field, last, whole)
        if high < low:
            refuse(field, whole, f"the range {base} runs backwards; {_forwards(field, base)}")
    else:
        low = read_number(field, base, whole)
        # `5/15` begins at 5 and runs to the end of the field.
        high = field.high if slash else low
    return mask_of(low, high, _step(field, step_text, whole) if slash else 1)


def _forwards(field: Field, text: str) -> str:
    if field is DAY_OF_WEEK and text.endswith(("-SUN", "-0")):
        return f"write Sunday as 7 here: {text.rpartition('-')[0]}-7"
    return "write it as two ranges, separated by a comma"


def _step(field: Field, text: str, whole: str) -> int:
    if not _DIGITS.fullmatch(text) or int(text) == 0:
        refuse(field, whole, f"/{text} is no step; expected a number from 1")
    return int(text)


def mask_of(low: int, high: int, step: int = 1) -> int:
    """Every `step`-th value from `low` to `high`."""
    return sum(1 << value for value in range(low, high + 1, step))


def read_values(field: Field, text: str) -> int:
    """The mask of a comma list of values, ranges and steps."""
    mask = 0
    for term in text.split(","):
        mask |= read_term(field, term, text)
    return mask


def replace_hashes(field: Field, text: str, schedule_id: bytes) -> str:
    """The text with each `H` replaced by what this schedule's id draws."""
    if "H" not in text:
        return text
    terms = (_replace_hash(field, term, text, schedule_id) for term in text.split(","))
    return ",".join(terms)


def _replace_hash(field: Field, term: str, whole: str, schedule_id: bytes) -> str:
    if not term.startswith("H"):
        return term
    found = _HASHED.fullmatch(term)
    if found is None:
        refuse(field, whole, f"{term!r} is not read; expected H, H(low-high), H/step or both")
    first, last, step_text = found.groups()
    low, high = field.low, field.hash_high if field.hash_high is not None else field.high
    if first is not None:
        low, high = read_number(field, first, whole), read_number(field, last, whole)
        if high < low:
            refuse(field, whole, f"the range {first}-{last} runs backwards")
    if step_text is None:
        return str(draw_value(schedule_id, field.name, low, high))
    step = _step(field, step_text, whole)
    start = draw_value(schedule_id, field.name, low, min(low + step - 1, high))
    return f"{start}-{high}/{step}"
