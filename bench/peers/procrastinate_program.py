"""procrastinate, with 100 jobs at a time."""

from __future__ import annotations

import procrastinate
from program import Countdown, Load, run

CONCURRENCY = 100


def app_of(url: str) -> procrastinate.App:
    """One application on that database."""
    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))


async def install(url: str) -> None:
    """Its tables."""
    app = app_of(url)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def enqueue(url: str, load: Load) -> None:
    """Many jobs in one call."""
    app = app_of(url)

    @app.task(name="noop")
    async def noop() -> None:
        """Never run here."""

    async with app.open_async():
        await load.run(lambda count: noop.batch_defer_async(*[{}] * count))


async def work(url: str, countdown: Countdown) -> None:
    """Until it is stopped."""
    app = app_of(url)

    @app.task(name="noop")
    async def noop() -> None:
        countdown.one_ran()

    async with app.open_async():
        print("ready", flush=True)
        await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)


run(install, enqueue, work)
