"""Reads a compiled time zone (TZif, RFC 9636): when its offset changes, up to the end of a year.

`zoneinfo` answers one instant at a time and does not tell its transitions; a calendar needs them to
jump from one clock change to the next.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

_HEADER = struct.Struct(">4sc15x6l")
_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86_400
# Rules speak of local years; UTC can be a day off at either end.
_RULE_HOUR = 2


class Transitions(NamedTuple):
    """`offset` until the first of `times`, then `offsets[i]` from `times[i]` on; all in seconds."""

    offset: int
    times: list[int]
    offsets: list[int]


class _Rule(NamedTuple):
    """One change a year: `Mm.w.d`, `Jn` or `n` of a POSIX TZ string, with its local second."""

    kind: str
    numbers: tuple[int, ...]
    second: int

    def at(self, year: int) -> int:
        """The local second since the epoch of this year's change."""
        return self._day(year) * _DAY + self.second

    def _day(self, year: int) -> int:
        first = date(year, 1, 1).toordinal() - _EPOCH
        if self.kind == "":
            return first + self.numbers[0]
        if self.kind == "J":
            # Day n of a year without 29 February.
            leap = date(year, 12, 31).toordinal() - date(year, 1, 1).toordinal() == 365
            return first + self.numbers[0] - 1 + (leap and self.numbers[0] >= 60)
        month, week, weekday = self.numbers
        start = date(year, month, 1)
        day = start.toordinal() - _EPOCH + (weekday - start.isoweekday()) % 7 + (week - 1) * 7
        after = date(year + month // 12, month % 12 + 1, 1).toordinal() - _EPOCH
        return day if day < after else day - 7


class _Footer(NamedTuple):
    """What a POSIX TZ string says: an offset, or two with the rules that lead into each."""

    standard: int
    summer: int | None = None
    summer_from: _Rule | None = None
    summer_until: _Rule | None = None

    def changes(self, year: int) -> Iterator[tuple[int, int]]:
        """The year's changes as (UTC second, offset from then on)."""
        if self.summer is None or self.summer_from is None or self.summer_until is None:
            return
        yield self.summer_from.at(year) - self.standard, self.summer
        yield self.summer_until.at(year) - self.summer, self.standard


_NAME = r"(?:<[^>]+>|[A-Za-z]+)"
_OFFSET = r"[+-]?\d+(?::\d+){0,2}"
_DATE = r"(?:M\d+\.\d+\.\d+|J?\d+)"
_FOOTER = re.compile(
    rf"{_NAME}({_OFFSET})(?:{_NAME}({_OFFSET})?,({_DATE})(?:/({_OFFSET}))?,({_DATE})(?:/({_OFFSET}))?)?"
)


def _seconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = ([int(part) for part in text.lstrip("+-").split(":")] + [0, 0])[:3]
    return sign * (hours * 3_600 + minutes * 60 + seconds)


def _rule(text: str, time: str | None) -> _Rule:
    kind = text[0] if text[0] in "MJ" else ""
    numbers = tuple(int(part) for part in text.removeprefix(kind).split("."))
    return _Rule(kind, numbers, _seconds(time) if time else _RULE_HOUR * 3_600)


def _read_footer(text: str) -> _Footer:
    found = _FOOTER.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no POSIX TZ string")
    standard, summer, start, start_time, end, end_time = found.groups()
    # POSIX counts westwards.
    offset = -_seconds(standard)
    if start is None:
        return _Footer(offset)
    ahead = -_seconds(summer) if summer else offset + 3_600
    return _Footer(offset, ahead, _rule(start, start_time), _rule(end, end_time))


def read_tzif(data: bytes, last_year: int) -> Transitions:
    """The transitions of a TZif file of version 2 or later, its rules applied through `last_year`.

    Raises:
        ValueError: The bytes are no such file.
    """
    first = _header(data, 0)
    start = _HEADER.size + _block_size(first, 4)
    counts = _header(data, start)
    leaps, time_count, type_count = counts[2], counts[3], counts[4]
    assert leaps == 0, "the tz database is compiled without leap seconds"
    at = start + _HEADER.size
    times = list(struct.unpack_from(f">{time_count}q", data, at))
    kinds = data[at + 8 * time_count : at + 9 * time_count]
    at += 9 * time_count
    types = [struct.unpack_from(">lBB", data, at + 6 * index)[0] for index in range(type_count)]
    offsets = [types[kind] for kind in kinds]
    end = start + _HEADER.size + _block_size(counts, 8)
    footer = data[end:].strip(b"\n").decode("ascii")
    if footer:
        _apply_rules(_read_footer(footer), times, offsets, last_year)
    return Transitions(types[0], times, offsets)


def _header(data: bytes, at: int) -> tuple[int, ...]:
    magic, version, *counts = _HEADER.unpack_from(data, at)
    if magic != b"TZif" or version < b"2":
        raise ValueError("not a TZif file of version 2 or later")
    return tuple(counts)


def _block_size(counts: tuple[int, ...], width: int) -> int:
    ut, standard, leaps, times, types, characters = counts
    return times * (width + 1) + types * 6 + characters + leaps * (width + 4) + standard + ut


def _apply_rules(footer: _Footer, times: list[int], offsets: list[int], last_year: int) -> None:
    known = times[-1] if times else 0
    first_year = date.fromordinal(known // _DAY + _EPOCH).year
    for year in range(first_year, last_year + 1):
        for at, offset in sorted(footer.changes(year)):
            if at > known:
                times.append(at)
                offsets.append(offset)
