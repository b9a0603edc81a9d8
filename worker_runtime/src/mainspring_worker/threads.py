"""The threads of sync handlers.

Not a `ThreadPoolExecutor`: that joins its threads when the interpreter exits, so a handler
that never returns would keep a drained worker alive; and it makes a future for every task.
"""

import queue
import threading

from .attempt import Attempt


class HandlerThreads:
    """Runs sync handlers in up to `size` daemon threads, started when needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._queue: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._active = 0

    def submit(self, attempts: list[Attempt]) -> None:
        """Start handlers, from any thread."""
        with self._lock:
            self._active += len(attempts)
            for _ in range(min(self._size, self._active) - len(self._threads)):
                name = f"mainspring-handler-{len(self._threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        for attempt in attempts:
            self._queue.put(attempt)

    def stop(self) -> None:
        """End the threads that are idle, and the others when their handlers return."""
        for _ in self._threads:
            self._queue.put(None)

    def _serve(self) -> None:
        while (attempt := self._queue.get()) is not None:
            if attempt.begin():
                outcome = attempt.run()
                attempt.desk.finish([(attempt, outcome)])
            with self._lock:
                self._active -= 1
