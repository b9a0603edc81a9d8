"""Which partitions this node reads: its share of those of the lanes that its workers serve.

Held through the same leases with terms as the shards, so nothing rebalances: a worker that comes or
goes moves partitions of its own lanes and leaves all others alone. A node tells the others that it
serves a lane by a lease `credit/<lane>/<node>/<weight>`. Ownership only saves work: two owners of a
partition claim the same tasks, and the store grants each once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...clock import Clock
from ...domain.errors import Unavailable
from ...domain.task import DEFAULT_PRIORITY, band_of
from ...service import Service
from ...store.port import ShardLease, ShardLeases
from .buffer import Buffer, Partition
from .fetching import Key
from .lanes import Lane, Lanes
from .names import BANDS, lane_key
from .offsets import Offsets
from .protocol import Topic
from .shares import (
    CREDIT_PREFIX,
    LANE_PREFIX,
    credit_name,
    partition_name,
    read_credit,
    read_partition,
    share,
)
from .topics import LaneBand, Topics

log = logging.getLogger(__name__)

TTL_MS = 3_000
RENEW_MS = 1_000
RETRY_MS = 200
TOPICS_MS = 5_000
"""How often topics that are known are looked at again."""

STILL_MS = 1_000
"""An unread partition of another node that has not moved for so long stands still."""


DEFAULT_BAND = band_of(DEFAULT_PRIORITY)


@dataclass(slots=True)
class _Plan:
    """What a pass wants: leases to hold, leases to let go, and whether more is to be had soon."""

    names: list[str]
    surplus: list[ShardLease]
    hungry: bool


class Partitions(Service):
    """Takes, renews and gives up partitions once a second, and at once when lanes change."""

    name = "lane partitions"

    def __init__(
        self,
        leases: ShardLeases,
        clock: Clock,
        node: str,
        topics: Topics,
        offsets: Offsets,
        buffer: Buffer,
    ) -> None:
        super().__init__(clock)
        self.lanes = Lanes(self.wake.set)
        self.owned: dict[Key, Partition] = {}
        """The partitions that are read."""
        self.changed: list[Callable[[], None]] = []
        self.trouble: list[Callable[[], None]] = []
        self.resting = False
        """Kafka is away: hold nothing."""
        self._leases = leases
        self._node = node
        self._topics = topics
        self._offsets = offsets
        self._buffer = buffer
        self._held: dict[str, ShardLease] = {}
        self._lapse_at = clock.monotonic()
        self._topics_at = self._failed_at = self._looked_at = 0
        self._still: dict[Key, int] = {}  # unread partitions of others, and where they stand

    @property
    def held(self) -> list[ShardLease]:
        """The partitions' leases, with their terms."""
        return [lease for name, lease in self._held.items() if name.startswith(LANE_PREFIX)]

    async def run_once(self) -> int | None:
        """Renew, and move towards the fair shares."""
        if self._held and self.clock.monotonic() >= self._lapse_at:
            self._concede()  # stopped or cut off for too long: others may have them by now
        active = {} if self.resting else self.lanes.active()
        if not active and not self._held:
            return None
        try:
            return await self._balance(active)
        except Unavailable as error:
            if self.clock.monotonic() >= self._lapse_at:
                self._concede()
            if error.reason == "QUEUE_UNAVAILABLE":
                for listener in self.trouble:
                    listener()
            log.debug("%s: %s", self.name, error.message)
            return self.clock.now() + RETRY_MS

    async def stop(self) -> None:
        """End the loop, commit, and let others have the partitions at once."""
        await super().stop()
        try:
            await self._give_up(list(self._held.values()))
        except Unavailable as error:
            log.warning("%s: %s; the leases lapse by themselves", self.name, error.message)
        self._concede()

    async def commit(self, partitions: Iterable[Partition]) -> int:
        """Commit what was settled since the last time; answers how many partitions that were."""
        rows = [(p, position) for p in partitions if (position := p.position()) > p.committed]
        if rows and self.clock.monotonic() < self._lapse_at:
            await self._offsets.commit([(p.topic, p.number, position) for p, position in rows])
            for partition, position in rows:
                partition.committed = position
        return len(rows)

    def failing(self, partition: Partition) -> None:
        """It could not be read: look at its topic again and start from the committed offset."""
        partition.failing = True
        self._topics.forget([partition.topic.name])
        now = self.clock.monotonic()
        if now >= self._failed_at + RETRY_MS:  # else with the next pass: no loop of failures
            self._failed_at = now
            self.wake.set()

    # --- One pass -----------------------------------------------------------------------------

    async def _balance(self, active: dict[str, Lane]) -> int:
        topics = await self._find(active)
        self._close_changed(topics)
        found = await self._leases.shard_leases(CREDIT_PREFIX, LANE_PREFIX)
        credit = [lease for lease in found if lease.name.startswith(CREDIT_PREFIX)]
        taken = [lease for lease in found if lease.name.startswith(LANE_PREFIX)]
        plan = self._plan(active, topics, credit, taken)
        await self._give_up(plan.surplus)
        if plan.names:
            asked = self.clock.monotonic()
            mine = await self._leases.acquire(plan.names, self._node, TTL_MS)
            self._lapse_at = asked + TTL_MS
            if self.clock.monotonic() >= self._lapse_at:
                self._concede()
                return self.clock.now() + RETRY_MS
            wanted = set(plan.names)
            self._held = {lease.name: lease for lease in mine if lease.name in wanted}
        await self._open(topics)
        await self._look_around(active, topics)
        self._announce()
        # another holds more than its share, or died: its leases are free soon
        return self.clock.now() + (RETRY_MS if plan.hungry else RENEW_MS)

    async def _find(self, active: dict[str, Lane]) -> dict[str, tuple[Topic, LaneBand]]:
        """The topics of the lanes. Missing ones are asked for each time, known ones now and then.

        The one that tasks of the default priority need is made here, ahead of the first of them:
        it would wait for the topic's leaders, and then for this node to find it.
        """
        pairs = {
            self._topics.name(lane, band): (lane, band) for lane in active for band in range(BANDS)
        }
        if not pairs:
            return {}
        await self._topics.ensure([(lane, DEFAULT_BAND) for lane in active])
        now = self.clock.monotonic()
        fresh = now >= self._topics_at
        found = await self._topics.find(list(pairs), fresh=fresh)
        if fresh:
            self._topics_at = now + TOPICS_MS
        return {name: (topic, pairs[name]) for name, topic in found.items()}

    def _close_changed(self, topics: dict[str, tuple[Topic, LaneBand]]) -> None:
        """Stop reading what is gone, made anew, or failing; what is still held is opened again."""
        gone = []
        for (name, number), partition in self.owned.items():
            topic = topics[name][0] if name in topics else None
            if (
                topic is None
                or topic.topic_id != partition.topic.topic_id
                or number >= len(topic.leaders)
                or partition.failing
            ):
                gone.append(partition)
            else:
                partition.topic = topic  # its leaders may have changed
        self._close(gone)

    def _plan(
        self,
        active: dict[str, Lane],
        topics: dict[str, tuple[Topic, LaneBand]],
        credit: Sequence[ShardLease],
        taken: Sequence[ShardLease],
    ) -> _Plan:
        weights: dict[str, dict[str, int]] = {}
        for claim in map(read_credit, credit):
            if claim.node != self._node:
                weights.setdefault(claim.lane, {})[claim.node] = claim.weight
        own = {
            lane_key(name): credit_name(lane_key(name), self._node, lane.credits)
            for name, lane in active.items()
        }
        owners = {read_partition(lease.name): lease for lease in taken}
        names, kept, hungry = list(own.values()), set(own.values()), False
        for name, lane in active.items():
            lane.rivals = lane_key(name) in weights
        for name, (topic, (lane_name, _)) in topics.items():
            key = lane_key(lane_name)
            shares = {**weights.get(key, {}), self._node: int(own[key].rpartition("/")[2])}
            target = share(shares, self._node, len(topic.leaders), name)
            numbers = range(len(topic.leaders))
            mine = [
                n for n in numbers if (lease := owners.get((name, n))) and lease.owner == self._node
            ]
            free = [n for n in numbers if (name, n) not in owners]
            chosen = [*mine, *free][:target]
            names += [partition_name(name, n) for n in chosen]
            kept.update(partition_name(name, n) for n in mine[:target])
            hungry = hungry or len(chosen) < target
        surplus = [
            lease
            for lease in (*credit, *taken)
            if lease.owner == self._node and lease.name not in kept
        ]
        return _Plan(names, surplus, hungry)

    async def _give_up(self, surplus: Sequence[ShardLease]) -> None:
        """Stop reading these, commit how far they were claimed, then let others have them."""
        if not surplus:
            return
        keys = [
            read_partition(lease.name) for lease in surplus if lease.name.startswith(LANE_PREFIX)
        ]
        closing = [self.owned[key] for key in keys if key in self.owned]
        try:
            await self.commit(closing)
        except Unavailable as error:
            log.debug("%s: not committed before giving up: %s", self.name, error.message)
        self._close(closing)
        for lease in surplus:
            self._held.pop(lease.name, None)
        await self._leases.release(surplus)

    async def _open(self, topics: dict[str, tuple[Topic, LaneBand]]) -> None:
        """Start reading what is held, from the committed offset or the beginning."""
        held = [read_partition(lease.name) for lease in self.held]
        new = [key for key in held if key not in self.owned and key[0] in topics]
        if not new:
            return
        names = dict.fromkeys(name for name, _ in new)
        standing = await self._offsets.standing([topics[name][0] for name in names])
        for key in new:
            at = standing.get(key)
            if at is None:
                continue  # no leader: its lane is short, and the next pass tries again
            topic, (lane, band) = topics[key[0]]
            self.owned[key] = Partition(topic, key[1], lane, band, at.claimed, at.claimed, at.end)

    async def _look_around(
        self, active: dict[str, Lane], topics: dict[str, tuple[Topic, LaneBand]]
    ) -> None:
        """Find lanes of which a part stands still: unread by its owner, or without leader."""
        now = self.clock.monotonic()
        if now < self._looked_at + STILL_MS:
            return
        self._looked_at = now
        foreign: dict[str, Topic] = {}
        for name, (topic, _) in topics.items():
            if any((name, number) not in self.owned for number in range(len(topic.leaders))):
                foreign[name] = topic
        standing = await self._offsets.standing(list(foreign.values()))
        short = set()
        still = {}
        for name, topic in foreign.items():
            for number in range(len(topic.leaders)):
                key = (name, number)
                at = standing.get(key)
                if key in self.owned:
                    continue
                if at is None or (at.claimed < at.end and self._still.get(key) == at.claimed):
                    short.add(topics[name][1][0])
                if at is not None and at.claimed < at.end:
                    still[key] = at.claimed
        self._still = still
        for name, served in active.items():
            served.short = name in short

    # --- Ends ---------------------------------------------------------------------------------

    def _close(self, partitions: Sequence[Partition]) -> None:
        if partitions:
            for partition in partitions:
                self.owned.pop((partition.topic.name, partition.number), None)
            self._buffer.drop(partitions)

    def _concede(self) -> None:
        self._held = {}
        self._close(list(self.owned.values()))
        self._announce()

    def _announce(self) -> None:
        for listener in self.changed:
            listener()
