"""What Redis may do to the wheel: forget, go back in time, stand still, die, be full or of no use."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from mainspring_server.clock import SystemClock
from mainspring_server.domain.errors import FailedPrecondition
from mainspring_server.domain.task import NewTask
from mainspring_server.store.port import Store
from mainspring_server.wheel.redis import RedisWheel
from tests.integration.redis.conftest import ALL_SHARDS, Fired, MakeNode, Node, pending
from tests.services import RealServices

# A machine that many tests share is slow at times: asserted is what is promised, no more.
LATE_MS = 5_000


async def load(node: Node, seconds: float, tasks: list[NewTask], delay_ms: int = 4_000) -> None:
    """Submit 200 tasks a second, due 0.5 s to `delay_ms` later."""
    clock = SystemClock()
    end = clock.monotonic() + seconds * 1_000
    while clock.monotonic() < end:
        now = clock.now()
        batch = [pending(now, now + 500 + (n * 379) % (delay_ms - 500)) for n in range(20)]
        await node.submit(batch)
        tasks += batch
        await clock.sleep_until(now + 100)


def check(fired: Fired, tasks: list[NewTask]) -> None:
    """Every task fired, none early, none later than promised."""
    lateness = fired.lateness(tasks)
    assert min(lateness) >= 0
    assert max(lateness) <= LATE_MS


async def test_flushall_under_load(node: MakeNode, redis: Redis, fired: Fired) -> None:
    api, _, tasks = await node(()), await node(), []
    for _ in range(3):
        await load(api, 0.7, tasks)
        await redis.flushall()
    await load(api, 0.5, tasks)
    await fired.count(len(tasks))
    check(fired, tasks)


@pytest.fixture
async def no_dump(redis: Redis) -> AsyncIterator[Path]:
    """Where Redis saves; removed afterwards."""
    dump = Path((await redis.config_get("dir"))["dir"]) / "dump.rdb"
    yield dump
    await asyncio.to_thread(dump.unlink, missing_ok=True)


async def test_a_redis_that_was_set_back(
    node: MakeNode, redis: Redis, services: RealServices, fired: Fired, no_dump: Path
) -> None:
    """Saved, filled further, killed, started with the old state."""
    api, _, tasks = await node(()), await node(), []
    await load(api, 1.0, tasks, delay_ms=8_000)
    await redis.save()
    assert await asyncio.to_thread(no_dump.exists)
    await load(api, 1.5, tasks, delay_ms=8_000)
    await asyncio.to_thread(services.kill, "redis")
    await asyncio.to_thread(services.restart, "redis")
    await load(api, 0.5, tasks)
    await fired.count(len(tasks))
    check(fired, tasks)


async def test_a_redis_that_stands_still(
    node: MakeNode, services: RealServices, fired: Fired
) -> None:
    api, trigger, tasks = await node(()), await node(), []
    await load(api, 0.5, tasks)
    services.kill("redis", signal.SIGSTOP)
    try:
        await load(api, 4.0, tasks)
        assert trigger.ladder.rung == "polled"
        assert api.ladder.rung == "polled"
        await fired.count(len(tasks) // 2)
    finally:
        services.kill("redis", signal.SIGCONT)
    await trigger.rung("redis")
    await api.rung("redis")
    await load(api, 0.5, tasks)
    await fired.count(len(tasks))
    check(fired, tasks)


async def test_a_redis_that_dies(
    node: MakeNode, services: RealServices, fired: Fired, caplog: pytest.LogCaptureFixture
) -> None:
    """The trigger polls at once, and goes back by itself; the log has no more than a few lines."""
    api, trigger, tasks = await node(()), await node(), []
    await load(api, 0.5, tasks)
    await asyncio.to_thread(services.kill, "redis")
    try:
        await trigger.rung("polled")
        await load(api, 2.0, tasks)
    finally:
        await asyncio.to_thread(services.restart, "redis")
    await trigger.rung("redis")
    await load(api, 0.5, tasks)
    await fired.count(len(tasks))
    check(fired, tasks)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 3  # each process once, and the ladder


async def test_a_full_redis(
    node: MakeNode, redis: Redis, fired: Fired, caplog: pytest.LogCaptureFixture
) -> None:
    """Hints that find no room are lost hints; nothing falls from the ladder."""
    api, trigger, tasks = await node(()), await node(), []
    await redis.config_set("maxmemory", 1)
    try:
        await load(api, 2.0, tasks, delay_ms=5_000)
        await fired.count(len(tasks))
        assert trigger.ladder.rung == "redis"
        assert api.ladder.lost > 0
        assert not caplog.records
    finally:
        await redis.config_set("maxmemory", 0)
    check(fired, tasks)


async def test_a_redis_that_evicts_is_refused(
    services: RealServices, store: Store, redis: Redis
) -> None:
    wheel = RedisWheel(services.wheel, store, SystemClock())
    await redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(FailedPrecondition, match="noeviction"):
            await wheel.start()
    finally:
        await redis.config_set("maxmemory-policy", "noeviction")
        await wheel.close()


async def test_a_redis_that_is_not_there(node: MakeNode, fired: Fired, free_port: int) -> None:
    """A node starts without it and polls."""
    trigger = await node(url=f"redis://127.0.0.1:{free_port}/0")
    tasks: list[NewTask] = []
    await load(trigger, 0.5, tasks, delay_ms=1_500)
    await fired.count(len(tasks))
    assert trigger.ladder.rung == "polled"
    check(fired, tasks)


async def test_two_owners_of_everything(node: MakeNode, fired: Fired) -> None:
    """Every task fires once: the swap decides."""
    api, tasks = await node(()), []
    owners = [await node(), await node()]
    await load(api, 1.5, tasks)
    await load(owners[0], 0.5, tasks)
    await fired.count(len(tasks))
    check(fired, tasks)
    rows = await api.store.load([task.task_id for task in tasks])
    assert {row.version for row in rows if row is not None} == {2}


async def test_shards_change_hands(node: MakeNode, fired: Fired) -> None:
    """Whoever owns them next finds what was read and not fired, and what stands in Redis."""
    api, tasks = await node(()), []
    first, second = await node(), await node(range(0))
    await load(api, 1.0, tasks)
    await first.ladder.open(range(40))
    await second.start(range(40, 64))
    await load(api, 1.0, tasks)
    await first.ladder.open(())
    await second.ladder.open(ALL_SHARDS)
    await fired.count(len(tasks))
    check(fired, tasks)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
