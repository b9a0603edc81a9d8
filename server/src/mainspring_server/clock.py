"""Time as an argument: the only module that reads the machine's clock or sleeps."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time in ms for what is due, monotonic time in ms for durations, and waiting on both."""

    def now(self) -> int:
        """Milliseconds since the epoch, UTC."""

    def monotonic(self) -> int:
        """Milliseconds that only grow."""

    async def sleep_until(self, when: int) -> None:
        """Return once now() >= when."""

    async def wait(self, event: asyncio.Event, until: int | None) -> bool:
        """Wait for the event, or for now() >= until; True if the event is set."""


class SystemClock:
    """The machine's clock, moved by `offset` ms to follow the store's."""

    def __init__(self) -> None:
        self.offset = 0

    def now(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000 + self.offset

    def monotonic(self) -> int:
        """Milliseconds that only grow."""
        return time.monotonic_ns() // 1_000_000

    async def sleep_until(self, when: int) -> None:
        """Return once now() >= when."""
        while (left := when - self.now()) > 0:  # noqa: ASYNC110 - a stepped clock has no event
            await asyncio.sleep(left / 1000)
        await asyncio.sleep(0)

    async def wait(self, event: asyncio.Event, until: int | None) -> bool:
        """Wait for the event, or for now() >= until; True if the event is set."""
        if event.is_set():
            return True
        if until is None:
            return await event.wait()
        left = until - self.now()
        if left <= 0:
            await asyncio.sleep(0)  # a service whose ports never suspend must not keep the loop
            return event.is_set()
        try:
            async with asyncio.timeout(left / 1000):
                return await event.wait()
        except TimeoutError:
            return event.is_set()


class VirtualClock:
    """A clock that stands still until it is moved; for tests and simulation."""

    def __init__(self, start: int = 1_700_000_000_000) -> None:
        self._now = start
        self._sleepers: list[tuple[int, int, asyncio.Event]] = []
        self._order = itertools.count()

    def now(self) -> int:
        """The virtual time in ms."""
        return self._now

    def monotonic(self) -> int:
        """The same: virtual time only grows."""
        return self._now

    def advance(self, ms: int) -> None:
        """Move time forward and wake all whose moment has come."""
        if ms < 0:
            raise ValueError("virtual time only grows")
        self._now += ms
        while self._sleepers and self._sleepers[0][0] <= self._now:
            heapq.heappop(self._sleepers)[2].set()

    async def sleep_until(self, when: int) -> None:
        """Return once now() >= when."""
        if when <= self._now:
            await asyncio.sleep(0)
            return
        event = asyncio.Event()
        heapq.heappush(self._sleepers, (when, next(self._order), event))
        await event.wait()

    async def wait(self, event: asyncio.Event, until: int | None) -> bool:
        """Wait for the event, or for now() >= until; True if the event is set."""
        if event.is_set() or until is None:
            return await event.wait()
        if until <= self._now:
            await asyncio.sleep(0)
            return event.is_set()
        alarm = asyncio.ensure_future(self.sleep_until(until))
        signal = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({alarm, signal}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (alarm, signal):
                task.cancel()
            await asyncio.gather(alarm, signal, return_exceptions=True)
        return event.is_set()
