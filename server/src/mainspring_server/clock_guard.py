"""Compares this machine's clock with the store's.

PostgreSQL's clock decides what is due; a node that is off would fire late or ask in vain, so it
refuses to trigger until its clock is right again.
"""

from __future__ import annotations

import logging
from typing import Protocol

from .clock import Clock
from .service import Service

log = logging.getLogger(__name__)

INTERVAL_MS = 2_000
BOUND_MS = 100


class StoreClock(Protocol):
    """What is compared with."""

    async def now(self) -> int:
        """The store's clock in ms."""


class ClockGuard(Service):
    """Measures the offset every two seconds; the answer's travel time counts half."""

    name = "clock guard"

    def __init__(self, store: StoreClock, clock: Clock) -> None:
        super().__init__(clock)
        self._store = store
        self.offset_ms = 0
        """This machine's clock less the store's."""

    @property
    def trusted(self) -> bool:
        """True while the clock is near enough to trigger by it."""
        return abs(self.offset_ms) <= BOUND_MS

    async def run_once(self) -> int:
        """Measure once; a slow answer says little and is left out."""
        began, sent = self.clock.now(), self.clock.monotonic()
        theirs = await self._store.now()
        travel = self.clock.monotonic() - sent
        if travel <= BOUND_MS:
            before = self.trusted
            self.offset_ms = began + travel // 2 - theirs
            if before != self.trusted:
                log.warning(
                    "this clock is %d ms off the store's: %s",
                    self.offset_ms,
                    "triggering again" if self.trusted else "not triggering until it is right",
                )
        return self.clock.now() + INTERVAL_MS
