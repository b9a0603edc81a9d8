"""What every peer's program does: install its schema, enqueue, or work until N jobs have run.

It runs in the peer's own environment and imports nothing of ours. On the monotonic clock, which all
processes of a machine share, `enqueue` prints when it began and ended, `work` when the last job ran.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable

BATCH = 500
Enqueue = Callable[[int], Awaitable[object]]


class Countdown:
    """Ends the process once so many jobs have run."""

    def __init__(self, jobs: int) -> None:
        self._left = jobs

    def one_ran(self) -> None:
        """Called by the job."""
        self._left -= 1
        if not self._left:
            print(time.monotonic_ns(), flush=True)
            asyncio.get_running_loop().call_later(
                1.0, os._exit, 0
            )  # what it has to store comes first


async def enqueue_all(jobs: int, enqueue: Enqueue) -> None:
    """So many jobs in batches."""
    began = time.monotonic_ns()
    for start in range(0, jobs, BATCH):
        await enqueue(min(BATCH, jobs - start))
    print(began, time.monotonic_ns(), flush=True)


def run(
    install: Callable[[str], Awaitable[None]],
    enqueue: Callable[[str, int], Awaitable[None]],
    work: Callable[[str, Countdown], Awaitable[None]],
) -> None:
    """The command line: MODE URL JOBS."""
    mode, url, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if mode == "install":
        asyncio.run(install(url))
    elif mode == "enqueue":
        asyncio.run(enqueue(url, jobs))
    else:
        asyncio.run(work(url, Countdown(jobs)))
