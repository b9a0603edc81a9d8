"""What every background service has in common: start, stop, one pass, and a probe for tests."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

from .clock import Clock
from .domain.errors import Unavailable

log = logging.getLogger(__name__)

ERROR_PAUSE_MS = 500


class Probe:
    """Counts passes so that a test can await the next one instead of sleeping."""

    def __init__(self) -> None:
        self.count = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def hit(self) -> None:
        """One more pass is done."""
        self.count += 1
        due = [w for n, w in self._waiters if n <= self.count and not w.done()]
        self._waiters = [(n, w) for n, w in self._waiters if n > self.count]
        for waiter in due:
            waiter.set_result(None)

    async def next(self, passes: int = 1) -> None:
        """Return after so many further passes."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((self.count + passes, waiter))
        await waiter


class Service(ABC):
    """A loop of passes. A pass that raises is logged and tried again after a pause."""

    name = "service"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.probe = Probe()
        self.wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._away = False

    @abstractmethod
    async def run_once(self) -> int | None:
        """One pass; answers when the next is due in ms (None: only when woken)."""

    async def start(self) -> None:
        """Start the loop; a second call does nothing."""
        if self._task is None:
            self._stopping = False
            self._task = asyncio.create_task(self._run(), name=self.name)

    async def stop(self) -> None:
        """Let the current pass finish, then end; a second call does nothing."""
        if self._task is None:
            return
        self._stopping = True
        self.wake.set()
        task, self._task = self._task, None
        await task

    async def _run(self) -> None:
        while not self._stopping:
            self.wake.clear()
            try:
                until = await self.run_once()
                self._note(None)
            except Unavailable as error:
                self._note(error)
                until = self.clock.now() + ERROR_PAUSE_MS
            except Exception:
                log.exception("%s: a pass failed and is tried again", self.name)
                until = self.clock.now() + ERROR_PAUSE_MS
            self.probe.hit()
            if not self._stopping:
                await self.clock.wait(self.wake, until)

    def _note(self, error: Unavailable | None) -> None:
        """Say once that something is away, and once that it is back."""
        if error is not None and not self._away:
            log.warning("%s is held up: %s", self.name, error.message)
        elif error is None and self._away:
            log.info("%s goes on", self.name)
        self._away = error is not None
