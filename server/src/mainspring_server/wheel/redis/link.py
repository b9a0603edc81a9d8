"""Whether Redis can be used: connected, of use, and heard. Comes back by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...clock import Clock
from ...domain.errors import FailedPrecondition, MainspringError
from .door import Door
from .ending import end

log = logging.getLogger(__name__)

RETRY_MS = 500
"""The pause between two attempts to reach Redis."""


class Link:
    """Keeps one connection to Redis up, and listens on it once asked to.

    `changed` is called when Redis came (True), and with every failure (False). It counts as gone
    from the first command that failed, whichever connection that was on.
    """

    def __init__(
        self,
        door: Door,
        clock: Clock,
        channel: str,
        receive: Callable[[bytes], None],
        changed: Callable[[bool], None],
    ) -> None:
        self._door, self._clock, self._channel = door, clock, channel
        self._receive, self._changed = receive, changed
        self._listening = False
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._lost = asyncio.Event()
        self._reported = False
        self._refusal: FailedPrecondition | None = None
        self.available = False

    async def start(self) -> None:
        """Connect, or keep trying if Redis is away; FailedPrecondition if it is of no use."""
        self.begin()
        await self._tried.wait()
        if self._refusal is not None:
            raise self._refusal

    def begin(self) -> None:
        """The same without waiting for the outcome."""
        if self._task is None:
            self._tried.clear()
            self._task = asyncio.create_task(self._run(), name="wheel link")

    async def listen(self) -> None:
        """From now on receive what is published."""
        if not self._listening:
            self._listening = True
            await self._end()
        self.begin()
        await self._tried.wait()

    async def close(self) -> None:
        """Disconnect for good."""
        await self._end()
        self._listening = False
        await self._door.close()

    def lost(self, error: MainspringError) -> None:
        """A command failed: Redis is away until a new connection stands."""
        if self.available:
            self._down(error)
            self._lost.set()

    async def _end(self) -> None:
        if self._task is not None:
            await end(self._task)
            self._task = None
        self.available = False

    async def _run(self) -> None:
        while True:
            self._lost.clear()
            try:
                await self._serve()
            except MainspringError as error:
                self._refusal = error if isinstance(error, FailedPrecondition) else None
                self._down(error)
            except Exception:
                log.exception("wheel: the connection to Redis broke; connecting again")
                self.available = False
                self._changed(False)
            finally:
                self._tried.set()
            self._lost.clear()
            await self._clock.wait(self._lost, self._clock.now() + RETRY_MS)

    async def _serve(self) -> None:
        """Return or raise when the connection is no longer good."""
        await self._door.check()
        if not self._listening:
            self._up()
            await self._lost.wait()
            return
        listener = asyncio.create_task(self._door.listen(self._channel, self._up, self._receive))
        listener.add_done_callback(lambda _: self._lost.set())
        try:
            await self._lost.wait()
            if listener.done():
                listener.result()
        finally:
            await end(listener)

    def _up(self) -> None:
        self._refusal = None
        self.available = True
        self._tried.set()
        if self._reported:
            self._reported = False
            log.info("wheel: Redis is back")
        self._changed(True)

    def _down(self, error: MainspringError) -> None:
        if not self._reported:
            self._reported = True
            log.warning("wheel: %s; tried again until it is back", error.message)
        self.available = False
        self._changed(False)
