"""Which topics exist, and making those that do not yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ...clock import Clock
from ...domain.errors import MainspringError, ResourceExhausted
from .cluster import Cluster, unavailable
from .names import PREFIX, namespace_prefix, topic_name
from .protocol import NO_LEADER, Topic

log = logging.getLogger(__name__)

_COUNT_AGAIN_MS = 10_000
_LEADER_PAUSE_MS = 20
_LEADER_WAIT_MS = 2_000
_SAFE_REPLICAS = 3

LaneBand = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How topics are made. `max_topics` bounds those of one namespace: three per lane at most."""

    partitions: int = 8
    replication: int = 1
    max_topics: int = 300
    prefix: str = PREFIX

    @property
    def configs(self) -> dict[str, str]:
        """A record counts as written once a second replica has it, where there are enough."""
        return {"min.insync.replicas": "2"} if self.replication >= _SAFE_REPLICAS else {}


class Topics:
    """The topics of lanes and bands, remembered until told to forget."""

    def __init__(self, cluster: Cluster, clock: Clock, settings: TopicSettings) -> None:
        self._cluster = cluster
        self._clock = clock
        self._settings = settings
        self._known: dict[str, Topic] = {}
        self._making = asyncio.Lock()
        self._counts: dict[str, int] = {}
        self._counted_at: int | None = None
        self.made: list[Callable[[], None]] = []
        """Called after this process has made a topic."""

    def name(self, lane: str, band: int) -> str:
        """The topic's name, whether it exists or not."""
        return topic_name(lane, band, self._settings.prefix)

    def forget(self, names: Collection[str]) -> None:
        """Something is wrong with these: ask again before they are used."""
        for name in names:
            self._known.pop(name, None)

    def forget_all(self) -> None:
        """The cluster was away and may have come back as another."""
        self._known.clear()
        self._counted_at = None

    async def find(self, names: Sequence[str], *, fresh: bool = False) -> dict[str, Topic]:
        """Those of `names` that exist; remembered ones are not asked for unless `fresh`."""
        ask = [name for name in names if fresh or name not in self._known]
        if ask:
            found = (await self._cluster.metadata(ask)).topics
            self.forget(ask)
            self._known.update(found)
        return {name: self._known[name] for name in names if name in self._known}

    async def ensure(self, wanted: Collection[LaneBand]) -> dict[LaneBand, Topic | MainspringError]:
        """The topics of these lanes and bands, made where missing; an error stands where it failed."""
        names = {pair: self.name(*pair) for pair in wanted}
        found = await self.find(list(names.values()))
        missing = [pair for pair, name in names.items() if name not in found]
        errors: dict[LaneBand, MainspringError] = {}
        if missing:
            async with self._making:
                errors = await self._make(missing)
            found = await self.find(list(names.values()))
        return {
            pair: found.get(name) or errors.get(pair) or unavailable(f"has no topic {name} yet")
            for pair, name in names.items()
        }

    async def _make(self, missing: Sequence[LaneBand]) -> dict[LaneBand, MainspringError]:
        found = await self.find([self.name(*pair) for pair in missing])
        allowed, errors = await self._within_limit(
            [pair for pair in missing if self.name(*pair) not in found]
        )
        if not allowed:
            return errors
        settings = self._settings
        names = {self.name(*pair): pair for pair in allowed}
        failed = await self._cluster.create(
            list(names), settings.partitions, settings.replication, settings.configs
        )
        for name, reason in failed.items():
            errors[names[name]] = unavailable(f"refused to make the topic {name}", reason)
        await self._await_leaders([name for name in names if name not in failed])
        for listener in self.made:
            listener()
        return errors

    async def _within_limit(
        self, pairs: Sequence[LaneBand]
    ) -> tuple[list[LaneBand], dict[LaneBand, MainspringError]]:
        """Those that their namespaces may still have, and the refusals."""
        limit = self._settings.max_topics
        allowed: list[LaneBand] = []
        errors: dict[LaneBand, MainspringError] = {}
        if pairs:
            await self._count()
        for lane, band in pairs:
            namespace = lane.partition("/")[0]
            start = namespace_prefix(namespace, self._settings.prefix)
            count = self._counts.get(start, 0)
            if count >= limit:
                errors[lane, band] = ResourceExhausted(
                    "QUOTA_EXCEEDED",
                    f"namespace {namespace} has {count} topics of {limit}: no topic for queue "
                    f"{lane.partition('/')[2]!r}; its tasks are claimed from the store, more slowly",
                    metadata={"namespace": namespace, "lane": lane},
                )
            else:
                self._counts[start] = count + 1
                allowed.append((lane, band))
        return allowed, errors

    async def _count(self) -> None:
        now = self._clock.monotonic()
        if self._counted_at is not None and now < self._counted_at + _COUNT_AGAIN_MS:
            return
        counts: dict[str, int] = {}
        for name in (await self._cluster.metadata(None)).topics:
            # an escape never begins a queue, so the first slash ends the namespace
            start, slash, _ = name.partition("_2f")
            counts[start + slash] = counts.get(start + slash, 0) + 1
        self._counts, self._counted_at = counts, now

    async def _await_leaders(self, names: Sequence[str]) -> None:
        """A new topic can be written once each partition has a leader: a few milliseconds."""
        until = self._clock.now() + _LEADER_WAIT_MS
        while names and self._clock.now() < until:
            found = await self.find(names, fresh=True)
            if all(name in found and NO_LEADER not in found[name].leaders for name in names):
                return
            await self._clock.sleep_until(self._clock.now() + _LEADER_PAUSE_MS)
