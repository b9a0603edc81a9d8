"""Commands are counted at the door, as Redis counts them, and there are few of them."""

from __future__ import annotations

from collections.abc import Callable

from redis.asyncio import Redis

from mainspring_server.clock import SystemClock
from tests.integration.redis.conftest import Fired, MakeNode, pending

PER_TASK = 0.05
RATE, CALL, SECONDS = 2_000, 100, 6


async def executed(redis: Redis) -> int:
    """All commands that Redis has run but for those of this look."""
    stats = await redis.info("commandstats")
    look = ("cmdstat_info", "cmdstat_config|resetstat", "cmdstat_client|setinfo", "cmdstat_hello")
    return sum(entry["calls"] for name, entry in stats.items() if name not in look)


async def quiet(clock: SystemClock, count: Callable[[], int]) -> int:
    """Wait until next to nothing is sent for half a second; answers the count then.

    A start reads 64 shards in one go, of which Redis has run a part before it is counted here.
    """
    while True:
        before = count()
        await clock.sleep_until(clock.now() + 500)
        if count() <= before + 20:
            return count()


async def test_commands_per_task(node: MakeNode, redis: Redis, fired: Fired) -> None:
    """2,000 tasks a second, 100 a call, every other delayed by 1 to 5 s; two processes."""
    api, trigger = await node(()), await node()
    clock = SystemClock()

    def sent() -> int:
        return api.redis.commands + trigger.redis.commands

    await quiet(clock, sent)
    await redis.config_resetstat()
    before = sent()
    start, count, delayed = clock.now(), 0, []
    for call in range(RATE * SECONDS // CALL):
        now = clock.now()
        # The other half is due at once: READY from the start, and no business of the wheel's.
        batch = [pending(now, now + 1_000 + (count + n) * 37 % 4_000) for n in range(CALL // 2)]
        await api.submit(batch)
        delayed += batch
        count += CALL
        await clock.sleep_until(start + (call + 1) * 1_000 * CALL // RATE)
    await fired.count(len(delayed))
    await clock.sleep_until(clock.now() + 1_500)  # the last removals
    least = await quiet(clock, sent) - before
    exact = await executed(redis)
    counted = sent() - before
    assert least <= exact <= counted <= least + 20  # a pass may have come in between
    assert counted / count <= PER_TASK
    assert api.redis.lost == 0
    assert min(fired.lateness(delayed)) >= 0
