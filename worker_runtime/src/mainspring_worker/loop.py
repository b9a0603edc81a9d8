"""The event loop of async handlers, in a thread of its own."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary

from .attempt import Attempt, Desk
from .outcomes import Outcome

FLUSH_INTERVAL: Final = 0.002
"""Under load results leave the loop at most this often, and so in batches."""

log = logging.getLogger("mainspring.worker")

_current: contextvars.ContextVar[Attempt] = contextvars.ContextVar("mainspring_attempt")


class HandlerLoop:
    """Runs async handlers. Batches cross into the loop and out of it, never single tasks."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._serve, name="mainspring-handlers", daemon=True)
        self._done: list[tuple[Attempt, Outcome]] = []
        self._flush_handle: asyncio.Handle | None = None
        self._last_flush = 0.0
        self._active = 0
        self._owners: WeakKeyDictionary[asyncio.Task[Any], Attempt] = WeakKeyDictionary()
        self._ping_open = False

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(self._make_task)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Cancel what still runs and end the thread, or leave it behind if a handler blocks it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("a handler still holds the event loop; its thread is left behind")

    def submit(self, attempts: list[Attempt]) -> None:
        """Start handlers, from any thread."""
        self._loop.call_soon_threadsafe(self._start, attempts)

    def cancel(self, attempts: list[Attempt]) -> None:
        """Cancel handlers whose contexts were told to stop, from any thread."""
        self._loop.call_soon_threadsafe(self._cancel, attempts)

    # --- seen by the watchdog, from outside ----------------------------------

    def ping(self) -> None:
        """Ask the loop for a sign of life."""
        self._ping_open = True
        self._loop.call_soon_threadsafe(self._pong)

    @property
    def answered(self) -> bool:
        """Whether the last ping was answered."""
        return not self._ping_open

    def current_attempt(self, running: Iterable[Attempt]) -> Attempt | None:
        """Find whose task is in the middle of a step; None if none, or no handler's."""
        task = asyncio.current_task(self._loop)
        if task is None:
            return None
        for attempt in running:
            if attempt.task is task:
                return attempt
        # A task that a handler has made.
        return self._owners.get(task)

    # --- in the loop ----------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=1.0))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **kwargs)
        owner = _current.get(None)
        if owner is not None:
            self._owners[task] = owner
        return task

    def _start(self, attempts: list[Attempt]) -> None:
        create_task = self._loop.create_task
        for attempt in attempts:
            if attempt.begin():
                self._active += 1
                attempt.task = create_task(self._run(attempt))

    def _cancel(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            # One that has not taken its first step sees its context's flag then.
            if attempt.running and attempt.task is not None:
                attempt.task.cancel()

    def _pong(self) -> None:
        self._ping_open = False

    async def _run(self, attempt: Attempt) -> None:
        _current.set(attempt)
        outcome = await attempt.run_async()
        # Looked up after the wait: a flush puts a new list in place of the old.
        self._done.append((attempt, outcome))
        self._active -= 1
        wait = 0.0
        if self._active:
            if self._flush_handle is not None:
                return
            wait = self._last_flush + FLUSH_INTERVAL - self._loop.time()
        elif self._flush_handle is not None:
            # Nothing is left that a batch could wait for.
            self._flush_handle.cancel()
        # Either way after every handler that is ready now has had its step.
        self._flush_handle = (
            self._loop.call_later(wait, self._flush)
            if wait > 0
            else self._loop.call_soon(self._flush)
        )

    def _flush(self) -> None:
        done, self._done = self._done, []
        self._flush_handle = None
        self._last_flush = self._loop.time()
        batches: dict[Desk, list[tuple[Attempt, Outcome]]] = {}
        for item in done:
            desk = item[0].desk
            batch = batches.get(desk)
            if batch is None:
                batches[desk] = [item]
            else:
                batch.append(item)
        for desk, batch in batches.items():
            desk.finish(batch)
