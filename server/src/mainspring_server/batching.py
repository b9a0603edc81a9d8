"""Batches: calls that arrive together share one, and busy loops let theirs grow.

An idle batcher runs a call at once; what arrives while a batch is under way waits for the next, so
the batch grows with the load and nobody lingers on an idle system. A batch that fails is split in
halves and tried again, so that one bad item never fails its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from .domain.errors import Unavailable

PER_ITEM_MS = 3

T = TypeVar("T")
R = TypeVar("R")

Run = Callable[[list[T]], Awaitable[Sequence[R]]]


class Pace:
    """Spaces the batches of a loop that is busy, so that they grow; one that is idle never waits.

    A batch of n items keeps the next waiting until n x PER_ITEM_MS after its own start, at most
    `most_ms`. Below about 300 items a second nobody waits; above it there are 1000 / `most_ms`
    batches a second, whatever the rate. A batch that was full keeps nobody waiting.
    """

    def __init__(self, most_ms: int) -> None:
        self._most_ms = most_ms
        self._resume_at = 0

    def started(self, at: int, items: int) -> None:
        """A batch of so many items was begun at `at` (monotonic ms), and was not full."""
        self._resume_at = at + min(items * PER_ITEM_MS, self._most_ms)

    def wait(self, now: int) -> int:
        """For how many ms the next must wait."""
        return max(self._resume_at - now, 0)


class Batcher(Generic[T, R]):
    """Groups lists of items into calls of `run`, at most `limit` items each, `lanes` calls at once."""

    def __init__(self, run: Run[T, R], limit: int, lanes: int = 1) -> None:
        self._run = run
        self._limit = limit
        self._lanes = lanes
        self._waiting: list[tuple[list[T], asyncio.Future[list[R | Exception]]]] = []
        self._running: set[asyncio.Task[None]] = set()

    async def submit(self, items: list[T]) -> list[R | Exception]:
        """The results of `items`, in order; an exception stands where an item failed."""
        if not items:
            return []
        done: asyncio.Future[list[R | Exception]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, done))
        self._pump()
        return await done

    async def drain(self) -> None:
        """Return when nothing waits or runs."""
        while self._running:
            await asyncio.wait(set(self._running))

    def _pump(self) -> None:
        if self._waiting and len(self._running) < self._lanes:
            task = asyncio.create_task(self._flush())
            self._running.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._pump()

    def _take(self) -> list[tuple[list[T], asyncio.Future[list[R | Exception]]]]:
        size = taken = 0
        for items, _ in self._waiting:
            if taken and size + len(items) > self._limit:
                break
            size += len(items)
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return batch

    async def _flush(self) -> None:
        while batch := self._take():
            items = [item for part, _ in batch for item in part]
            try:
                results = await self._attempt(items)
            except BaseException as error:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error)
                raise
            start = 0
            for part, done in batch:
                if not done.done():
                    done.set_result(results[start : start + len(part)])
                start += len(part)

    async def _attempt(self, items: list[T]) -> list[R | Exception]:
        try:
            return list(await self._run(items))
        except Exception as error:  # noqa: BLE001 - a failure is the answer to those who sent the item
            if len(items) == 1 or isinstance(error, Unavailable):
                return [error] * len(items)
        middle = len(items) // 2
        return [*await self._attempt(items[:middle]), *await self._attempt(items[middle:])]
