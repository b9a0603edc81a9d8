"""From the wall clock to instants: how a calendar names nominal times.

Instants are milliseconds since the epoch, UTC. A search is bounded by the clock changes of a zone,
two or so a year, and by the years that calendars know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from .policy import DstEffect, DstGap, DstOverlap
from .wall import WallTimes
from .zones import Stretch, Zone

_MS = 1_000


class Instants(Protocol):
    """The nominal times of an expression in a zone."""

    def next_after(self, instant: int) -> int | None:
        """The first nominal time strictly after the instant."""

    def previous_before(self, instant: int) -> int | None:
        """The last nominal time strictly before the instant."""

    def effect_at(self, nominal_at: int) -> DstEffect:
        """What a clock change did to this nominal time."""

    def skipped_between(self, after: int, until: int, /) -> Iterator[int]:
        """The ends of the gaps in (after, until] that swallowed a nominal time."""


class CronInstants:
    """Nominal times of a cron expression.

    In each stretch of one offset the wall clock is a plain sum, and the policies only decide which
    part of the stretch counts. Fixed times in a gap become one instant, its end.
    """

    def __init__(
        self, wall: WallTimes, zone: Zone, *, real_time: bool, gap: DstGap, overlap: DstOverlap
    ) -> None:
        self._wall = wall
        self._zone = zone
        self._after_gap = not real_time and gap is DstGap.RUN_AFTER_GAP
        self._skips = not real_time and gap is DstGap.SKIP
        self._first = not real_time and overlap is DstOverlap.FIRST
        self._last = not real_time and overlap is DstOverlap.LAST

    def next_after(self, instant: int) -> int | None:
        """The first nominal time strictly after the instant."""
        second = max(instant // _MS + 1, 0)
        stretches = self._zone.stretches
        index = self._zone.index_at(second)
        searched, match = 1, 0
        while index < len(stretches):
            stretch = stretches[index]
            if second <= stretch.start:
                second = stretch.start
                if self._after_gap and self._in_gap(stretch, searched, match):
                    return second * _MS
            local = max(second + stretch.offset, self._begin(stretch))
            # What was found from further back still is the first match from here.
            if not searched <= local <= match:
                found = self._wall.next(local)
                if found is None:
                    return None
                searched, match = local, found
            if match < self._end(stretch):
                return (match - stretch.offset) * _MS
            second = stretch.end
            index += 1
        return None

    def previous_before(self, instant: int) -> int | None:
        """The last nominal time strictly before the instant."""
        second = -(-instant // _MS) - 1
        stretches = self._zone.stretches
        index = self._zone.index_at(second)
        second = min(second, stretches[-1].end - 1)
        while index >= 0 and second >= 0:
            stretch = stretches[index]
            local = min(second + stretch.offset, self._end(stretch) - 1)
            match = self._wall.previous(local)
            if match is not None and match >= self._begin(stretch):
                return (match - stretch.offset) * _MS
            if self._after_gap and self._in_gap(stretch):
                return stretch.start * _MS
            if match is None:
                return None
            second = stretch.start - 1
            index -= 1
        return None

    def effect_at(self, nominal_at: int) -> DstEffect:
        """What a clock change did to this nominal time."""
        second = nominal_at // _MS
        stretch = self._zone.stretches[self._zone.index_at(second)]
        local = second + stretch.offset
        if second == stretch.start and self._after_gap and self._in_gap(stretch):
            return DstEffect.AFTER_GAP
        return repetition(stretch, local)

    def skipped_between(self, after: int, until: int) -> Iterator[int]:
        """The ends of the gaps in (after, until] that swallowed a nominal time."""
        if not self._skips:
            return
        first = self._zone.index_at(max(after // _MS, 0)) + 1
        for stretch in self._zone.stretches[first:]:
            if stretch.start * _MS > until:
                return
            if stretch.start * _MS > after and self._in_gap(stretch):
                yield stretch.start * _MS

    def _in_gap(self, stretch: Stretch, searched: int = 1, known: int = 0) -> bool:
        """Whether a local time of the gap before the stretch matches.

        `known` is the first match from `searched` on, where the caller has looked.
        """
        if stretch.seen >= stretch.local_start:
            return False
        match = known if searched <= stretch.seen <= known else self._wall.next(stretch.seen)
        return match is not None and match < stretch.local_start

    def _begin(self, stretch: Stretch) -> int:
        return max(stretch.seen, stretch.local_start) if self._first else stretch.local_start

    def _end(self, stretch: Stretch) -> int:
        return stretch.final if self._last else stretch.local_end


def repetition(stretch: Stretch, local: int) -> DstEffect:
    """Which of two passes of the wall clock a local time of this stretch is."""
    if local < stretch.seen:
        return DstEffect.LAST
    if local >= stretch.final:
        return DstEffect.FIRST
    return DstEffect.NONE
