"""Deletes what has been terminal for longer than the retention."""

from __future__ import annotations

from .clock import Clock
from .service import Service
from .store.port import TaskQueries
from .store.schedules import ScheduleStore

INTERVAL_MS = 60_000
BATCH = 1_000


class Retention(Service):
    """A bounded batch a minute; at once again while batches come back full."""

    name = "retention"

    def __init__(
        self, store: TaskQueries, schedules: ScheduleStore, clock: Clock, keep_ms: int
    ) -> None:
        super().__init__(clock)
        self._store = store
        self._schedules = schedules
        self._keep_ms = keep_ms

    async def run_once(self) -> int:
        """Delete one batch of tasks and one of ledger rows."""
        now = self.clock.now()
        before = now - self._keep_ms
        tasks = await self._store.purge(before, BATCH)
        rows = await self._schedules.purge_ledger(before, BATCH)
        return now if max(tasks, rows) >= BATCH else now + INTERVAL_MS
