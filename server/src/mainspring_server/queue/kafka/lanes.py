"""The lanes that this node serves, and how each fares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

LINGER_MS = 3_000
"""A lane stays served for so long after its last worker left: workers that poll come back."""

SETTLE_MS = 1_000
"""A lane that is new here is given so long to be read before its tasks are claimed from the store."""

WITHOUT_CREDIT_MS = 250
"""So long may read tasks wait for credit where another node serves the lane too."""


@dataclass(slots=True)
class Lane:
    """A served lane. Times are monotonic.

    `starved` means that it has had no credit while tasks were there: its partitions are others'
    until a claim shows that it has credit again.
    """

    credits: int
    left_at: int | None = None  # no worker is connected since
    rivals: bool = False  # other nodes serve it too
    starved: bool = False
    waiting_since: int | None = None  # tasks are there and nobody claims them
    short: bool = False  # part of it cannot be read through Kafka: claim from the store as well
    steal_at: int = 0
    steal_pause: int = 0


class Lanes:
    """Served lanes by name."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._lanes: dict[str, Lane] = {}
        self._changed = changed

    def serve(self, credits_: Mapping[str, int], now: int) -> None:
        """These lanes are served now; wakes the owner of partitions where that is news."""
        news = False
        for name, lane in list(self._lanes.items()):
            if name in credits_:
                lane.left_at = None
            elif lane.left_at is None:
                lane.left_at = now
            elif now >= lane.left_at + LINGER_MS:
                del self._lanes[name]
                news = True
        for name, count in credits_.items():
            found = self._lanes.get(name)
            if found is None:
                self._lanes[name] = Lane(count, steal_at=now + SETTLE_MS)
                news = True
            else:
                found.credits = count
        if news:
            self._changed()

    def get(self, name: str) -> Lane | None:
        """The lane if it is served."""
        return self._lanes.get(name)

    def names(self) -> list[str]:
        """Every served lane."""
        return list(self._lanes)

    def active(self) -> dict[str, Lane]:
        """Those whose partitions this node wants."""
        return {name: lane for name, lane in self._lanes.items() if not lane.starved}

    def credits(self, name: str) -> int:
        """Connected credits of a lane, 0 if it is not served."""
        lane = self._lanes.get(name)
        return 0 if lane is None else lane.credits

    def asked(self, name: str) -> None:
        """Somebody has credit for this lane right now."""
        lane = self._lanes.get(name)
        if lane is not None:
            lane.waiting_since = None
            if lane.starved:
                lane.starved = False
                self._changed()

    def waits(self, name: str, now: int) -> None:
        """Tasks of this lane are there to be claimed."""
        lane = self._lanes.get(name)
        if lane is not None and lane.waiting_since is None:
            lane.waiting_since = now

    def starve(self, now: int) -> int | None:
        """Give up lanes that waited too long for credit; answers when the next would be (monotonic)."""
        soonest: int | None = None
        for lane in self._lanes.values():
            if lane.waiting_since is None or lane.starved or not lane.rivals:
                continue
            until = lane.waiting_since + WITHOUT_CREDIT_MS
            if until <= now:
                lane.starved, lane.waiting_since = True, None
                self._changed()
            elif soonest is None or until < soonest:
                soonest = until
        return soonest
