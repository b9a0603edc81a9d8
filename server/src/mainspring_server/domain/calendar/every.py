"""Nominal times of `@every`: an anchor, and every interval of real time after it.

Exclusions are looked at a day at a time: the ticks of a day are one bit mask, what the exclusions
leave of it is another.
"""

from __future__ import annotations

from collections.abc import Iterator

from .instants import repetition
from .policy import DstEffect
from .wall import DAY, WallTimes
from .zones import END_OF_TIME, Stretch, Zone

MOST_EXCLUDED = 4_000
"""Days (ticks, where these are rarer) in a row of which exclusions may leave no tick: some eleven
years. After that a search ends as if there were none."""

_MS = 1_000


class EveryInstants:
    """Nominal times at an anchor and every interval of whole seconds after it.

    `allowed` are the local seconds that exclusions leave, None where there are no exclusions.
    """

    def __init__(
        self, interval_ms: int, anchor_at: int, zone: Zone, allowed: WallTimes | None
    ) -> None:
        self._interval = interval_ms
        self._anchor = anchor_at
        self._zone = zone
        self._allowed = allowed
        # The seconds of a day that begins with a tick.
        self._ticks = sum(1 << at for at in range(0, DAY, interval_ms // _MS)) if allowed else 0
        self._looked = (0, 0, 0, 0)

    def next_after(self, instant: int) -> int | None:
        """The first nominal time strictly after the instant."""
        tick = self._at_or_after(instant + 1)
        if self._allowed is None:
            return tick
        for _ in range(MOST_EXCLUDED):
            if tick >= END_OF_TIME * _MS:
                return None
            stretch = self._zone.stretches[self._zone.index_at(tick // _MS)]
            found, searched = self._first_of_day(self._allowed, stretch, tick // _MS)
            if found is not None:
                return self._at_or_after(found * _MS)
            if searched is None:
                return None
            tick = self._at_or_after(searched * _MS)
        return None

    def previous_before(self, instant: int) -> int | None:
        """The last nominal time strictly before the instant."""
        tick = self._at_or_before(min(instant, END_OF_TIME * _MS) - 1)
        for _ in range(MOST_EXCLUDED):
            if tick < self._anchor:
                return None
            if self._allowed is None:
                return tick
            stretch = self._zone.stretches[self._zone.index_at(tick // _MS)]
            found, searched = self._last_of_day(self._allowed, stretch, tick // _MS)
            if found is not None:
                return self._at_or_after(found * _MS)
            if searched is None:
                return None
            tick = self._at_or_before(searched * _MS - 1)
        return None

    def effect_at(self, nominal_at: int) -> DstEffect:
        """What a clock change did to this nominal time: its wall time may show twice."""
        second = nominal_at // _MS
        stretch = self._zone.stretches[self._zone.index_at(second)]
        return repetition(stretch, second + stretch.offset)

    def skipped_between(self, _after: int, _until: int, /) -> Iterator[int]:
        """None: an interval runs through real time."""
        yield from ()

    def _first_of_day(
        self, allowed: WallTimes, stretch: Stretch, second: int
    ) -> tuple[int | None, int | None]:
        """The first second from this tick's on in its day that is left, or where to search on."""
        local = second + stretch.offset
        day, rest = divmod(local, DAY)
        mask = allowed.day_mask(day)
        if mask >> rest & 1:
            return second, None
        end = min((day + 1) * DAY, stretch.local_end)
        left = self._left(mask, rest, end - local)
        if left:
            return second + (left & -left).bit_length() - 1, None
        # Past all the days of which nothing is left at once.
        free = end if mask else allowed.next(end)
        return None, None if free is None else min(free, stretch.local_end) - stretch.offset

    def _left(self, mask: int, rest: int, length: int) -> int:
        """The ticks of a day that are left, counted from the tick at its second `rest`."""
        known, at, span, left = self._looked
        # Day after day is the same where the interval divides the day.
        if known is not mask or (at, span) != (rest, length):
            left = (mask >> rest) & self._ticks & (1 << length) - 1
            self._looked = (mask, rest, length, left)
        return left

    def _last_of_day(
        self, allowed: WallTimes, stretch: Stretch, second: int
    ) -> tuple[int | None, int | None]:
        """The last second up to this tick's in its day that is left, or what to search before."""
        local = second + stretch.offset
        day, rest = divmod(local, DAY)
        mask = allowed.day_mask(day)
        if mask >> rest & 1:
            return second, None
        begin = max(day * DAY, stretch.local_start)
        ticks = self._ticks << rest % (self._interval // _MS)
        left = (mask & ticks & (2 << rest) - 1) >> (begin - day * DAY)
        if left:
            return begin + left.bit_length() - 1 - stretch.offset, None
        free = begin - 1 if mask else allowed.previous(begin - 1)
        if free is None:
            return None, None
        return None, max(free + 1, stretch.local_start) - stretch.offset

    def _at_or_after(self, instant: int) -> int:
        steps = max(-(-(instant - self._anchor) // self._interval), 0)
        return self._anchor + steps * self._interval

    def _at_or_before(self, instant: int) -> int:
        return self._anchor + (instant - self._anchor) // self._interval * self._interval
