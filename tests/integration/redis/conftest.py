"""Whole trigger nodes over a real Redis, and a look into what stands there."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from redis.asyncio import Redis

from mainspring_server.clock import Clock, SystemClock, VirtualClock
from mainspring_server.domain.checks import first_check
from mainspring_server.domain.task import SHARDS, NewTask, ReadyRef, Status
from mainspring_server.engine import Engine
from mainspring_server.queue.claimed import ClaimedQueue
from mainspring_server.store.port import DueEntry, Store
from mainspring_server.store.sqlite import SqliteStore
from mainspring_server.trigger.pager import Pager
from mainspring_server.trigger.service import TriggerService
from mainspring_server.wheel.ladder import LadderWheel
from mainspring_server.wheel.polled import PolledWheel
from mainspring_server.wheel.redis import RedisWheel
from tests.services import RealServices

ALL_SHARDS = range(SHARDS)


def new_id(at: int) -> bytes:
    """An id as the engine mints them."""
    return at.to_bytes(6, "big") + b"\x70" + secrets.token_bytes(9)


def pending(now: int, due: int, priority: int = 5) -> NewTask:
    """A task that waits for its time."""
    check = first_check(Status.PENDING, due, now, None, None)
    return NewTask(
        new_id(now), "default", "work", "work", priority, Status.PENDING, due, now,
        next_check_at=check,
    )  # fmt: skip


def entry_of(task: NewTask) -> DueEntry:
    return DueEntry(task.due_at, task.priority, task.task_id)


@dataclass
class Fired:
    """What was published: when each task became READY, by the store's clock, and how often."""

    at: dict[bytes, int] = field(default_factory=dict)
    times: Counter[bytes] = field(default_factory=Counter)
    some: asyncio.Event = field(default_factory=asyncio.Event)

    async def count(self, number: int) -> None:
        """Return when so many tasks have fired."""
        async with asyncio.timeout(30):
            while len(self.at) < number:
                self.some.clear()
                await self.some.wait()

    def lateness(self, tasks: Sequence[NewTask]) -> list[int]:
        """In ms, in the order of the tasks."""
        return [self.at[task.task_id] - task.due_at for task in tasks]


class RecordingQueue(ClaimedQueue):
    """Notes what is published."""

    def __init__(self, store: Store, fired: Fired) -> None:
        super().__init__(store)
        self._fired = fired

    async def publish(self, refs: Sequence[ReadyRef]) -> None:
        for ref in refs:
            self._fired.at.setdefault(ref.task_id, ref.published_at)
            self._fired.times[ref.task_id] += 1
        self._fired.some.set()
        await super().publish(refs)


class Node:
    """A process of the distributed rung: engine and wheel, and a trigger if it has shards."""

    def __init__(self, store: Store, clock: Clock, wheel: RedisWheel, fired: Fired) -> None:
        self.store, self.redis = store, wheel
        self.ladder = LadderWheel(wheel, PolledWheel(store, clock, poll_ms=200), clock)
        self.engine = Engine(store, self.ladder, RecordingQueue(store, fired), clock)
        self._services = [
            Pager(self.ladder, clock),
            TriggerService(self.engine, self.ladder, clock),
        ]

    async def start(self, shards: Sequence[int] = ()) -> None:
        await self.ladder.start()
        if shards:
            await self.ladder.open(shards)
            for service in self._services:
                await service.start()

    async def submit(self, tasks: list[NewTask]) -> None:
        assert all(not isinstance(a, Exception) for a in await self.engine.submit(tasks))

    async def stop(self) -> None:
        for service in reversed(self._services):
            await service.stop()
        await self.ladder.close()

    async def rung(self, name: str) -> None:
        """Return when the node is on that rung."""
        async with asyncio.timeout(30):
            while self.ladder.rung != name:  # noqa: ASYNC110 - a rung has no event of its own
                await asyncio.sleep(0.01)


MakeNode = Callable[..., Awaitable[Node]]


@pytest.fixture
def prefix() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def fired() -> Fired:
    return Fired()


@pytest.fixture
async def redis(services: RealServices) -> AsyncIterator[Redis]:
    """A client beside the wheel's own."""
    client: Redis = Redis.from_url(services.wheel)
    yield client
    await client.aclose()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """On the machine's clock."""
    store = SqliteStore(str(tmp_path / "tasks.db"), SystemClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def node(
    services: RealServices, store: Store, prefix: str, fired: Fired
) -> AsyncIterator[MakeNode]:
    """Makes nodes over one store and one Redis, on the machine's clock."""
    made: list[Node] = []

    async def make(shards: Sequence[int] = ALL_SHARDS, url: str | None = None) -> Node:
        clock = SystemClock()
        wheel = RedisWheel(url or services.wheel, store, clock, prefix=prefix, timeout_ms=500)
        made.append(Node(store, clock, wheel, fired))
        await made[-1].start(shards)
        return made[-1]

    yield make
    for each in made:
        await each.stop()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def still_store(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Store]:
    """On virtual time."""
    store = SqliteStore(str(tmp_path / "still.db"), clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def wheel(
    services: RealServices, still_store: Store, clock: VirtualClock, prefix: str
) -> AsyncIterator[RedisWheel]:
    """A wheel of all shards on virtual time."""
    wheel = RedisWheel(services.wheel, still_store, clock, prefix=prefix)
    await wheel.open(ALL_SHARDS)
    await wheel.refill(clock.now())
    yield wheel
    await wheel.close()


class Turner:
    """Turns a wheel on virtual time as trigger and pager do."""

    def __init__(self, wheel: RedisWheel, store: Store, clock: VirtualClock) -> None:
        self.wheel, self.store, self.clock = wheel, store, clock
        self.fired: dict[bytes, int] = {}

    async def to(self, until: int) -> None:
        """Move time there; what falls due on the way is made READY and removed."""
        refill_at = self.clock.now()
        while True:
            now = self.clock.now()
            if now >= refill_at:
                refill_at = await self.wheel.refill(now)
            while found := await self.wheel.peek(now, 500):
                answers = await self.store.make_ready([entry.task_id for entry in found])
                self.fired.update({a.ref.task_id: now for a in answers if a.ref is not None})
                await self.wheel.remove(found)
            if now >= until:
                return
            due = self.wheel.next_due()
            assert due is not None
            self.clock.advance(max(min(until, refill_at, due), now + 1) - now)


@pytest.fixture
def turner(wheel: RedisWheel, still_store: Store, clock: VirtualClock) -> Turner:
    return Turner(wheel, still_store, clock)


class Glance:
    """What stands in Redis under the prefix of the test."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis, self._prefix = redis, prefix

    async def slots(self) -> dict[str, dict[bytes, float]]:
        """Slot (without the hash tag) -> members and scores, all groups together."""
        found: dict[str, dict[bytes, float]] = {}
        async for key in self._redis.scan_iter(f"{{{self._prefix}/*}}:L*"):
            members = await self._redis.zrange(key, 0, -1, withscores=True)
            found.setdefault(key.decode().split(":", 1)[1], {}).update(members)
        return found


@pytest.fixture
def glance(redis: Redis, prefix: str) -> Glance:
    return Glance(redis, prefix)
