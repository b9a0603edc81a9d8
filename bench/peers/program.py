"""What every peer's program does: install its schema, enqueue, or work until it is stopped.

It runs in the peer's own environment and imports nothing of ours. Times are monotonic nanoseconds,
which all processes of a machine share: `enqueue` prints when its first call began and its last ended,
`work` when the last job's body ran. Both say "ready" first, so that imports are no part of a figure,
and both stay until they are stopped, so that their processor time can be read.
"""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Iterator

import uvloop

Enqueue = Callable[[int], Awaitable[object]]


class Countdown:
    """Says when so many jobs have run."""

    def __init__(self, jobs: int) -> None:
        self._left = jobs

    def one_ran(self) -> None:
        """Called by the job."""
        self._left -= 1
        if not self._left:
            print(time.monotonic_ns(), flush=True)


class Load:
    """So many jobs in batches, several calls on their way at a time."""

    def __init__(self, jobs: int, batch: int, in_flight: int) -> None:
        self._jobs = jobs
        self._batch = batch
        self.in_flight = in_flight

    async def run(self, enqueue: Enqueue) -> None:
        """Wait for a line on stdin, enqueue everything, and say when that was."""
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        sizes = self._sizes()

        async def sender() -> None:
            for size in sizes:
                await enqueue(size)

        began = time.monotonic_ns()
        await asyncio.gather(*(sender() for _ in range(self.in_flight)))
        print(began, time.monotonic_ns(), flush=True)
        await asyncio.to_thread(sys.stdin.read)

    def _sizes(self) -> Iterator[int]:
        for start in range(0, self._jobs, self._batch):
            yield min(self._batch, self._jobs - start)


def run(
    install: Callable[[str], Awaitable[None]],
    enqueue: Callable[[str, Load], Awaitable[None]],
    work: Callable[[str, Countdown], Awaitable[None]],
) -> None:
    """The command line; on uvloop, as Mainspring's own processes are."""
    parser = ArgumentParser()
    parser.add_argument("mode", choices=("install", "enqueue", "work"))
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--in-flight", type=int, default=1)
    given = parser.parse_args()
    uvloop.install()
    if given.mode == "install":
        asyncio.run(install(given.url))
    elif given.mode == "enqueue":
        asyncio.run(enqueue(given.url, Load(given.jobs, given.batch, given.in_flight)))
    else:
        asyncio.run(work(given.url, Countdown(given.jobs)))
