"""The wheel of the lower rungs: an in-memory hierarchy that polls the store's due index.

Hints of the own process arrive at once, everybody else's with the next poll. Memory is bounded:
a page that came back full, or a hint that found no room, leaves a mark (`cut`) from which on the
store knows more than the wheel. Whoever peeks past the mark loads the next page first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ..clock import Clock
from ..domain.task import shard_of
from ..store.port import DueEntry
from .hierarchy import Hierarchy

HORIZON_MS = 24 * 3_600_000
"""Hints beyond are left to the store."""

# How long what was removed is not believed again when a poll brings it: a poll may have read a row
# before its swap, and a row past its deadline stays PENDING until the sweeper ends it.
REMEMBER_MS = 5_000


class DueStore(Protocol):
    """What the wheel needs of a store."""

    async def due(self, shards: Sequence[int], until: int, limit: int) -> list[DueEntry]:
        """PENDING tasks of the shards with due_at <= until, soonest first."""


class PolledWheel:
    """A Wheel over `store.due`, asked every `poll_ms` for what falls due within `ahead_ms`.

    A page has `page` rows, more (up to `cap`) only where a page brings nothing new. At `cap`
    entries, further hints are left to the polls.
    """

    rung = "polled"

    def __init__(
        self,
        store: DueStore,
        clock: Clock,
        *,
        poll_ms: int = 500,
        ahead_ms: int = 2_000,
        page: int = 5_000,
        cap: int = 100_000,
    ) -> None:
        if not 0 < poll_ms < ahead_ms:
            raise ValueError(f"ahead_ms must exceed poll_ms > 0, got {ahead_ms} and {poll_ms}")
        if not 0 < page <= cap:
            raise ValueError(f"page must be 1 to cap, got {page} of {cap}")
        self.changed = asyncio.Event()
        self._store = store
        self._clock = clock
        self._poll_ms, self._ahead_ms = poll_ms, ahead_ms
        self._page, self._cap = page, cap
        self._limit = page
        self._shards: frozenset[int] = frozenset()
        self._hierarchy = Hierarchy(clock.now())
        self._loading = asyncio.Lock()
        self._loaded = 0  # the last poll reached so far
        self._cut: int | None = None  # from here on the store knows more
        self._missed: int | None = None  # the same, noted since the running load began
        self._removed: tuple[set[DueEntry], set[DueEntry]] = (set(), set())  # now, before
        self._turned_at = clock.monotonic()

    async def start(self) -> None:
        """See Wheel: there is nothing to connect to."""

    async def open(self, shards: Sequence[int]) -> None:
        """Forget the shards that are gone; the next peek or poll reads those that came."""
        owned = frozenset(shards)
        came = owned - self._shards
        self._shards = owned
        self._hierarchy.remove([e for e in self._hierarchy if shard_of(e.task_id) not in owned])
        if came:
            self._miss(self._clock.now())
            self.changed.set()

    async def close(self) -> None:
        """Forget everything."""
        await self.open(())
        self._removed = (set(), set())

    async def add(self, entries: Sequence[DueEntry]) -> None:
        """Take in what is of the own shards and within the horizon."""
        now = self._clock.now()
        soonest = self.next_due()
        hierarchy = self._hierarchy
        for entry in entries:
            if shard_of(entry.task_id) not in self._shards or entry.due_at > now + HORIZON_MS:
                continue
            if len(hierarchy) >= self._cap and hierarchy.get(entry.task_id) is None:
                if entry.due_at <= self._loaded:
                    self._miss(entry.due_at)
                continue
            hierarchy.add(entry)
        self._tell(soonest)

    async def peek(self, now: int, limit: int) -> list[DueEntry]:
        """What is due; where nothing is, but the store may know more, after loading that."""
        found = self._hierarchy.peek(now, limit)
        if not found and self._behind(now):
            async with self._loading:
                if self._behind(now):
                    await self._load(now)
            found = self._hierarchy.peek(now, limit)
        return found

    async def remove(self, entries: Sequence[DueEntry]) -> None:
        """Drop them, and do not believe a poll that still brings them."""
        self._hierarchy.remove(entries)
        self._removed[0].update(entries)

    async def refill(self, now: int) -> int:
        """Poll the store once."""
        async with self._loading:
            await self._load(now)
        # Off the firing path: the cascade of what the next seconds reach.
        self._hierarchy.advance(now + self._ahead_ms)
        return now + self._poll_ms

    def next_due(self) -> int | None:
        """The soonest entry, or the mark where the store knows more, whichever comes first."""
        due = self._hierarchy.next_due()
        if due is None or self._cut is None:
            return self._cut if due is None else due
        return min(due, self._cut)

    def _behind(self, now: int) -> bool:
        return self._cut is not None and self._cut <= now

    def _miss(self, due: int) -> None:
        self._cut = due if self._cut is None else min(self._cut, due)
        self._missed = due if self._missed is None else min(self._missed, due)

    async def _load(self, now: int) -> None:
        """Read one page. What is missed while it is read counts afterwards as well."""
        self._missed = None
        if not self._shards:
            self._cut = None
            return
        self._turn()
        limit, until = self._limit, now + self._ahead_ms
        rows = await self._store.due(sorted(self._shards), until, limit)
        soonest = self.next_due()
        fresh = sum(self._take(row) for row in rows)
        full = len(rows) >= limit
        self._limit = min(2 * limit, self._cap) if full and not fresh else self._page
        self._cut, self._loaded = self._missed, until
        # A largest page that brings nothing new cannot be passed: leave it to the next poll.
        if full and (fresh or limit < self._cap):
            self._miss(rows[-1].due_at)
        self._tell(soonest)

    def _take(self, row: DueEntry) -> bool:
        """Take in a polled row; False if it is known. The earlier of two due times wins.

        A hint may be newer than the row that a poll read, or older; too early is put right by
        the answer of make_ready, too late would be late.
        """
        if shard_of(row.task_id) not in self._shards:
            return False
        if row in self._removed[0] or row in self._removed[1]:
            return False
        held = self._hierarchy.get(row.task_id)
        if held is not None and held.due_at <= row.due_at:
            return False
        self._hierarchy.add(row)
        return True

    def _turn(self) -> None:
        now = self._clock.monotonic()
        if now - self._turned_at >= REMEMBER_MS or len(self._removed[0]) > self._cap:
            self._removed = (set(), self._removed[0])
            self._turned_at = now

    def _tell(self, soonest: int | None) -> None:
        due = self.next_due()
        if due is not None and (soonest is None or due < soonest):
            self.changed.set()
