"""Up and down the ladder: whether Kafka carries the ready tasks or the store itself does.

Down when the brokers do not answer twice in a row. Up again once they do; a node that dispatches
then goes on claiming from the store until no READY row of its lanes predates the switch, so that
new work does not overtake what waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...clock import Clock
from ...domain.errors import Unavailable
from ...service import Service
from ...store.port import TaskQueries
from .cluster import Cluster
from .lanes import Lanes

log = logging.getLogger(__name__)

PROBE_MS = 1_000
AWAY_MS = 250
FAILURES = 2
RETURN_MAX_MS = 60_000
"""After so long the rest is the sweeper's: it publishes again what is not in Kafka."""


class Ladder(Service):
    """Probes the brokers and says which rung is in use."""

    name = "ready queue rung"

    def __init__(
        self,
        cluster: Cluster,
        store: TaskQueries,
        lanes: Lanes,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(clock)
        self.down = False
        """The brokers do not answer."""
        self.returning = False
        """They do again, and the store's old rows come first."""
        self._cluster = cluster
        self._store = store
        self._lanes = lanes
        self._changed = changed
        self._failures = 0
        self._up_at = 0

    @property
    def claimed(self) -> bool:
        """Claims go to the store."""
        return self.down or self.returning

    def suspect(self) -> None:
        """Something failed: look at once."""
        if not self.down:
            self.wake.set()

    async def run_once(self) -> int:
        """One probe."""
        try:
            await self._cluster.metadata([])
        except Unavailable as error:
            self._failures += 1
            if not self.down and self._failures >= FAILURES:
                self._fall(error)
            return self.clock.now() + AWAY_MS
        self._failures = 0
        if self.down:
            self._rise()
        if self.returning and await self._settled():
            log.info("ready tasks come through Kafka again")
            self.returning = False
            self._changed()
        return self.clock.now() + (AWAY_MS if self.returning else PROBE_MS)

    def _fall(self, error: Unavailable) -> None:
        log.warning("%s; ready tasks are claimed from the store meanwhile", error.message)
        self.down, self.returning = True, False
        self._changed()

    def _rise(self) -> None:
        log.warning("Kafka answers again")
        self.down, self.returning = False, True
        self._up_at = self.clock.now()
        self._changed()

    async def _settled(self) -> bool:
        """No READY row of a served lane is older than the return."""
        if self.clock.now() >= self._up_at + RETURN_MAX_MS:
            return True
        served = set(self._lanes.names())
        try:
            for namespace in {lane.partition("/")[0] for lane in served}:
                for counts in await self._store.lane_counts(namespace):
                    oldest = counts.oldest_ready_at
                    if counts.lane in served and oldest is not None and oldest < self._up_at:
                        return False
        except Unavailable:
            return False
        return True
