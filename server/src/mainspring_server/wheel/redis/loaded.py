"""What an owner has in memory: the seconds that were read, and the hints that came since.

Redis and the store are read into here; the trigger fires from here. Each entry remembers the slot
that it was read from, so that it is taken out there too once it has fired. There are no levels:
only the next seconds are here. A herd of hundreds of thousands passes through, so entries are
plain tuples, and what is done to each of them is done in loops over many.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Sequence

from ...domain.task import shard_of
from ...store.port import DueEntry, id_mark
from ..hierarchy import PRIORITIES
from .keys import Place
from .slots import Member

Drop = Callable[[Place, Sequence[Member]], None]

REMEMBER_MS = 5_000
"""How long what was removed is not believed again when a slot or the store still brings it."""

_REMEMBERED = 500_000

# Dead heap items are tolerated up to this many beyond the living ones.
_SLACK = 1_024

# So many entries are counted before others get their turn on the loop.
_BREATH = 20_000

_Item = tuple[int, int, bytes]  # due, priority, task id


class Loaded:
    """Entries of the own shards; `drop` is called with slot members that have had their day."""

    def __init__(self, drop: Drop) -> None:
        self._drop = drop
        # The one living item per id. Heap items that are no longer in here are dead.
        self._living: dict[bytes, _Item] = {}
        self._heap: list[_Item] = []
        # What the last peek took off the heap, in order; `_first` is the first that may live.
        self._peeked: list[_Item] = []
        self._first = 0
        self._origins: dict[bytes, tuple[Place, int]] = {}
        # Due times of what was removed: lately, and before that.
        self._removed: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        self._turned_at = 0

    def __len__(self) -> int:
        return len(self._living)

    def hint(self, entry: DueEntry) -> None:
        """A hint is always believed: it is newer than what was read."""
        self._put((entry.due_at, entry.priority, entry.task_id))

    def row(self, entry: DueEntry) -> bool:
        """Take in a row of the store; False if it is known."""
        task_id, due = entry.task_id, entry.due_at
        return not self._was_removed(task_id, due) and self._take((due, entry.priority, task_id))

    def members(self, place: Place, members: Sequence[Member]) -> None:
        """Take in members of a slot; those that were removed here are at once dropped there."""
        start = place.slot.start
        stale: list[Member] = []
        for member in members:
            task_id, score = member
            due = start + score // PRIORITIES
            if self._was_removed(task_id, due):
                stale.append(member)
                continue
            self._origins[task_id] = (place, score)
            self._take((due, score % PRIORITIES, task_id))
        if stale:
            self._drop(place, stale)

    def peek(self, now: int, limit: int) -> list[DueEntry]:
        """What is due; see Wheel.peek."""
        living, heap = self._living, self._heap
        for item in self._peeked:
            if living.get(item[2]) is item:
                heapq.heappush(heap, item)
        found: list[_Item] = []
        while heap and len(found) < limit and heap[0][0] <= now:
            item = heapq.heappop(heap)
            if living.get(item[2]) is item:
                found.append(item)
        self._peeked, self._first = found, 0
        return [DueEntry(*item) for item in found]

    def next_due(self) -> int | None:
        """When the soonest falls due."""
        living, heap, peeked = self._living, self._heap, self._peeked
        while heap and living.get(heap[0][2]) is not heap[0]:
            heapq.heappop(heap)
        while (
            self._first < len(peeked)
            and living.get(peeked[self._first][2]) is not peeked[self._first]
        ):
            self._first += 1
        if self._first == len(peeked):
            return heap[0][0] if heap else None
        due = peeked[self._first][0]
        return min(due, heap[0][0]) if heap else due

    def remove(self, entries: Sequence[DueEntry]) -> None:
        """Forget them here, and drop the members that brought them or something older."""
        dropped: dict[Place, list[Member]] = {}
        removed = self._removed[0]
        for entry in entries:
            task_id, due = entry.task_id, entry.due_at
            removed[task_id] = due
            item = self._living.get(task_id)
            if item is not None and item[0] == due and item[1] == entry.priority:
                del self._living[task_id]
            origin = self._origins.get(task_id)
            if origin is not None:
                place, score = origin
                if place.slot.start + score // PRIORITIES <= due:
                    del self._origins[task_id]
                    dropped.setdefault(place, []).append((task_id, score))
        for place, members in dropped.items():
            self._drop(place, members)
        self._sweep()

    def keep(self, shards: Iterable[int]) -> None:
        """Forget all other shards; their members stay in Redis for the next owner."""
        kept = frozenset(shards)
        for task_id in [key for key in self._living if shard_of(key) not in kept]:
            del self._living[task_id]
        for task_id in [key for key in self._origins if shard_of(key) not in kept]:
            del self._origins[task_id]
        self._sweep()

    def turn(self, monotonic: int) -> None:
        """Let go of what was removed long ago."""
        if monotonic - self._turned_at >= REMEMBER_MS or len(self._removed[0]) > _REMEMBERED:
            self._removed = ({}, self._removed[0])
            self._turned_at = monotonic

    async def digest(self, since: int, until: int) -> dict[tuple[int, int], tuple[int, int]]:
        """Count and mark of what is due from `since` to `until`, by (shard, second)."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        items = list(self._living.values())
        for start in range(0, len(items), _BREATH):
            for due, _, task_id in items[start : start + _BREATH]:
                if since <= due <= until:
                    key = (shard_of(task_id), due // 1_000)
                    count, mark = found.get(key, (0, 0))
                    found[key] = (count + 1, mark ^ id_mark(task_id))
            await asyncio.sleep(0)
        return found

    def _take(self, item: _Item) -> bool:
        """The earlier of two due times wins: too early is put right by the answer of make_ready,
        too late would be late.
        """
        held = self._living.get(item[2])
        if held is not None and held[0] <= item[0]:
            return False
        self._put(item)
        return True

    def _put(self, item: _Item) -> None:
        if self._living.get(item[2]) != item:
            self._living[item[2]] = item
            heapq.heappush(self._heap, item)

    def _was_removed(self, task_id: bytes, due: int) -> bool:
        now, before = self._removed
        return now.get(task_id) == due or before.get(task_id) == due

    def _sweep(self) -> None:
        if len(self._heap) > 2 * len(self._living) + _SLACK:
            self._heap = [item for item in self._heap if self._living.get(item[2]) is item]
            heapq.heapify(self._heap)
