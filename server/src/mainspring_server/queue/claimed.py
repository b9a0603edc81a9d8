"""The ready queue of the lower rungs: claims straight from the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..domain.leases import Grant, Want
from ..domain.task import ReadyRef
from ..store.port import TaskStore


class ClaimedQueue:
    """READY rows are the queue; publishing only wakes the dispatchers of this process."""

    rung = "claimed"

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._listeners: list[Callable[[str], None]] = []
        self._turn = 0

    async def open(self) -> None:
        """Nothing to connect: the store is open."""

    async def close(self) -> None:
        """Nothing to let go."""

    def notify(self, listener: Callable[[str], None]) -> None:
        """Call `listener(lane)` whenever there may be something to claim in a lane."""
        self._listeners.append(listener)

    def serve(self, lanes: Mapping[str, int]) -> None:
        """Every process may claim every row: nothing to share out."""

    async def publish(self, refs: Sequence[ReadyRef]) -> None:
        """Wake the dispatchers of these lanes."""
        for lane in {ref.lane for ref in refs}:
            for listener in self._listeners:
                listener(lane)

    async def claim(self, wants: Sequence[Want]) -> list[Grant]:
        """Claim by priority and due time."""
        self._turn += 1
        return await self._store.claim_lanes(wants, self._turn)

    async def lost(self, refs: Sequence[ReadyRef]) -> list[bool]:
        """Nothing can be lost on the way: a READY row is its own record."""
        return [False] * len(refs)

    async def backlog(self, lanes: Sequence[str]) -> dict[str, int]:  # noqa: ARG002 - the port's
        """Not known without counting rows; a READY row needs no recovery here anyway."""
        return {}
