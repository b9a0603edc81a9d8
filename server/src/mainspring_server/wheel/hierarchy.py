"""The hierarchy of the time wheel: which level and slot an entry belongs to, and what cascades.

Pure arithmetic on milliseconds. Slots are numbered absolutely (due // width), so two processes
that read the clock at different moments still name the same slot. A level holds what is at most so
many of its slots ahead; beyond that an entry waits in the level above and comes down when the
pointer enters its slot there. A pointer that runs ahead of the clock cascades early, which harms
nothing as long as adders and pointer use the same lead: what is due is decided by `due_at` alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from ..store.port import DueEntry


class Level(IntEnum):
    """The levels, finest first; the number is the L of a stored slot's key."""

    SECONDS = 0
    MINUTES = 1
    HOURS = 2
    DAYS = 3


WIDTH_MS = (1_000, 60_000, 3_600_000, 86_400_000)
"""How long a slot of each level lasts."""

SLOTS_AHEAD = (60, 60, 24)
"""How many slots a level holds, the current one included; days are not bounded."""

PRIORITIES = 10

# Dead heap items are tolerated up to this many beyond the living ones.
_SLACK = 1_024

_Item = tuple[int, int, bytes, DueEntry]


class Slot(NamedTuple):
    """One slot: `number` is absolute, milliseconds since the epoch divided by the level's width."""

    level: Level
    number: int

    @property
    def start(self) -> int:
        """The first millisecond of the slot."""
        return self.number * WIDTH_MS[self.level]

    @property
    def end(self) -> int:
        """The first millisecond after the slot."""
        return (self.number + 1) * WIDTH_MS[self.level]


class Span(NamedTuple):
    """Consecutive slots of one level, `first` to `last` inclusive."""

    level: Level
    first: int
    last: int


