"""Small clocks of the ready queue: due tasks ripen, offsets are committed, starved lanes let go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ...clock import Clock
from ...domain.errors import Unavailable
from ...service import Service
from .buffer import Buffer
from .lanes import Lanes
from .partitions import Partitions

log = logging.getLogger(__name__)

COMMIT_MS = 500
POLL_MS = 250
RIPEN_MS = 10
"""Tasks that fall due one after the other are announced together, so many times a second at most."""


class Ripener(Service):
    """Tells dispatchers of tasks that were read early and fall due; gives up lanes without credit."""

    name = "due tasks"

    def __init__(
        self,
        buffer: Buffer,
        lanes: Lanes,
        clock: Clock,
        notify: Callable[[Iterable[str]], None],
        polled: Callable[[], bool],
    ) -> None:
        super().__init__(clock)
        self._buffer = buffer
        self._lanes = lanes
        self._notify = notify
        self._polled = polled

    async def run_once(self) -> int | None:
        """Everything that is due now; on the lower rung, every lane a few times a second."""
        now = self.clock.now()
        if self._polled():
            self._notify(self._lanes.names())
            return now + POLL_MS
        ripe = self._buffer.ripen(now)
        if ripe:
            self._notify(ripe)
        monotonic = self.clock.monotonic()
        give_up = self._lanes.starve(monotonic)
        due = self._buffer.next_due()
        times = [] if due is None else [max(due, now + RIPEN_MS)]
        if give_up is not None:
            times.append(now + give_up - monotonic)
        return min(times, default=None)


class Committer(Service):
    """Commits the lowest unclaimed offsets, all partitions in one request, twice a second."""

    name = "offsets"

    def __init__(self, partitions: Partitions, clock: Clock) -> None:
        super().__init__(clock)
        self._partitions = partitions
        self._next_at = 0

    async def run_once(self) -> int | None:
        """Commit what was settled; sleeps until the next claim when there was nothing."""
        now = self.clock.now()
        if now < self._next_at:
            return self._next_at
        try:
            count = await self._partitions.commit(list(self._partitions.owned.values()))
        except Unavailable as error:
            log.debug("offsets were not committed: %s", error.message)
            count = 1
        self._next_at = self.clock.now() + COMMIT_MS
        return self._next_at if count else None
