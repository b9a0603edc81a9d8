"""A thread that does one blocking thing after the other for an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")


class SerialThread:
    """Runs what it is given in order and answers through futures of the loop that started it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._work: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = (
            SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], R]) -> asyncio.Future[R]:
        """The result of `work`, run after everything submitted before."""
        answer: asyncio.Future[R] = self._loop.create_future()
        self._work.put((work, answer))
        return answer

    async def stop(self) -> None:
        """Return when all that was submitted is done and the thread is gone."""
        await self.submit(lambda: None)
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, answer = item
            result: Any = None
            error: Exception | None = None
            try:
                result = work()
            except Exception as caught:  # noqa: BLE001 - belongs to whoever waits
                error = caught
            try:
                self._loop.call_soon_threadsafe(_settle, answer, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return


def _settle(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if answer.done():  # its caller was cancelled
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
