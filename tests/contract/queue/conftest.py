"""The ready queues under test; another one is added to MAKERS and passes the same suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mainspring_server.clock import SystemClock
from mainspring_server.queue.claimed import ClaimedQueue
from mainspring_server.queue.port import ReadyQueue
from mainspring_server.store.sqlite import SqliteStore
from tests.ready import Node, fresh_lane, fresh_prefix, kafka_queue, open_store
from tests.services import RealServices

Maker = Callable[[SqliteStore, SystemClock, pytest.FixtureRequest], ReadyQueue]


def make_claimed(
    store: SqliteStore, clock: SystemClock, request: pytest.FixtureRequest
) -> ReadyQueue:
    return ClaimedQueue(store)


def make_kafka(
    store: SqliteStore, clock: SystemClock, request: pytest.FixtureRequest
) -> ReadyQueue:
    services: RealServices = request.getfixturevalue("services")
    return kafka_queue(services.queue, store, clock, prefix=fresh_prefix())


MAKERS: dict[str, Maker] = {"claimed": make_claimed, "kafka": make_kafka}


@pytest.fixture
def lane() -> str:
    return fresh_lane()


@pytest.fixture(params=sorted(MAKERS))
async def node(request: pytest.FixtureRequest, tmp_path: Path, lane: str) -> AsyncIterator[Node]:
    """A dispatcher that serves `lane` with 100 credits."""
    clock = SystemClock()
    store = await open_store(tmp_path, clock)
    queue = MAKERS[request.param](store, clock, request)
    await queue.open()
    try:
        queue.serve({lane: 100})
        yield Node(store, queue, clock)
    finally:
        await queue.close()
        await store.close()
