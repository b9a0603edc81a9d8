"""Which shards this node fires: a fair share of them, held through leases with terms.

Ownership only saves work, since every swap is conditional. So nothing here waits for certainty:
a lease is given up as soon as it may have lapsed, and taken as soon as it is free.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from zlib import crc32

from ..clock import Clock
from ..domain.errors import Unavailable
from ..domain.task import SHARDS
from ..service import Service
from ..store.port import ShardLease, ShardLeases

log = logging.getLogger(__name__)

TTL_MS = 3_000
"""How long a lease lasts without renewal."""

RENEW_MS = 1_000
"""How often leases are renewed and shares compared."""

RETRY_MS = 200
"""The pause after a failure."""

SHARD_PREFIX = "shard/"
NODE_PREFIX = "trigger/"

# A lease that is about to lapse unrenewed is taken over this long after it did.
_LAPSED_MS = 5


def shard_name(shard: int) -> str:
    """The name of a shard's lease."""
    return f"{SHARD_PREFIX}{shard}"


def shard_of_name(name: str) -> int:
    """The shard that a lease of that name is for."""
    return int(name.removeprefix(SHARD_PREFIX))


class Opens(Protocol):
    """What is told the shards that are owned: a wheel, or whoever else works by shard."""

    async def open(self, shards: Sequence[int]) -> None:
        """Work on these shards from now on."""


class Fanout:
    """Tells several who works on which shards."""

    def __init__(self, *told: Opens) -> None:
        self._told = told

    async def open(self, shards: Sequence[int]) -> None:
        """Work on these shards from now on."""
        for one in self._told:
            await one.open(shards)


class ShardOwner(Service):
    """Holds a fair share of the shards for `node` and opens the wheel with them.

    Each node also holds the lease `trigger/<node>`, by which the others count it; the share is
    the number of shards over that of nodes, rounded up. `on_change` is called after the wheel was
    opened with other shards than before. `own_all` holds every shard for ever and asks nobody:
    for a deployment of one process, and to try two owners of everything.
    """

    name = "shard owner"
    node_prefix = NODE_PREFIX
    shard_prefix = SHARD_PREFIX

    def __init__(
        self,
        leases: ShardLeases,
        wheel: Opens,
        clock: Clock,
        node: str,
        *,
        own_all: bool = False,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(clock)
        self._leases = leases
        self._wheel = wheel
        self._node = node
        self._own_all = own_all
        self._on_change = on_change
        self._held: dict[str, ShardLease] = {}
        self._registered: list[ShardLease] = []  # the node's own lease
        self._opened: frozenset[int] = frozenset()
        self._lapse_at = clock.monotonic()  # what is held may be another's from here on
        # Nodes that look for free shards at the same moment begin at different ones.
        start = crc32(node.encode()) % SHARDS
        self._names = [f"{self.shard_prefix}{(start + i) % SHARDS}" for i in range(SHARDS)]

    def _number(self, name: str) -> int:
        return int(name.removeprefix(self.shard_prefix))

    @property
    def shards(self) -> frozenset[int]:
        """The shards that the wheel is open with."""
        return self._opened

    @property
    def held(self) -> list[ShardLease]:
        """The leases held, with their terms."""
        return list(self._held.values())

    async def run_once(self) -> int | None:
        """Renew, and move towards the fair share."""
        if self._own_all:
            await self._open(range(SHARDS))
            return None
        try:
            return await self._balance()
        except Exception as error:
            if self.clock.monotonic() >= self._lapse_at:
                await self._concede()
            if not isinstance(error, Unavailable):
                raise
            log.warning("shard owner: %s; leases are renewed when it is back", error.message)
            return self.clock.now() + RETRY_MS

    async def stop(self) -> None:
        """End the loop, close the shards, and let the other nodes have them at once."""
        await super().stop()
        leases = [*self._held.values(), *self._registered]
        await self._concede()
        self._registered = []
        try:
            if leases:
                await self._leases.release(leases)
        except Unavailable as error:
            log.warning("shard owner: %s; the leases lapse by themselves", error.message)

    async def _balance(self) -> int:
        if self._held and self.clock.monotonic() >= self._lapse_at:
            # Stopped or cut off for too long: these may be another's by now.
            await self._concede()
        found = await self._leases.shard_leases(self.node_prefix, self.shard_prefix)
        nodes = {lease.owner for lease in found if lease.name.startswith(self.node_prefix)}
        share = -(-SHARDS // len(nodes | {self._node}))
        taken = [lease for lease in found if lease.name.startswith(self.shard_prefix)]
        own = [lease for lease in taken if lease.owner == self._node]
        await self._give_up(own[share:])

        busy = {lease.name for lease in taken}
        free = [name for name in self._names if name not in busy]
        kept = [lease.name for lease in own[:share]]
        wanted = [self.node_prefix + self._node, *kept, *free[: share - len(kept)]]
        asked = self.clock.monotonic()
        mine = await self._leases.acquire(wanted, self._node, TTL_MS)
        self._lapse_at = asked + TTL_MS
        if self.clock.monotonic() >= self._lapse_at:
            await self._concede()  # the answer came too late to mean anything
            return self.clock.now() + RETRY_MS
        self._registered = [one for one in mine if one.name.startswith(self.node_prefix)]
        self._held = {one.name: one for one in mine if one.name.startswith(self.shard_prefix)}
        await self._open(self._number(name) for name in self._held)
        return self._next(taken, share)

    async def _give_up(self, surplus: Sequence[ShardLease]) -> None:
        """Stop firing these shards first, then let others have them."""
        if surplus:
            for lease in surplus:
                self._held.pop(lease.name, None)
            await self._open(self._number(name) for name in self._held)
            await self._leases.release(surplus)

    def _next(self, taken: Sequence[ShardLease], share: int) -> int:
        """The next renewal; sooner if another node will give shards up, or has died."""
        now = self.clock.now()
        others = [lease for lease in taken if lease.owner != self._node]
        if (
            len(self._held) < share
            and max(Counter(lease.owner for lease in others).values(), default=0) > share
        ):
            return now + RETRY_MS
        lapses = min((lease.expires_at for lease in others), default=now + RENEW_MS)
        return min(now + RENEW_MS, max(lapses + _LAPSED_MS, now + RETRY_MS))

    async def _concede(self) -> None:
        self._held = {}
        await self._open(())

    async def _open(self, shards: Iterable[int]) -> None:
        owned = frozenset(shards)
        if owned == self._opened:
            return
        await self._wheel.open(sorted(owned))
        self._opened = owned
        if self._on_change is not None:
            self._on_change()
