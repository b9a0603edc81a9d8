"""Time zones as a calendar needs them: the stretches of one offset, and what happens between them.

The data is that of the `tzdata` package, never the host's: two nodes of a cluster agree, and the
version that is recorded with a schedule is the one that was used.
"""

from __future__ import annotations

from bisect import bisect_right
from difflib import get_close_matches
from functools import cache
from importlib import import_module, resources
from typing import NamedTuple

from ..errors import InvalidArgument
from .tzif import read_tzif

LAST_YEAR = 2199
"""Calendars know the years 1970 to this one."""

END_OF_TIME = 7_258_118_400
"""The second at which LAST_YEAR ends, in UTC."""

_LONGEST_NAME = 64
_SUGGESTIONS = 3


class Stretch(NamedTuple):
    """A time of one UTC offset, between two clock changes. All values are seconds.

    `local_start` and `local_end` are its bounds on the wall clock. `seen` is how far the wall clock
    had come before it: `seen < local_start` is a gap, `seen > local_start` a repetition.
    `final` is where it begins to show times that a later stretch shows again.
    """

    start: int
    end: int
    offset: int
    local_start: int
    local_end: int
    seen: int
    final: int


class Zone(NamedTuple):
    """An IANA zone from 1970 to LAST_YEAR."""

    name: str
    starts: tuple[int, ...]
    stretches: tuple[Stretch, ...]

    def index_at(self, second: int) -> int:
        """Which stretch holds this UTC second; the first and last also hold what lies outside."""
        return max(bisect_right(self.starts, second) - 1, 0)

    def offset_at(self, second: int) -> int:
        """Seconds that the wall clock is ahead of UTC."""
        return self.stretches[self.index_at(second)].offset


def tzdata_version() -> str:
    """The version of the tz database in use, as IANA names it: 2026a."""
    return str(import_module("tzdata").IANA_VERSION)


@cache
def zone_names() -> frozenset[str]:
    """Every name that a schedule may use, links like `US/Eastern` among them."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("ascii").split())


def find_zone(name: str) -> Zone:
    """The zone of this name; empty means UTC.

    Raises:
        InvalidArgument: TIME_ZONE_UNKNOWN, with the closest names.
    """
    name = name or "UTC"
    if name not in zone_names():
        raise InvalidArgument("TIME_ZONE_UNKNOWN", _unknown(name), field="time_zone")
    return _load(name)


def _unknown(name: str) -> str:
    if len(name) > _LONGEST_NAME:
        return f"a time zone's name has at most {_LONGEST_NAME} characters, this has {len(name)}"
    # People know the city; the whole name is compared too, for typing errors in either part.
    spellings: dict[str, str] = {}
    for known in sorted(zone_names()):
        spellings[known.casefold()] = known
        spellings.setdefault(known.rpartition("/")[2].casefold(), known)
    wanted = name.strip().replace(" ", "_").casefold()
    close = get_close_matches(wanted, spellings, n=_SUGGESTIONS, cutoff=0.7)
    names = list(dict.fromkeys(spellings[spelling] for spelling in close))
    hint = f"did you mean {' or '.join(names)}?" if names else "expected a name like Europe/Berlin"
    return f"{name!r} is no time zone of the IANA database; {hint}"


@cache
def _load(name: str) -> Zone:
    # The name is one of the list, so the path stays inside the package.
    data = resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    offset, times, offsets = read_tzif(data, LAST_YEAR)
    bounds = [(0, offset)]
    for at, changed in zip(times, offsets, strict=True):
        if at <= 0:
            bounds[0] = (0, changed)
        elif at < END_OF_TIME and changed != bounds[-1][1]:
            bounds.append((at, changed))
    stretches = _stretches(bounds)
    return Zone(name, tuple(stretch.start for stretch in stretches), stretches)


def _stretches(bounds: list[tuple[int, int]]) -> tuple[Stretch, ...]:
    ends = [start for start, _ in bounds[1:]] + [END_OF_TIME]
    found: list[Stretch] = []
    seen = bounds[0][1]
    for (start, offset), end in zip(bounds, ends, strict=True):
        local_end = end + offset
        found.append(Stretch(start, end, offset, start + offset, local_end, seen, local_end))
        seen = max(seen, local_end)
    # From the back: what a later stretch shows once more.
    again = found[-1].local_end
    for index in range(len(found) - 1, -1, -1):
        stretch = found[index]
        found[index] = stretch._replace(final=min(stretch.local_end, again))
        again = min(again, stretch.local_start)
    return tuple(found)
