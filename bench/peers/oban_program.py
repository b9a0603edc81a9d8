"""oban for Python, with 100 jobs at a time."""

from __future__ import annotations

import asyncio

from oban import Oban, schema, worker
from program import Countdown, Load, run

CONCURRENCY = 100
counting: list[Countdown] = []


@worker(queue="default")
class NoOp:
    """Ends at once."""

    async def process(self, _job: object) -> None:
        """Count it."""
        counting[0].one_ran()


async def install(url: str) -> None:
    """Its tables."""
    pool = await Oban.create_pool(url)
    await schema.install(pool)
    await pool.close()


async def enqueue(url: str, load: Load) -> None:
    """Many jobs in one call."""
    pool = await Oban.create_pool(url)
    async with Oban(pool=pool) as oban:
        await load.run(lambda count: oban.enqueue_many([NoOp.new({}) for _ in range(count)]))
    await pool.close()


async def work(url: str, countdown: Countdown) -> None:
    """Until it is stopped."""
    counting.append(countdown)
    pool = await Oban.create_pool(url)
    async with Oban(pool=pool, queues={"default": CONCURRENCY}):
        print("ready", flush=True)
        await asyncio.Event().wait()


run(install, enqueue, work)
