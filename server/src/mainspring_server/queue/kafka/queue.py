"""The ready queue in Kafka: hints that carry order and backlog, while the store decides."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...clock import Clock
from ...domain.errors import Unavailable
from ...domain.leases import Grant, Want
from ...domain.task import ReadyRef
from ...service import Service
from ...store.port import ShardLease, ShardLeases, TaskQueries, TaskStore
from .buffer import Buffer
from .claims import Claims
from .cluster import Cluster
from .ladder import Ladder
from .names import PREFIX
from .offsets import Offsets
from .partitions import Partitions
from .positions import Positions
from .producer import Producer
from .publisher import Publisher
from .reader import Reader
from .topics import Topics, TopicSettings
from .watch import Committer, Ripener

log = logging.getLogger(__name__)

GRACE_MS = 500
"""How much older than the delivery timeout a row must be to count as lost."""


class QueueBackend(TaskStore, TaskQueries, ShardLeases, Protocol):
    """What the queue needs of the store."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How topics are made and named, and how long a record may take to be acknowledged."""

    partitions: int = 8
    replication: int = 1
    max_topics: int = 300
    prefix: str = PREFIX
    delivery_ms: int = 1_500

    @property
    def topics(self) -> TopicSettings:
        """The part that is about topics."""
        return TopicSettings(self.partitions, self.replication, self.max_topics, self.prefix)


