"""The pager: keeps the wheel filled from the store, whatever the wheel lost or never got."""

from __future__ import annotations

import logging

from ..clock import Clock
from ..domain.errors import Unavailable
from ..service import Service
from ..wheel.port import Wheel

log = logging.getLogger(__name__)

RETRY_MS = 250
"""The pause when the store or the wheel is away."""


class Pager(Service):
    """Refills one wheel at the times that the wheel asks for; always running."""

    name = "pager"

    def __init__(self, wheel: Wheel, clock: Clock) -> None:
        super().__init__(clock)
        self._wheel = wheel

    async def run_once(self) -> int | None:
        """Refill once."""
        try:
            return await self._wheel.refill(self.clock.now())
        except Unavailable as error:
            log.warning("pager: %s; tried again", error.message)
            return self.clock.now() + RETRY_MS
