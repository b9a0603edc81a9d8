"""Tells the dependents of tasks that have ended, on the node that ended them.

After the commit, in bounded batches, and again as often as it takes: the end of a task with
dependents keeps its `next_check_at` until all of them are told, so the sweeper of any node replays
what a crash left out.
"""

from __future__ import annotations

from collections import deque
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
    """Works off what the engine says has ended, a page a pass; idle it costs nothing.

    Ends with more dependents than a page take turns with new ones, so that a predecessor of
    100,000 keeps nobody waiting.
    """

    name = "resolve"

    def __init__(self, engine: Engine, store: Edges, clock: Clock) -> None:
        super().__init__(clock)
        self._engine = engine
        self._store = store
        self._ended: dict[bytes, None] = {}  # a set in the order of ending
        self._begun: deque[tuple[list[bytes], bytes | None]] = deque()  # told up to a dependent
        self._was_new = False
        engine.effects.ended.append(self.tell)

    @property
    def pending(self) -> int:
        """Ends whose dependents this node has still to tell."""
        return len(self._ended) + sum(len(batch) for batch, _ in self._begun)

    def tell(self, ids: Sequence[bytes]) -> None:
        """These are terminal and have dependents; a repeat is harmless."""
        self._ended.update(dict.fromkeys(ids[: max(MOST - self.pending, 0)]))
        self.wake.set()

    async def run_once(self) -> int | None:
        """Tell a page of the dependents of one batch."""
        batch, after = self._next()
        if not batch:
            return None
        try:
            rows = await self._store.resolve(batch, after, PAGE)
            await self._engine.settle(rows)
            if len(rows) < PAGE:
                await self._store.told(batch)
            else:
                self._begun.append((batch, rows[-1].task.task_id))
        except BaseException:
            self._begun.append((batch, after))
            raise
        return self.clock.now() if self._ended or self._begun else None

    def _next(self) -> tuple[list[bytes], bytes | None]:
        """New ends and begun ones by turns; an end that is told again meanwhile comes once more."""
        self._was_new = bool(self._ended) and not (self._begun and self._was_new)
        if not self._was_new:
            return self._begun.popleft() if self._begun else ([], None)
        batch = list(islice(self._ended, BATCH))
        for task_id in batch:
            del self._ended[task_id]
        return batch, None
