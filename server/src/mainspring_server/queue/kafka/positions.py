"""What must have arrived by now: the positions of topics, as the sweeper needs them.

Computed from Kafka itself, so that any process can tell: the committed offset, then the end, then
the record at the committed offset. Nothing is handed from dispatcher to sweeper, no answer can be
out of date by more than the cache's half second, and an owner that lags behind its own claims or
has died only makes the position older than it is, which is the safe side. A READY row does not
know its partition, so the topic's position is the oldest of its partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ...clock import Clock
from ...domain.task import ReadyRef, band_of
from .cluster import CONTROL, Cluster
from .fetching import PARTITION_BYTES, Key, Start, fetch, records
from .names import BANDS
from .offsets import Offsets, Standing
from .protocol import NO_LEADER, Topic
from .records import UnknownRecord, published_at
from .topics import Topics

_FRESH_MS = 500


@dataclass(frozen=True, slots=True)
class Position:
    """Of a topic: records not yet claimed, and the publish time of the oldest (None: unknown)."""

    unclaimed: int
    at: int | None


class Positions:
    """Positions by topic, read at most twice a second."""

    def __init__(self, cluster: Cluster, topics: Topics, offsets: Offsets, clock: Clock) -> None:
        self._cluster = cluster
        self._topics = topics
        self._offsets = offsets
        self._clock = clock
        self._reading = asyncio.Lock()
        self._known: dict[str, tuple[int, Position]] = {}

    async def lost(self, refs: Sequence[ReadyRef], grace_ms: int) -> list[bool]:
        """Per READY row: published so long ago that its record would have been claimed."""
        now = self._clock.now()
        names = [self._topics.name(ref.lane, band_of(ref.priority)) for ref in refs]
        old = {
            name for name, ref in zip(names, refs, strict=True) if ref.published_at < now - grace_ms
        }
        if not old:
            return [False] * len(refs)
        positions = await self.read(sorted(old))
        answers = []
        for name, ref in zip(names, refs, strict=True):
            at = positions[name].at if name in positions else None
            answers.append(at is not None and ref.published_at < at - grace_ms)
        return answers

    async def backlog(self, lanes: Sequence[str]) -> dict[str, int]:
        """Records not yet claimed per lane."""
        names = {self._topics.name(lane, band): lane for lane in lanes for band in range(BANDS)}
        counts = dict.fromkeys(lanes, 0)
        for name, position in (await self.read(list(names))).items():
            counts[names[name]] += position.unclaimed
        return counts

    async def read(self, names: Sequence[str]) -> dict[str, Position]:
        """The positions of these topics. One that does not exist holds nothing back: it is at now."""
        async with self._reading:
            now = self._clock.now()
            stale = [
                name
                for name in names
                if name not in self._known or self._known[name][0] + _FRESH_MS <= now
            ]
            if stale:
                self._known = {n: k for n, k in self._known.items() if k[0] + _FRESH_MS > now}
                topics = await self._topics.find(stale, fresh=True)
                self._known.update(
                    (name, (now, Position(0, now))) for name in stale if name not in topics
                )
                found = await self._positions(list(topics.values()), now)
                self._known.update((name, (now, position)) for name, position in found.items())
            return {name: self._known[name][1] for name in names}

    async def _positions(self, topics: Sequence[Topic], now: int) -> dict[str, Position]:
        standing = await self._offsets.standing(topics)
        oldest = await self._oldest(topics, standing)
        found = {}
        for topic in topics:
            unclaimed, times = 0, list[int | None]()
            for number in range(len(topic.leaders)):
                part = standing.get((topic.name, number))
                if part is None:
                    times.append(None)
                elif part.claimed == part.end:
                    times.append(now)  # taken before the end was read
                else:
                    unclaimed += part.end - part.claimed
                    times.append(oldest.get((topic.name, number)))
            known = [time for time in times if time is not None]
            found[topic.name] = Position(
                unclaimed, min(known) if len(known) == len(times) else None
            )
        return found

    async def _oldest(
        self, topics: Sequence[Topic], standing: dict[Key, Standing]
    ) -> dict[Key, int]:
        """The publish time of the record at the committed offset, where there is one."""
        by_node: dict[int, list[Start]] = {}
        for topic in topics:
            for number, node in enumerate(topic.leaders):
                part = standing.get((topic.name, number))
                if part is not None and part.claimed < part.end and node != NO_LEADER:
                    by_node.setdefault(node, []).append(
                        (topic, number, part.claimed, PARTITION_BYTES)
                    )
        found: dict[Key, int] = {}
        for node, starts in by_node.items():
            left = starts
            while left:
                answer = await fetch(self._cluster, node, left, 0, CONTROL)
                before = len(found)
                for topic, number, offset, _ in left:
                    got = answer.get((topic.name, number))
                    at = None if got is None else _first(got.batches, offset)
                    if at is not None:
                        found[topic.name, number] = at
                if len(found) == before:
                    break
                # a batch larger than its share comes only when it is the first asked for
                left = [start for start in left if (start[0].name, start[1]) not in found]
        return found


def _first(batches: bytes, offset: int) -> int | None:
    for at, value in records(batches):
        if value is not None and at >= offset:
            try:
                return published_at(value)
            except UnknownRecord:
                continue
    return None
