"""Reads slots as the pointer enters them: seconds into memory, longer slots into the levels below."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ...domain.task import shard_of
from ...store.port import DueEntry
from ..hierarchy import Level, Slot, entered, entry_of, slot_of
from .keys import Place
from .loaded import Loaded
from .slots import Member, Slots
from .times import AGAIN_MS, LEAD_MS, ahead_of

FIND_MS = 60_000
"""How often all keys are looked through for members that were left behind in a slot of the past.

Also the longest way of the pointer on which slots are read by their numbers: beyond, they are found.
"""

CAP = 1_000_000
"""At so many entries in memory, reading stops until the next pass."""


class SlotReader:
    """Moves the pointer, which only saves work: whatever it misses, the pager finds."""

    def __init__(self, slots: Slots, loaded: Loaded) -> None:
        self._slots = slots
        self._loaded = loaded
        self._again: deque[tuple[int, list[Place]]] = deque()
        self._find_at: int | None = None
        self._restarts = 0
        self.pointer: int | None = None
        """Every slot that begins before this moment has been read."""

    def restart(self) -> None:
        """Nothing is known of what was read: Redis was away, or shards came."""
        self._restarts += 1
        self.pointer = None
        self._again.clear()

    async def advance(self, now: int, groups: Sequence[int], shards: frozenset[int]) -> None:
        """Read what the pointer enters on its way to `now` and LEAD_MS beyond."""
        restarts, target = self._restarts, ahead_of(now, LEAD_MS)
        before = self.pointer
        if before is not None and target < before:
            before = target  # the clock was set back: the slots between are being filled again
        if (
            before is None
            or self._find_at is None
            or now >= self._find_at
            or target - before > FIND_MS
        ):
            self._find_at = now + FIND_MS
            places = [place for place in await self._slots.find() if place.slot.start < target]
        else:
            places = [
                Place(group, slot) for slot in _slots_between(before, target) for group in groups
            ]
            if places:
                self._again.append((target - 1_000 + AGAIN_MS, places))
        while self._again and self._again[0][0] <= now:
            places += self._again.popleft()[1]
        await self._read([place for place in places if place.group in groups], target, shards)
        if restarts == self._restarts:
            self.pointer = target

    async def _read(self, places: Sequence[Place], target: int, shards: frozenset[int]) -> None:
        async for place, members in self._slots.read(places):
            mine = [member for member in members if shard_of(member[0]) in shards]
            if place.slot.level is not Level.SECONDS:
                await self._cascade(place, mine, target)
                continue
            self._loaded.members(place, mine)
            if len(self._loaded) > CAP:
                self._find_at = None  # the rest is found when some have fired
                return

    async def _cascade(self, place: Place, members: Sequence[Member], target: int) -> None:
        """Into the level below first, then out of this one: a crash between leaves both."""
        down: list[tuple[Slot, DueEntry]] = []
        moved: list[Member] = []
        soon: list[Member] = []
        for task_id, score in members:
            entry = entry_of(place.slot, score, task_id)
            if entry.due_at < target:
                soon.append((task_id, score))
                continue
            down.append((slot_of(entry.due_at, target - 1), entry))
            moved.append((task_id, score))
        self._loaded.members(place, soon)
        if moved and not await self._slots.add(down):
            await self._slots.remove({place: moved})


def _slots_between(before: int, target: int) -> Iterable[Slot]:
    for level, first, last in entered(before - 1, target - 1):
        for number in range(first, last + 1):
            yield Slot(level, number)
