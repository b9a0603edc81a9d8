"""A store with a ready queue in front of it, driven as API and dispatcher would drive them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path

from mainspring_server.clock import SystemClock
from mainspring_server.domain.errors import Unavailable
from mainspring_server.domain.leases import Grant, Seat, Want
from mainspring_server.domain.task import NewTask, ReadyRef, Status
from mainspring_server.ids import mint
from mainspring_server.queue.kafka import KafkaQueue, KafkaSettings
from mainspring_server.queue.port import ReadyQueue
from mainspring_server.store.sqlite import SqliteStore

WAIT_S = 20.0
"""Longer than anything here takes: a test that waits so long has failed."""


def fresh_lane() -> str:
    """A lane that no other test uses."""
    return f"default/{secrets.token_hex(6)}"


def fresh_prefix() -> str:
    """A prefix of topics, and a consumer group, that no other test uses."""
    return f"t{secrets.token_hex(6)}"


class Node:
    """A dispatcher of one ready queue: what it was told, and claims until it has what it wants."""

    def __init__(self, store: SqliteStore, queue: ReadyQueue, clock: SystemClock) -> None:
        self.store = store
        self.queue = queue
        self.clock = clock
        self.told = asyncio.Event()
        queue.notify(self._on_notice)

    def _on_notice(self, lane: str) -> None:
        self.told.set()

    async def submit(
        self, count: int, lane: str, *, priority: int = 5, delay_ms: int = 0, age_ms: int = 0
    ) -> list[ReadyRef]:
        """READY rows, not published. With a delay they are pre-staged: READY before they are due."""
        now = self.clock.now()
        namespace, _, queue = lane.partition("/")
        status = Status.PENDING if delay_ms else Status.READY
        tasks = [
            NewTask(
                task_id,
                namespace,
                queue,
                queue,
                priority,
                status,
                now + delay_ms - age_ms,
                now,
                next_check_at=now + 60_000,
            )
            for task_id in mint(now, count)
        ]
        await self.store.insert(tasks)
        if delay_ms:
            answers = await self.store.make_ready([task.task_id for task in tasks], delay_ms)
            return [answer.ref for answer in answers if answer.ref is not None]
        return [ReadyRef(t.task_id, 1, lane, priority, t.due_at, now - age_ms) for t in tasks]

    async def publish(self, count: int, lane: str, *, priority: int = 5) -> list[ReadyRef]:
        """Submit and publish; where that fails, publish again as the sweeper would."""
        refs = await self.submit(count, lane, priority=priority)
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    await self.queue.publish(refs)
                except Unavailable:
                    continue
                return refs

    async def claim(self, room: int, *lanes: str) -> list[Grant]:
        """One claim."""
        return await self.queue.claim([Want(lanes, (Seat("worker", room),), 5_000)])

    async def collect(self, count: int, *lanes: str, room: int = 1_000) -> list[Grant]:
        """Claim whenever told, until so many tasks were granted."""
        grants: list[Grant] = []
        async with asyncio.timeout(WAIT_S):
            while len(grants) < count:
                self.told.clear()
                got = await self.claim(min(room, count - len(grants)), *lanes)
                grants += got
                if not got:
                    await self.told.wait()
        return grants

    async def nothing_more(self, *lanes: str) -> None:
        """There is nothing to claim now."""
        assert await self.claim(1_000, *lanes) == []


async def open_store(folder: Path, clock: SystemClock) -> SqliteStore:
    """An empty store on the machine's clock."""
    store = SqliteStore(str(folder / "tasks.db"), clock)
    await store.open()
    return store


def kafka_queue(
    url: str,
    store: SqliteStore,
    clock: SystemClock,
    *,
    prefix: str,
    node: str = "one",
    consume: bool = True,
    partitions: int = 4,
    max_topics: int = 300,
) -> KafkaQueue:
    """A ready queue on the Kafka of this run."""
    settings = KafkaSettings(partitions=partitions, prefix=prefix, max_topics=max_topics)
    return KafkaQueue(
        url.removeprefix("kafka://"), store, clock, node=node, consume=consume, settings=settings
    )


def ids(items: Sequence[ReadyRef] | Sequence[Grant]) -> list[bytes]:
    """The task ids, in order."""
    return [item.task_id for item in items]
