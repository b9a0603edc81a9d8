"""The wheel in Redis: hints go into shared slots, owners read them ahead and fire from memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...clock import Clock
from ...domain.errors import Unavailable
from ...domain.task import shard_of
from ...store.port import DueEntry
from .door import UNAVAILABLE, Door, away
from .hints import unpack
from .horizon import Horizon
from .keys import Keys, groups_of
from .link import Link
from .loaded import Loaded
from .outbox import Outbox
from .pager import DueStore, StorePager
from .reader import SlotReader
from .slots import Slots
from .times import LEAD_MS, NEAR_MS, second_of

HORIZON_MS = 24 * 3_600_000
"""What is due later rests in the store."""

TIMEOUT_MS = 1_000

BACKLOG_PAUSE_MS = 20
"""Between two pages of an old backlog."""


class RedisWheel:
    """A Wheel over slots in Redis; see docs/decisions/0022-redis-wheel.md.

    add() keeps nobody waiting: hints are gathered and sent by a task of the wheel's own. While
    Redis is away (`available` is False) hints are dropped and counted, peek and refill raise
    Unavailable once memory holds nothing due; LadderWheel turns that into polling.
    """

    rung = "redis"

    def __init__(
        self,
        url: str,
        store: DueStore,
        clock: Clock,
        *,
        horizon_ms: int = HORIZON_MS,
        prefix: str = "mainspring",
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.changed = asyncio.Event()
        self._clock = clock
        self._horizon_ms = horizon_ms
        keys = Keys(prefix)
        self._door = Door(url, timeout_ms=timeout_ms)
        slots = Slots(self._door, keys)
        self._outbox = Outbox(slots, clock, self._failed, self._hint_near)
        self._loaded = Loaded(self._outbox.remove)
        self._reader = SlotReader(slots, self._loaded)
        self._pager = StorePager(store, self._loaded)
        self._horizon = Horizon(self._door, keys, store, horizon_ms)
        self._link = Link(self._door, clock, keys.channel, self._receive, self._came_or_went)
        self._shards: frozenset[int] = frozenset()
        self._loading = asyncio.Lock()
        self._next_at = 0

    @property
    def commands(self) -> int:
        """Redis commands so far, as `INFO commandstats` counts them."""
        return self._door.commands

    @property
    def lost(self) -> int:
        """Hints that did not reach Redis so far; the pager found them or will."""
        return self._outbox.lost

    @property
    def available(self) -> bool:
        """False from the first failure until Redis has been reached again."""
        return self._link.available

    @property
    def caught_up(self) -> bool:
        """True once a pass has read the slots and the store of every open shard."""
        return (
            self.available
            and self._pager.verified is not None
            and self._reader.pointer is not None
            and self._pager.backlog_since is None
        )

    async def start(self) -> None:
        """Connect; FailedPrecondition if Redis would forget tasks or is too old, no error if away."""
        await self._link.start()
        self._outbox.start()

    async def open(self, shards: Sequence[int]) -> None:
        """Forget the shards that are gone; those that came are read by the next pass."""
        owned = frozenset(shards)
        came, self._shards = owned - self._shards, owned
        self._loaded.keep(owned)
        self._pager.keep(owned)
        self._outbox.start()
        if owned:
            await self._link.listen()
        if came:
            self._restart(came)
            self.changed.set()

    async def close(self) -> None:
        """Send what was gathered, forget everything, disconnect."""
        await self._outbox.stop()
        await self._link.close()
        self._shards = frozenset()
        self._loaded.keep(())

    async def add(self, entries: Sequence[DueEntry]) -> None:
        """Hints for the next seconds go to the owners at once, later ones into slots."""
        now = self._clock.now()
        near: list[DueEntry] = []
        far: list[DueEntry] = []
        for entry in entries:
            if second_of(entry.due_at) - now < NEAR_MS:
                near.append(entry)
            elif entry.due_at <= now + self._horizon_ms:
                far.append(entry)
        self._link.begin()
        self._outbox.start()
        self._hint_near(near)
        self._outbox.far(far)

    async def peek(self, now: int, limit: int) -> list[DueEntry]:
        """What is due; where nothing is, but the pager is behind, after a pass of it."""
        found = self._loaded.peek(now, limit)
        if not found and self._behind(now):
            async with self._loading:
                if self._behind(now):
                    await self._pass(now, full=False)
            found = self._loaded.peek(now, limit)
        return found

    async def remove(self, entries: Sequence[DueEntry]) -> None:
        """Drop them here at once, in Redis soon."""
        self._loaded.remove(entries)

    async def refill(self, now: int) -> int:
        """One pass of reader, pager and horizon; called before it asked to be, a full one."""
        async with self._loading:
            self._next_at = await self._pass(now, full=now < self._next_at)
        return self._next_at

    def next_due(self) -> int | None:
        """The soonest entry, or how far slots and store have been read, whichever comes first."""
        if not self._shards:
            return None
        times = (
            self._loaded.next_due(),
            self._reader.pointer,
            self._pager.verified,
            self._pager.backlog_since,
        )
        return min((time for time in times if time is not None), default=None)

    def _behind(self, now: int) -> bool:
        read, verified = self._reader.pointer, self._pager.verified
        return bool(self._shards) and (
            read is None
            or verified is None
            or min(read, verified) <= now
            or (self._pager.backlog_since is not None and self._pager.backlog_since <= now)
        )

    async def _pass(self, now: int, *, full: bool) -> int:
        if not self._shards:
            return now + LEAD_MS
        if not self.available:
            raise away("it does not answer")
        soonest = self.next_due()
        shards = self._shards
        self._loaded.turn(self._clock.monotonic())
        try:
            # Before the slots are read, so that the own hints are in them.
            await self._outbox.flush()
            await self._reader.advance(now, groups_of(shards), shards)
            await self._pager.compare(now, shards, full=full)
            pointer = self._reader.pointer
            if pointer is None:
                return now  # shards came meanwhile
            next_at = await self._horizon.step(now, shards, pointer)
        except Unavailable as error:
            self._failed(error)
            raise
        finally:
            if self._shards != shards:
                self._loaded.keep(self._shards)
            self._tell(soonest)
        if self._pager.backlog_since is not None:
            return now + BACKLOG_PAUSE_MS
        return min(next_at, pointer - LEAD_MS)

    def _hint_near(self, entries: Sequence[DueEntry]) -> None:
        """Into memory where this node owns the shard, else to be published."""
        soonest = self.next_due()
        others = []
        for entry in entries:
            if shard_of(entry.task_id) in self._shards:
                self._loaded.hint(entry)
            else:
                others.append(entry)
        self._outbox.near(others)
        self._tell(soonest)

    def _receive(self, data: bytes) -> None:
        """What another process published."""
        soonest = self.next_due()
        for entry in unpack(data):
            if shard_of(entry.task_id) in self._shards:
                self._loaded.hint(entry)
        self._tell(soonest)

    def _failed(self, error: Unavailable) -> None:
        if error.reason == UNAVAILABLE:
            self._link.lost(error)

    def _came_or_went(self, available: bool) -> None:
        self._outbox.away = not available
        if available:
            self._restart(self._shards)
        else:
            self._outbox.drop()
        self.changed.set()

    def _restart(self, shards: frozenset[int]) -> None:
        """Slots and store are read anew: of these shards nothing is known for certain."""
        self._reader.restart()
        self._pager.restart(shards)
        self._horizon.restart()

    def _tell(self, soonest: int | None) -> None:
        due = self.next_due()
        if due is not None and (soonest is None or due < soonest):
            self.changed.set()
