"""Tells the dependents of tasks that have ended, on the node that ended them.

After the commit, in bounded batches, and again as often as it takes: the end of a task with
dependents keeps its `next_check_at` until all of them are told, so the sweeper of any node replays
what a crash left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from ..clock import Clock
from ..engine import Engine
from ..service import Service
from ..store.port import Edges

BATCH = 200
"""Predecessors at a time."""

PAGE = 1_000
"""Dependents at a time."""

MOST = 100_000
"""Ends that are remembered here; what is beyond is left to the sweeper."""


class Resolver(Service):
    """Works off what the engine says has ended; idle it costs nothing."""

    name = "resolve"

    def __init__(self, engine: Engine, store: Edges, clock: Clock) -> None:
        super().__init__(clock)
        self._engine = engine
        self._store = store
        self._ended: dict[bytes, None] = {}  # a set in the order of ending
        engine.effects.ended.append(self.tell)

    @property
    def pending(self) -> int:
        """Ends whose dependents this node has still to tell."""
        return len(self._ended)

    def tell(self, ids: Sequence[bytes]) -> None:
        """These are terminal and have dependents; a repeat is harmless."""
        self._ended.update(dict.fromkeys(ids[: max(MOST - len(self._ended), 0)]))
        self.wake.set()

    async def run_once(self) -> int | None:
        """Tell the dependents of one batch."""
        batch = list(islice(self._ended, BATCH))
        if not batch:
            return None
        # Forgotten first: an end that is told again while it is worked off comes once more.
        for task_id in batch:
            del self._ended[task_id]
        try:
            await self._resolve(batch)
        except BaseException:
            self._ended.update(dict.fromkeys(batch))
            raise
        return self.clock.now() if self._ended else None

    async def _resolve(self, batch: Sequence[bytes]) -> None:
        after: bytes | None = None
        while True:
            rows = await self._store.resolve(batch, after, PAGE)
            await self._engine.settle(rows)
            if len(rows) < PAGE:
                break
            after = rows[-1].task.task_id
        await self._store.told(batch)
