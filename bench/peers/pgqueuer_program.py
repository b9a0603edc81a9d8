"""pgqueuer, from code: its command line does not start with today's typer."""

from __future__ import annotations

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from program import Countdown, Load, run

BATCH = 100


async def install(url: str) -> None:
    """Its tables."""
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def enqueue(url: str, load: Load) -> None:
    """Many jobs in one call."""
    size = load.in_flight
    async with asyncpg.create_pool(url, min_size=size, max_size=size) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await load.run(lambda count: queries.enqueue(["noop"] * count, [None] * count, [0] * count))


async def work(url: str, countdown: Countdown) -> None:
    """Batches of 100, as its own benchmark takes them; each job is started when it is there."""
    connection = await asyncpg.connect(url)
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("noop")
    async def noop(_job: Job) -> None:
        countdown.one_ran()

    print("ready", flush=True)
    await queuer.run(batch_size=BATCH)


run(install, enqueue, work)
