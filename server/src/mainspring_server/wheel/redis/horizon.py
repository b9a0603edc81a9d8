"""Brings in the horizon: tasks that were too far off when they were submitted.

How far each shard has got is kept in Redis itself. So a Redis that was emptied, or set back to an
older state, is filled again from where it stands, by whoever owns the shard.
"""

from __future__ import annotations

from collections.abc import Iterable

from redis.exceptions import OutOfMemoryError, ResponseError

from ..hierarchy import slot_of
from .door import Command, Door, away
from .keys import Keys, groups_of
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
        # How far the shards are filled, while pages follow each other.
        self._filling: dict[int, int] = {}

    def restart(self) -> None:
        """Look at once."""
        self._next_at = 0
        self._filling = {}

    async def step(self, now: int, shards: frozenset[int], pointer: int) -> int:
        """Bring in a page if there is one; answers when to call again."""
        if now >= self._next_at or self._next_at > now + CHECK_MS:
            more = await self._page(now, shards, pointer)
            self._next_at = now + (MORE_MS if more else CHECK_MS)
        return self._next_at

    async def _page(self, now: int, shards: frozenset[int], pointer: int) -> bool:
        """True if there is more to bring in."""
        marks, self._filling = self._filling, {}
        if marks.keys() != shards:
            marks = await self._marks(shards, pointer)
        end = now + self._horizon_ms
        since = min(marks.values())
        if since > end - STEP_MS:
            return False
        until = min(since + self._window, end)
        chosen = [shard for shard, mark in marks.items() if mark <= until]
        rows = await self._store.due(chosen, until, PAGE, since)
        far = [row for row in rows if second_of(row.due_at) >= now + NEAR_MS]
        if await self._slots.add((slot_of(row.due_at, now + NEAR_MS), row) for row in far):
            return False  # Redis is full: what is left out is found second by second
        full = len(rows) >= PAGE
        reached = max(rows[-1].due_at, since + 1) if full else until + 1
        self._window = max(self._window // 2, 1_000) if full else min(2 * self._window, WIDEST_MS)
        marks.update({shard: max(marks[shard], reached) for shard in chosen})
        more = min(marks.values()) <= end - STEP_MS
        if more:
            self._filling = marks
        if rows or not more:
            await self._mark(marks)
        return more

    async def _marks(self, shards: Iterable[int], pointer: int) -> dict[int, int]:
        """How far each shard is filled; from the pointer on where Redis does not know."""
        marks: dict[int, int] = {}
        for group in groups_of(shards):
            own = _of_group(shards, group)
            replies = await self._door.call("HMGET", self._keys.filled(group), *own)
            for shard, reply in zip(own, replies, strict=True):
                marks[shard] = max(int(reply or 0), pointer)
        return marks

    async def _mark(self, marks: dict[int, int]) -> None:
        commands: list[Command] = []
        for group in groups_of(marks):
            flat = [part for shard in _of_group(marks, group) for part in (shard, marks[shard])]
            commands.append(("HSET", self._keys.filled(group), *flat))
        for reply in await self._door.calls(commands):
            # A full Redis forgets how far it was filled: it is filled again when it has room.
            if isinstance(reply, ResponseError) and not isinstance(reply, OutOfMemoryError):
                raise away(reply)


def _of_group(shards: Iterable[int], group: int) -> list[int]:
    return [shard for shard in sorted(shards) if groups_of([shard]) == [group]]
