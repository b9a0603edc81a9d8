"""Reads the owned partitions into the buffer, no more than credit and one prefetch.

Two fetches at a time per broker: a partition that wants to be read while one fetch waits for news of
the others goes into the second and does not wait with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...clock import Clock
from ...domain.errors import Unavailable
from .buffer import Buffer, Partition
from .cluster import Cluster
from .fetching import PARTITION_BYTES, Fetched, Start, fetch, records
from .partitions import Partitions
from .protocol import NO_LEADER
from .records import CHUNK_TASKS, UnknownRecord, decode

log = logging.getLogger(__name__)

PREFETCH = CHUNK_TASKS
"""Tasks read beyond the credit of a lane."""

HELD_MAX = 200_000
"""Tasks of one lane that may wait for their due time here."""

WAIT_MS = 250
PAUSE_MS = 200
FETCHES = 2

_TASK_BYTES = 40
_RECORD_BYTES = 90


@dataclass(eq=False)
class _Fetch:
    """One of the fetches of a broker."""

    node: int
    channel: str
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Reader:
    """Fetches for as long as it runs; `arrived` is called with the lanes that got tasks."""

    def __init__(
        self,
        cluster: Cluster,
        partitions: Partitions,
        buffer: Buffer,
        clock: Clock,
        arrived: Callable[[Iterable[str]], None],
        trouble: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._buffer = buffer
        self._clock = clock
        self._arrived = arrived
        self._trouble = trouble
        self._fetches: dict[int, list[_Fetch]] = {}
        self._rotation = 0
        self.records = 0
        """Records read since the start."""
        self.tasks = 0
        """Tasks in them."""
        partitions.changed.append(self.look)

    def look(self) -> None:
        """The partitions or their leaders have changed."""
        for node in {
            leader
            for partition in self._partitions.owned.values()
            if (leader := partition.topic.leaders[partition.number]) != NO_LEADER
        }:
            if node not in self._fetches:
                self._fetches[node] = [self._start(node, n) for n in range(FETCHES)]
        self.wake()

    def wake(self) -> None:
        """There is room again."""
        for fetches in self._fetches.values():
            for one in fetches:
                one.wake.set()

    async def stop(self) -> None:
        """End every fetch."""
        tasks = [one.task for fetches in self._fetches.values() for one in fetches if one.task]
        self._fetches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, node: int, number: int) -> _Fetch:
        one = _Fetch(node, f"fetch{number}")
        one.task = asyncio.create_task(self._run(one), name=f"kafka fetch {node}/{number}")
        return one

    async def _run(self, one: _Fetch) -> None:
        while True:
            one.wake.clear()
            chosen = self._choose(one.node)
            if not chosen:
                await one.wake.wait()
                continue
            for partition in chosen:
                partition.fetching = True
            try:
                await self._fetch(one, chosen)
            except Unavailable as error:
                log.debug("a fetch from broker %d failed: %s", one.node, error.message)
                self._trouble()
                await self._clock.sleep_until(self._clock.now() + PAUSE_MS)
            except Exception:
                log.exception("a fetch from broker %d failed and is tried again", one.node)
                await self._clock.sleep_until(self._clock.now() + PAUSE_MS)
            finally:
                for partition in chosen:
                    partition.fetching = False

    def _choose(self, node: int) -> list[Partition]:
        """What may be read now: all that has no known backlog, and of the rest what there is room for."""
        self._rotation += 1
        idle: list[Partition] = []
        behind: dict[str, list[Partition]] = {}
        expected: dict[str, float] = {}
        size = self.tasks / self.records if self.records else CHUNK_TASKS
        most = PARTITION_BYTES // (_RECORD_BYTES + _TASK_BYTES * size) + 1
        for partition in self._partitions.owned.values():
            if partition.fetching:
                coming = size * min(partition.end - partition.next_offset, most)
                expected[partition.lane] = expected.get(partition.lane, 0.0) + coming
                continue
            if (
                partition.topic.leaders[partition.number] != node
                or partition.failing
                or self._room(partition) <= 0
            ):
                continue
            if partition.end > partition.next_offset:
                behind.setdefault(partition.lane, []).append(partition)
            else:
                idle.append(partition)
        chosen: list[Partition] = []
        for lane, parts in behind.items():
            turn = self._rotation % len(parts)
            total = expected.get(lane, 0.0)
            for partition in sorted(parts[turn:] + parts[:turn], key=lambda part: part.band):
                if total >= self._room(partition):
                    break
                chosen.append(partition)
                total += size * min(partition.end - partition.next_offset, most)
        turn = self._rotation % len(idle) if idle else 0
        return chosen + idle[turn:] + idle[:turn]

    def _room(self, partition: Partition) -> int:
        """A band is not held up by what waits in the bands behind it."""
        room = self._partitions.lanes.credits(partition.lane) + PREFETCH
        lane = self._buffer.lanes.get(partition.lane)
        if lane is None:
            return room
        if lane.held >= HELD_MAX:
            return 0
        return room - sum(lane.counts[: partition.band + 1])

    async def _fetch(self, one: _Fetch, chosen: list[Partition]) -> None:
        starts: list[Start] = [
            (p.topic, p.number, p.next_offset, min(self._room(p) * _TASK_BYTES, PARTITION_BYTES))
            for p in chosen
        ]
        answer = await fetch(self._cluster, one.node, starts, WAIT_MS, one.channel)
        arrived = set()
        for partition, (topic, number, offset, _) in zip(chosen, starts, strict=True):
            part = answer.get((topic.name, number))
            if part is None or not partition.open or partition.next_offset != offset:
                continue
            if part.error:
                log.debug("%s/%d: error %d", topic.name, number, part.error)
                self._partitions.failing(partition)
            elif self._accept(partition, part):
                arrived.add(partition.lane)
        if arrived:
            self._arrived(arrived)

    def _accept(self, partition: Partition, part: Fetched) -> bool:
        partition.end = part.end
        now, any_tasks = self._clock.now(), False
        for offset, value in records(part.batches):
            if offset < partition.next_offset:
                continue
            partition.next_offset = offset + 1
            if value is None:
                continue
            try:
                chunk = decode(value, partition.lane)
            except UnknownRecord as error:
                log.warning(
                    "%s/%d holds a record at %d that is not ours: %s",
                    partition.topic.name,
                    partition.number,
                    offset,
                    error,
                )
                continue
            self.records += 1
            self.tasks += len(chunk.refs)
            self._buffer.add(partition, offset, chunk, now)
            any_tasks = any_tasks or bool(chunk.refs)
        return any_tasks
