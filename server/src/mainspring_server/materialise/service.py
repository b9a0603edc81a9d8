"""The materialiser: visits each schedule when its next check has come, in batches, soonest first.

It is off the firing path: what it makes is due later and fires by itself. A crash at any point
leaves a schedule either visited or not; who comes next goes on from there. Two of them at one
schedule take turns at its lock, and the second finds nothing to do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..clock import Clock
from ..domain.errors import Unavailable
from ..ids import text_of
from ..schedules import Schedules
from ..service import Service

log = logging.getLogger(__name__)

BATCH = 500
"""Schedules of one transaction."""

POLL_MS = 1_000
"""The longest sleep: what another node submitted or changed is found after it."""

BROKEN_MS = 60_000
"""How long a schedule that cannot be visited is left alone."""

RETRY_MS = 250
"""The pause when the store is away."""


class Materialiser(Service):
    """Visits the schedules of its shards; a node that owns none does nothing."""

    name = "materialise"

    def __init__(self, schedules: Schedules, clock: Clock, *, batch: int = BATCH) -> None:
        super().__init__(clock)
        self._schedules = schedules
        self._batch = batch
        self._shards: tuple[int, ...] = ()
        self._rezoned = False
        schedules.changed.append(self.wake.set)

    async def open(self, shards: Sequence[int]) -> None:
        """Visit the schedules of these shards from now on."""
        chosen = tuple(sorted(shards))
        if chosen != self._shards:
            self._shards = chosen
            self.wake.set()

    async def run_once(self) -> int | None:
        """Visit one batch; at once again while batches come back full."""
        if not self._shards:
            return None
        store = self._schedules.store
        try:
            if not self._rezoned:  # once after the start: the tz database came with it
                self._rezoned = await self._schedules.rezone(self._batch) == 0
                if not self._rezoned:
                    return self.clock.now()
            due = await store.due_schedules(self._shards, self._batch)
            if due:
                await self._visit(due)
            if len(due) >= self._batch:
                return self.clock.now()
            coming = await store.next_schedule_check(self._shards)
        except Unavailable as error:
            log.warning("materialise: %s; schedules wait and are visited again", error.message)
            return self.clock.now() + RETRY_MS
        poll = self.clock.now() + POLL_MS
        return poll if coming is None else min(max(coming, self.clock.now() + 1), poll)

    async def _visit(self, ids: Sequence[bytes]) -> None:
        """Visit them together; a batch that breaks is halved until the broken one is alone."""
        try:
            await self._schedules.visit(ids)
        except Unavailable:
            raise
        except Exception:
            if len(ids) > 1:
                half = len(ids) // 2
                await self._visit(ids[:half])
                await self._visit(ids[half:])
                return
            log.exception(
                "materialise: schedule %s cannot be visited; tried again in %d s, others go on",
                text_of(ids[0]),
                BROKEN_MS // 1_000,
            )
            until = self.clock.now() + BROKEN_MS
            await self._schedules.store.defer_schedules(ids, until)
