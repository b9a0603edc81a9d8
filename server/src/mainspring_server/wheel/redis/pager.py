"""Compares what was read with the store, second by second, and brings in what is missing.

This is what makes the slots mere hints: whatever Redis forgot, never got or keeps from another
time, the second is right before it begins. A second whose digests are equal costs no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...store.port import DueDigest, DueEntry
from .loaded import Loaded
from .times import VERIFY_MS, ahead_of

PAGE = 5_000
"""The rows of one statement, about."""

OVERDUE_MS = 10_000
"""So far back every pass looks for hints that were lost after their second had been compared."""

FULL_MS = 5_000
"""How often it looks all the way back."""

BEHIND_MS = 1_000
"""What is late by less is taken to be under way."""

BACKLOG = 20_000
"""While more than this waits in memory, no further page of an old backlog is brought in."""

JUMP_MS = 60_000

# Hints that are under way make digests differ; rows that came since the digest was taken.
_SLACK = 500


class DueStore(Protocol):
    """What the wheel needs of a store; see TaskStore."""

    async def due(
        self, shards: Sequence[int], until: int, limit: int, since: int = 0
    ) -> list[DueEntry]:
        """PENDING tasks of the shards with since <= due_at <= until, soonest first."""

    async def due_digest(self, shards: Sequence[int], since: int, until: int) -> list[DueDigest]:
        """The same, counted per shard and second."""


class StorePager:
    """`verified`: every second that begins before has been compared."""

    def __init__(self, store: DueStore, loaded: Loaded) -> None:
        self._store = store
        self._loaded = loaded
        self._fresh: set[int] = set()
        self._fresh_since = 0
        self._full_at = 0
        self._restarts = 0
        self.verified: int | None = None

    @property
    def backlog_since(self) -> int | None:
        """The past of some shards has been brought in up to here only; None if it all has."""
        return self._fresh_since if self._fresh else None

    def restart(self, shards: frozenset[int]) -> None:
        """These shards are new here: read their whole past."""
        self._fresh |= shards
        self._fresh_since = 0
        self._restarts += 1

    def keep(self, shards: frozenset[int]) -> None:
        """The others are not owned any more."""
        self._fresh &= shards

    async def compare(self, now: int, shards: frozenset[int], *, full: bool) -> None:
        """One pass: the past of new shards, the seconds that come, and what is overdue."""
        target = ahead_of(now, VERIFY_MS)
        before = self.verified
        if before is None or target - before > JUMP_MS:
            self.restart(shards)
            before = target
        if self._fresh:
            await self._bring_past(target)
        steady = sorted(shards - self._fresh)
        if steady and before < target:
            await self._verify(steady, before, target - 1)
        self.verified = target
        if steady:
            await self._overdue(now, steady, full=full)

    async def _bring_past(self, target: int) -> None:
        if len(self._loaded) > BACKLOG:
            return
        since, restarts = self._fresh_since, self._restarts
        rows = await self._store.due(sorted(self._fresh), target - 1, PAGE, since)
        fresh = sum(map(self._loaded.row, rows))
        if restarts != self._restarts:
            return  # more shards came meanwhile: from the beginning, for all
        if len(rows) < PAGE:
            self._fresh.clear()
            return
        last = rows[-1].due_at
        # A page of one millisecond that brings nothing new is left to the looks back.
        self._fresh_since = last if fresh or last > since else since + 1

    async def _verify(self, shards: Sequence[int], since: int, until: int) -> None:
        digests = await self._store.due_digest(shards, since, until)
        if not digests:
            return
        held = await self._loaded.digest(since, until)
        differing: dict[int, list[DueDigest]] = {}
        for digest in digests:
            if held.get((digest.shard, digest.second)) != (digest.count, digest.mark):
                differing.setdefault(digest.second, []).append(digest)
        for second, listed in differing.items():
            await self._bring(second * 1_000, listed)

    async def _bring(self, since: int, digests: Sequence[DueDigest]) -> None:
        batch: list[int] = []
        total = 0
        for n, digest in enumerate(digests):
            batch.append(digest.shard)
            total += digest.count
            if total >= PAGE or n == len(digests) - 1:
                rows = await self._store.due(batch, since + 999, total + _SLACK, since)
                for row in rows:
                    self._loaded.row(row)
                batch, total = [], 0

    async def _overdue(self, now: int, shards: Sequence[int], *, full: bool) -> None:
        """Nothing is looked for while what is known is behind: it would only be found again."""
        due = self._loaded.next_due()
        if due is not None and due < now - BEHIND_MS:
            return
        since = now - OVERDUE_MS
        if full or now >= self._full_at:
            since, self._full_at = 0, now + FULL_MS
        for row in await self._store.due(shards, now - BEHIND_MS, PAGE, since):
            self._loaded.row(row)