def slot_of(due: int, now: int) -> Slot:
    """Where an entry belongs while the pointer is at `now`; one in the past, to its own second."""
    for level, ahead in zip(Level, SLOTS_AHEAD, strict=False):
        width = WIDTH_MS[level]
        if due // width - now // width < ahead:
            return Slot(level, due // width)
    return Slot(Level.DAYS, due // WIDTH_MS[Level.DAYS])


def homes(due: int) -> tuple[Slot, ...]:
    """Every slot that an entry due then may stand in, finest first; of `now`: the current slots."""
    return tuple(Slot(level, due // WIDTH_MS[level]) for level in Level)


def entered(before: int, now: int) -> list[Span]:
    """The slots that the pointer enters on its way from `before` to `now`, coarsest level first.

    Emptied in this order, each into the levels below, they leave nothing behind however far the
    pointer jumped. Levels on which it stays in its slot are missing.
    """
    spans = []
    for level in reversed(Level):
        width = WIDTH_MS[level]
        first, last = before // width + 1, now // width
        if first <= last:
            spans.append(Span(level, first, last))
    return spans


def score_of(slot: Slot, due: int, priority: int) -> int:
    """The order within a slot: its milliseconds first, then the priority. Exact as a double."""
    return (due - slot.start) * PRIORITIES + priority


def entry_of(slot: Slot, score: int, task_id: bytes) -> DueEntry:
    """The entry that `score_of` encoded."""
    return DueEntry(slot.start + score // PRIORITIES, score % PRIORITIES, task_id)


class _Bucket:
    """The entries of one slot. `soonest` is never later than the soonest of them."""

    __slots__ = ("items", "soonest")

    def __init__(self, soonest: int) -> None:
        self.items: dict[bytes, _Item] = {}
        self.soonest = soonest


class _Ring:
    """The filled slots of one level. An emptied slot stays until it is first: they are few."""

    __slots__ = ("_buckets", "_order")

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._order: list[int] = []

    def put(self, number: int, item: _Item) -> None:
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = _Bucket(item[0])
            heapq.heappush(self._order, number)
        bucket.soonest = min(bucket.soonest, item[0])
        bucket.items[item[2]] = item

    def drop(self, number: int, item: _Item) -> bool:
        bucket = self._buckets.get(number)
        if bucket is None or bucket.items.get(item[2]) is not item:
            return False
        del bucket.items[item[2]]
        return True

    def take(self, last: int) -> list[_Item]:
        """Empty all slots up to `last`."""
        taken: list[_Item] = []
        while self._order and self._order[0] <= last:
            taken.extend(self._buckets.pop(heapq.heappop(self._order)).items.values())
        return taken

    def soonest(self) -> int | None:
        while self._order:
            bucket = self._buckets[self._order[0]]
            if bucket.items:
                return bucket.soonest
            del self._buckets[heapq.heappop(self._order)]
        return None


class Hierarchy:
    """A whole wheel in memory: a ring of slots per level, and a heap for what the pointer reached.

    add and remove cost O(1), or O(log n) in the current second; each entry cascades at most three
    times. Not safe for threads.
    """

    def __init__(self, now: int) -> None:
        self._pointer = now
        self._rings = tuple(_Ring() for _ in Level)
        # The one living item per id. Heap items that are no longer in here are dead.
        self._living: dict[bytes, _Item] = {}
        self._heap: list[_Item] = []
        self._reached = 0  # living items in the heap or among the peeked
        # What the last peek took off the heap, in order; `_first` is the first that may live.
        self._peeked: list[_Item] = []
        self._first = 0

    def __len__(self) -> int:
        return len(self._living)

    def __iter__(self) -> Iterator[DueEntry]:
        """All entries, in no order."""
        return iter([item[3] for item in self._living.values()])

    def get(self, task_id: bytes) -> DueEntry | None:
        """The entry of a task."""
        item = self._living.get(task_id)
        return None if item is None else item[3]

    def add(self, entry: DueEntry) -> None:
        """Put an entry into its slot, in place of an older one of the same task."""
        item = self._living.get(entry.task_id)
        if item is not None:
            if item[3] == entry:
                return
            self._forget(item)
        item = (entry.due_at, entry.priority, entry.task_id, entry)
        self._living[entry.task_id] = item
        self._place(item)

    def remove(self, entries: Iterable[DueEntry]) -> None:
        """Drop these, each only if it still stands at the due time and priority given."""
        for entry in entries:
            item = self._living.get(entry.task_id)
            if item is not None and item[3] == entry:
                self._forget(item)
        if len(self._heap) > 2 * self._reached + _SLACK:
            self._heap = [item for item in self._heap if self._lives(item)]
            heapq.heapify(self._heap)

    def advance(self, now: int) -> None:
        """Move the pointer: cascade the slots entered, and put the reached seconds on the heap.

        A pointer never goes back; a clock that does only finds more on the heap than is due.
        """
        if now <= self._pointer:
            return
        self._pointer = now
        for level in Level:
            # Each goes to a slot that lies wholly ahead, or to the heap: never into one just taken.
            for item in self._rings[level].take(now // WIDTH_MS[level]):
                self._place(item)

    def peek(self, now: int, limit: int) -> list[DueEntry]:
        """Up to `limit` entries with due_at <= now, by (due_at, priority); they stay."""
        self.advance(now)
        for item in self._peeked:
            if self._lives(item):
                heapq.heappush(self._heap, item)
        found: list[_Item] = []
        heap = self._heap
        while heap and len(found) < limit and heap[0][0] <= now:
            item = heapq.heappop(heap)
            if self._lives(item):
                found.append(item)
        self._peeked, self._first = found, 0
        return [item[3] for item in found]

    def next_due(self) -> int | None:
        """When the soonest entry falls due, or a moment before if a sooner one was removed."""
        while self._first < len(self._peeked) and not self._lives(self._peeked[self._first]):
            self._first += 1
        while self._heap and not self._lives(self._heap[0]):
            heapq.heappop(self._heap)
        soonest = [due for ring in self._rings if (due := ring.soonest()) is not None]
        if self._heap:
            soonest.append(self._heap[0][0])
        if self._first < len(self._peeked):
            soonest.append(self._peeked[self._first][0])
        return min(soonest, default=None)

    def _lives(self, item: _Item) -> bool:
        return self._living.get(item[2]) is item

    def _place(self, item: _Item) -> None:
        level, number = slot_of(item[0], self._pointer)
        if level is Level.SECONDS and number <= self._pointer // WIDTH_MS[level]:
            heapq.heappush(self._heap, item)
            self._reached += 1
        else:
            self._rings[level].put(number, item)

    def _forget(self, item: _Item) -> None:
        del self._living[item[2]]
        for slot in homes(item[0]):
            if self._rings[slot.level].drop(slot.number, item):
                return
        self._reached -= 1
