"""Deletes what has been terminal for longer than the retention."""

from __future__ import annotations

from .clock import Clock
from .service import Service
from .store.port import TaskQueries

INTERVAL_MS = 60_000
BATCH = 1_000


class Retention(Service):
    """A bounded batch a minute; at once again while batches come back full."""

    name = "retention"

    def __init__(self, store: TaskQueries, clock: Clock, keep_ms: int) -> None:
        super().__init__(clock)
        self._store = store
        self._keep_ms = keep_ms

    async def run_once(self) -> int:
        """Delete one batch."""
        now = self.clock.now()
        gone = await self._store.purge(now - self._keep_ms, BATCH)
        return now if gone >= BATCH else now + INTERVAL_MS