class KafkaQueue:
    """A ReadyQueue on `brokers` (`host:port,…`); `consume` where this process dispatches.

    `rung` is `kafka`, or `claimed` while the brokers are away and for as long after as older READY
    rows wait in the store.
    """

    def __init__(
        self,
        brokers: str,
        store: QueueBackend,
        clock: Clock,
        *,
        node: str,
        consume: bool,
        settings: KafkaSettings | None = None,
    ) -> None:
        self.rung = "kafka"
        self._settings = settings or KafkaSettings()
        delivery_ms = self._settings.delivery_ms
        self._clock = clock
        self._consume = consume
        self._listeners: list[Callable[[str], None]] = []
        self._cluster = Cluster(brokers, clock, timeout_ms=delivery_ms, client=f"mainspring-{node}")
        self._topics = Topics(self._cluster, clock, self._settings.topics)
        self._producer = Producer(self._cluster, delivery_ms)
        self._publisher = Publisher(self._topics, self._producer, clock, delivery_ms)
        offsets = Offsets(self._cluster, self._settings.prefix)
        self._positions = Positions(self._cluster, self._topics, offsets, clock)
        self._buffer = Buffer()
        self._partitions = Partitions(store, clock, node, self._topics, offsets, self._buffer)
        lanes = self._partitions.lanes
        self._ladder = Ladder(self._cluster, store, lanes, clock, self._rung_changed)
        self._claims = Claims(store, self._buffer, lanes, clock, self._notify)
        self._reader = Reader(
            self._cluster,
            self._partitions,
            self._buffer,
            clock,
            self._arrived,
            self._ladder.suspect,
        )
        self._ripener = Ripener(
            self._buffer, lanes, clock, self._notify_all, lambda: self._ladder.claimed
        )
        self._committer = Committer(self._partitions, clock)
        self._topics.made.append(self._partitions.wake.set)
        self._partitions.trouble.append(self._ladder.suspect)

    # --- Figures ------------------------------------------------------------------------------

    @property
    def records(self) -> int:
        """Records written and acknowledged since the start."""
        return self._producer.records

    @property
    def tasks(self) -> int:
        """Tasks in those records."""
        return self._producer.tasks

    @property
    def partitions(self) -> Sequence[ShardLease]:
        """The partitions that this node holds, with their terms."""
        return self._partitions.held

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests sent to the brokers, by kind."""
        return self._cluster.requests

    # --- Life ---------------------------------------------------------------------------------

    @property
    def _services(self) -> list[Service]:
        consuming: list[Service] = [self._partitions, self._ripener, self._committer]
        return [self._ladder, *(consuming if self._consume else [])]

    async def open(self) -> None:
        """Connect; where no broker answers, start on the lower rung."""
        while not self._ladder.down:
            failed = not await self._reachable()
            await self._ladder.run_once()
            if not failed:
                break
        for service in self._services:
            await service.start()

    async def _reachable(self) -> bool:
        try:
            await self._cluster.metadata([])
        except Unavailable:
            return False
        return True

    async def close(self) -> None:
        """Finish what runs, commit positions, let go."""
        await self._producer.drain()
        await self._ladder.stop()
        if self._consume:
            await self._reader.stop()
            await self._ripener.stop()
            await self._committer.stop()
            await self._partitions.stop()
        await self._cluster.close()

    # --- Both sides ---------------------------------------------------------------------------

    def notify(self, listener: Callable[[str], None]) -> None:
        """Call `listener(lane)` whenever there may be something to claim in a lane."""
        self._listeners.append(listener)

    def serve(self, lanes: Mapping[str, int]) -> None:
        """The lanes that workers of this process serve, with their connected credits."""
        self._partitions.lanes.serve(lanes, self._clock.monotonic())

    async def publish(self, refs: Sequence[ReadyRef]) -> None:
        """Write records; raises unless every one is acknowledged (the rows stay READY).

        On the lower rung READY rows are the queue: dispatchers of this process are told, others
        poll, and what none of them claims is published by the sweeper once Kafka is back.
        """
        if self._ladder.down:
            self._notify_all({ref.lane for ref in refs})
            return
        try:
            await self._publisher.publish(refs)
        except Unavailable:
            self._ladder.suspect()
            raise

    async def claim(self, wants: Sequence[Want]) -> list[Grant]:
        """Claim buffered tasks; on the lower rung straight from the store."""
        if self._ladder.claimed:
            return await self._claims.from_store(wants)
        grants = await self._claims.from_buffer(wants)
        self._committer.wake.set()
        self._ripener.wake.set()
        self._reader.wake()
        return grants

    async def lost(self, refs: Sequence[ReadyRef]) -> list[bool]:
        """Per READY row: true if its record can no longer arrive and it must be published again."""
        if self._ladder.claimed:
            return [False] * len(refs)
        try:
            return await self._positions.lost(refs, self._settings.delivery_ms + GRACE_MS)
        except Unavailable:
            self._ladder.suspect()
            return [False] * len(refs)

    async def backlog(self, lanes: Sequence[str]) -> dict[str, int]:
        """Tasks not yet claimed per lane: unclaimed records by the average size of a record."""
        if self._ladder.down:
            return {}
        try:
            found = await self._positions.backlog(lanes)
        except Unavailable:
            self._ladder.suspect()
            return {}
        records = self._producer.records + self._reader.records
        size = (self._producer.tasks + self._reader.tasks) / records if records else 1.0
        return {lane: round(count * size) for lane, count in found.items()}

    # --- Inside -------------------------------------------------------------------------------

    def _notify(self, lane: str) -> None:
        for listener in self._listeners:
            listener(lane)

    def _notify_all(self, lanes: Iterable[str]) -> None:
        for lane in lanes:
            self._notify(lane)

    def _arrived(self, lanes: Iterable[str]) -> None:
        now = self._clock.monotonic()
        for lane in lanes:
            found = self._buffer.lanes.get(lane)
            if found is not None and found.count:
                self._partitions.lanes.waits(lane, now)
                self._notify(lane)
        self._ripener.wake.set()

    def _rung_changed(self) -> None:
        claimed = self._ladder.claimed and (self._consume or self._ladder.down)
        self.rung = "claimed" if claimed else "kafka"
        self._partitions.resting = self._ladder.claimed
        self._topics.forget_all()
        self._partitions.wake.set()
        self._ripener.wake.set()
