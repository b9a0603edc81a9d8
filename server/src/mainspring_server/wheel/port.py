"""What a wheel must do: say which tasks fall due, from hints that it may lose.

A wheel holds nothing that cannot be rebuilt from the store. It may forget, repeat or reorder
entries; it must not answer an entry before its due time. Nothing is taken out by reading: the
caller removes what the store has taken over (peek, swap, publish, remove).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ..store.port import DueEntry


class Wheel(Protocol):
    """Entries are (due_at ms, priority, task_id); all calls are batches."""

    @property
    def rung(self) -> str:
        """`polled` or `redis`, as GetServerInfo shows it."""

    changed: asyncio.Event
    """Set when an entry may now be the soonest; the caller clears it before it peeks."""

    async def start(self) -> None:
        """Connect; a server that is away is no error, one that would forget tasks is refused."""

    async def open(self, shards: Sequence[int]) -> None:
        """Begin with these shards; called again whenever the owned shards change."""

    async def close(self) -> None:
        """Let go of connections and memory."""

    async def add(self, entries: Sequence[DueEntry]) -> None:
        """A hint that these fall due; any process may call it, also without `open`. Idempotent."""

    async def peek(self, now: int, limit: int) -> list[DueEntry]:
        """Entries of the open shards with due_at <= now, by (due_at, priority); not removed."""

    async def remove(self, entries: Sequence[DueEntry]) -> None:
        """Drop these entries, each only if it still stands at the due time and priority given."""

    async def refill(self, now: int) -> int:
        """Bring in what the store has and the wheel lacks; answers when to call again, in ms."""

    def next_due(self) -> int | None:
        """No later than the soonest known entry falls due, or None."""
