"""Brings in the horizon: tasks that were too far off when they were submitted.

How far each shard has got is kept in Redis itself. So a Redis that was emptied, or set back to an
older state, is filled again from where it stands, by whoever owns the shard.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..hierarchy import slot_of
from .door import Door
from .keys import Keys, group_of, groups_of
from .pager import DueStore
from .slots import Slots
from .times import NEAR_MS, second_of

CHECK_MS = 10_000
"""How often it looks how far Redis has been filled."""

STEP_MS = 60_000
"""The horizon moves in steps of this."""

MORE_MS = 50
"""The pause between two pages while there is more."""

PAGE = 2_000

WIDEST_MS = 6 * 3_600_000


class Horizon:
    """Fills the slots up to `horizon_ms` ahead, a page at a time."""

    def __init__(self, door: Door, keys: Keys, store: DueStore, horizon_ms: int) -> None:
        self._door, self._keys, self._store = door, keys, store
        self._slots = Slots(door, keys)
        self._horizon_ms = horizon_ms
        self._window = STEP_MS
        self._next_at = 0

    def restart(self) -> None:
        """Look at once."""
        self._next_at = 0

    async def step(self, now: int, shards: frozenset[int], pointer: int) -> int:
        """Bring in a page if there is one; answers when to call again."""
        if now >= self._next_at or self._next_at > now + CHECK_MS:
            more = await self._page(now, shards, pointer)
            self._next_at = now + (MORE_MS if more else CHECK_MS)
        return self._next_at

    async def _page(self, now: int, shards: frozenset[int], pointer: int) -> bool:
        marks = await self._marks(sorted(shards), pointer)
        end = now + self._horizon_ms
        behind = {shard: mark for shard, mark in marks.items() if mark <= end - STEP_MS}
        if not behind:
            return False
        since = min(behind.values())
        until = min(since + self._window, end)
        chosen = [shard for shard, mark in behind.items() if mark <= until]
        rows = await self._store.due(chosen, until, PAGE, since)
        far = [row for row in rows if second_of(row.due_at) >= now + NEAR_MS]
        if await self._slots.add((slot_of(row.due_at, now + NEAR_MS), row) for row in far):
            return False  # Redis is full: what is left out is found second by second
        full = len(rows) >= PAGE
        reached = max(rows[-1].due_at, since + 1) if full else until + 1
        self._window = max(self._window // 2, 1_000) if full else min(2 * self._window, WIDEST_MS)
        await self._mark([shard for shard in chosen if marks[shard] < reached], reached)
        return True

    async def _marks(self, shards: Sequence[int], pointer: int) -> dict[int, int]:
        """How far each shard is filled; from the pointer on where Redis does not know."""
        marks: dict[int, int] = {}
        for group in groups_of(shards):
            own = _of_group(shards, group)
            replies = await self._door.call("HMGET", self._keys.filled(group), *own)
            for shard, reply in zip(own, replies, strict=True):
                marks[shard] = max(int(reply or 0), pointer)
        return marks

    async def _mark(self, shards: Sequence[int], reached: int) -> None:
        for group in groups_of(shards):
            own = _of_group(shards, group)
            flat = [part for shard in own for part in (shard, reached)]
            await self._door.call("HSET", self._keys.filled(group), *flat)


def _of_group(shards: Sequence[int], group: int) -> list[int]:
    return [shard for shard in shards if group_of(bytes(15) + bytes([shard])) == group]
