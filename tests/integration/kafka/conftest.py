"""A store on the machine's clock, and as many nodes on one Kafka as a test asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mainspring_server.clock import SystemClock
from mainspring_server.queue.kafka import KafkaQueue
from mainspring_server.store.sqlite import SqliteStore
from tests.ready import WAIT_S, Node, fresh_lane, fresh_prefix, kafka_queue, open_store
from tests.services import RealServices


class Cluster:
    """Nodes of one deployment: they share a store, a prefix of topics and a consumer group."""

    def __init__(self, url: str, store: SqliteStore, clock: SystemClock) -> None:
        self.url = url
        self.store = store
        self.clock = clock
        self.prefix = fresh_prefix()
        self.queues: list[KafkaQueue] = []

    async def node(
        self,
        name: str,
        *lanes: str,
        credits_: int = 100,
        consume: bool = True,
        partitions: int = 4,
        max_topics: int = 300,
    ) -> Node:
        """An open node that serves these lanes."""
        queue = kafka_queue(
            self.url,
            self.store,
            self.clock,
            prefix=self.prefix,
            node=name,
            consume=consume,
            partitions=partitions,
            max_topics=max_topics,
        )
        await queue.open()
        self.queues.append(queue)
        queue.serve(dict.fromkeys(lanes, credits_))
        return Node(self.store, queue, self.clock)

    async def crash(self, node: Node) -> None:
        """End a node as SIGKILL would: nothing is committed, nothing let go."""
        queue = queue_of(node)
        tasks = [service._task for service in queue._services if service._task is not None]
        for service in queue._services:
            service._task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await queue._reader.stop()
        await queue._cluster.close()
        self.queues.remove(queue)

    async def close(self) -> None:
        """Close what still runs."""
        for queue in self.queues:
            await queue.close()


def queue_of(node: Node) -> KafkaQueue:
    """The node's queue, with its insides."""
    assert isinstance(node.queue, KafkaQueue)
    return node.queue


async def until(node: Node, condition: Callable[[], bool]) -> None:
    """Look after each pass of the node's ownership of partitions until the condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            queue_of(node)._partitions.wake.set()
            await queue_of(node)._partitions.probe.next()


async def rung(node: Node, name: str) -> None:
    """Return once the node is on that rung."""
    async with asyncio.timeout(3 * WAIT_S):
        while node.queue.rung != name:
            await queue_of(node)._ladder.probe.next()


@pytest.fixture
def lane() -> str:
    return fresh_lane()


@pytest.fixture
async def cluster(services: RealServices, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A deployment without nodes."""
    clock = SystemClock()
    store = await open_store(tmp_path, clock)
    found = Cluster(services.queue, store, clock)
    try:
        yield found
    finally:
        await found.close()
        await store.close()
