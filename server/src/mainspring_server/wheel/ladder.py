"""The ladder of the wheel: slots in Redis while Redis can be used, polling of the store while not.

Down at once: the trigger is woken, and its next look is answered by the polled wheel, which loads
what the store has. Up without a gap: the slots are read and compared with the store in a full pass
while the polled wheel still fires, then it takes over at the next second boundary. Meanwhile both
hold the same tasks; what fires twice loses the swap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ..clock import Clock
from ..domain.errors import Unavailable
from ..store.port import DueEntry
from .polled import PolledWheel
from .redis import RedisWheel

log = logging.getLogger(__name__)

SLOT_MS = 1_000


class LadderWheel:
    """A Wheel that is either of the two; it takes over their `changed` events."""

    def __init__(self, redis: RedisWheel, polled: PolledWheel, clock: Clock) -> None:
        self.changed = redis.changed = polled.changed = asyncio.Event()
        self._redis = redis
        self._polled = polled
        self._clock = clock
        self._shards: Sequence[int] = ()
        self._polling = False
        self._back_at: int | None = None  # the boundary at which Redis takes over again
        self._redis_next_at = 0

    @property
    def rung(self) -> str:
        """`redis` or `polled`, whichever is in use. A node without shards only sends hints."""
        if self._shards:
            return self._polled.rung if self._polling else self._redis.rung
        return self._redis.rung if self._redis.available else self._polled.rung

    @property
    def commands(self) -> int:
        """Redis commands so far; see RedisWheel."""
        return self._redis.commands

    @property
    def lost(self) -> int:
        """Hints that did not reach Redis so far."""
        return self._redis.lost

    async def start(self) -> None:
        """See RedisWheel.start."""
        await self._redis.start()

    async def open(self, shards: Sequence[int]) -> None:
        """See Wheel."""
        self._shards = tuple(shards)
        self._back_at = None
        await self._redis.open(shards)
        if self._polling:
            await self._polled.open(shards)

    async def close(self) -> None:
        """See Wheel."""
        self._shards = ()
        await self._redis.close()
        await self._polled.close()

    async def add(self, entries: Sequence[DueEntry]) -> None:
        """See Wheel."""
        await self._redis.add(entries)
        if self._polling:
            await self._polled.add(entries)

    async def peek(self, now: int, limit: int) -> list[DueEntry]:
        """See Wheel."""
        await self._step(now)
        if not self._polling:
            try:
                return await self._redis.peek(now, limit)
            except Unavailable:
                await self._step(now)
                if not self._polling:
                    raise
        return await self._polled.peek(now, limit)

    async def remove(self, entries: Sequence[DueEntry]) -> None:
        """See Wheel."""
        await self._redis.remove(entries)
        if self._polling:
            await self._polled.remove(entries)

    async def refill(self, now: int) -> int:
        """See Wheel."""
        await self._step(now)
        if not self._polling:
            try:
                return await self._redis.refill(now)
            except Unavailable:
                await self._step(now)
                if not self._polling:
                    raise
        next_at = await self._polled.refill(now)
        if self._redis.available:
            next_at = min(next_at, await self._prepare(now))
        return next_at

    def next_due(self) -> int | None:
        """See Wheel."""
        return self._polled.next_due() if self._polling else self._redis.next_due()

    async def _prepare(self, now: int) -> int:
        """Fill the wheel in Redis while the polled one fires; answers when to call again."""
        if now >= self._redis_next_at or self._back_at is None:
            try:
                self._redis_next_at = await self._redis.refill(now)
            except Unavailable:
                self._back_at = None
                if self._redis.available:
                    raise
                return now + SLOT_MS
            if self._back_at is None and self._redis.caught_up:
                self._back_at = (self._clock.now() // SLOT_MS + 1) * SLOT_MS
        return self._redis_next_at if self._back_at is None else self._back_at

    async def _step(self, now: int) -> None:
        """Down if Redis went, up if its time has come."""
        if not self._redis.available:
            self._back_at = None
            if self._shards and not self._polling:
                self._polling = True
                log.warning("wheel: due tasks are polled from the store while Redis is away")
                await self._polled.open(self._shards)
        elif self._polling and self._back_at is not None and now >= self._back_at:
            self._polling = False
            self._back_at = None
            log.info("wheel: due tasks come from Redis again")
            await self._polled.open(())
            self.changed.set()
