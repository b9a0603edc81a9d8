"""pgqueuer, from code: its command line does not start with today's typer."""

from __future__ import annotations

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from program import Countdown, enqueue_all, run


async def install(url: str) -> None:
    """Its tables."""
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def enqueue(url: str, jobs: int) -> None:
    """Many jobs in one call."""
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))

    async def some(count: int) -> object:
        return await queries.enqueue(["noop"] * count, [None] * count, [0] * count)

    await enqueue_all(jobs, some)
    await connection.close()


async def work(url: str, countdown: Countdown) -> None:
    """Batches of 100, as its own benchmark takes them."""
    connection = await asyncpg.connect(url)
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("noop")
    async def noop(_job: Job) -> None:
        countdown.one_ran()

    print("ready", flush=True)
    await queuer.run(batch_size=100)


uvloop.install()
run(install, enqueue, work)
