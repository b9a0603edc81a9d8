"""The client's side: submitting at full speed or at a rate, waiting for the end, checking it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from mainspring import AsyncClient, Client, CountGroupBy, MainspringError, NewTask, TaskStatus

from .board import Board
from .processes import BenchError
from .site import Site

LOOK_EVERY_S = 0.005
STUCK_AFTER_S = 60.0


async def submit_all(
    address: str, tasks: Iterator[NewTask], batch: int, in_flight: int
) -> tuple[int, int]:
    """Submit in batches, several on their way at a time; answers when the first began and the last ended."""
    async with AsyncClient(address, timeout=60) as client:

        async def sender() -> None:
            while part := list(islice(tasks, batch)):
                accepted(await client.submit_batch(part))

        # The channel is open before the clock runs: connecting is no part of a batch.
        await client.count("status=FAILED")
        started = time.monotonic_ns()
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(sender())
        return started, time.monotonic_ns()


def warm_up(address: str) -> None:
    """Load what the client loads with its first call: no part of what a task costs."""
    with Client(address, timeout=60) as client:
        client.count("status=FAILED", [CountGroupBy.STATUS])


async def submit_at_rate(
    address: str, parts: Sequence[Sequence[NewTask]], interval: float
) -> tuple[int, float]:
    """Submit one batch every `interval` seconds; answers when it began and the latest start, in s."""
    latest = 0.0
    async with AsyncClient(address, timeout=60) as client:
        await client.count("status=FAILED")
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, part in enumerate(parts):
                due = started + number * interval
                await asyncio.sleep(max(due - time.monotonic(), 0.0))
                latest = max(latest, time.monotonic() - due)
                group.create_task(_submit(client, part))
    return int(started * 1e9), latest


async def _submit(client: AsyncClient, part: Sequence[NewTask]) -> None:
    accepted(await client.submit_batch(part))


def accepted(answers: Sequence[object]) -> None:
    """BenchError if a task of a batch was refused."""
    for answer in answers:
        if isinstance(answer, MainspringError):
            raise BenchError(f"a task was refused: {answer}")


def wait_until(done: Callable[[], int], wanted: int, site: Site) -> None:
    """Wait until a number is reached; BenchError if it stands still for a minute."""
    last, since = -1, time.monotonic()
    while (now := done()) < wanted:
        if now != last:
            last, since = now, time.monotonic()
            site.check()
        elif time.monotonic() - since > STUCK_AFTER_S:
            raise BenchError(
                f"{now} of {wanted} tasks ended, and nothing for {STUCK_AFTER_S:.0f} s\n"
                + site.last_words()
            )
        time.sleep(LOOK_EVERY_S)


def wait_for_end(board: Board, wanted: int, site: Site) -> int:
    """Wait until the results of so many tasks are stored; answers when, in monotonic ns."""
    wait_until(board.ended, wanted, site)
    return board.ended_at()


def succeeded(address: str, task_type: str, wanted: int) -> int:
    """How many tasks of a type SUCCEEDED; BenchError unless those are all there are, and `wanted`."""
    with Client(address, timeout=60) as client:
        count = client.count(f"task_type={task_type}", [CountGroupBy.STATUS])
    by_status = {str(group.status): group.count for group in count.groups if group.count}
    if by_status != {str(TaskStatus.SUCCEEDED): wanted}:
        raise BenchError(f"not every one of {wanted} tasks SUCCEEDED: {by_status}")
    return wanted
