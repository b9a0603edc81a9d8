"""What a watch remembers between one stream and the next. Pure: clock and streams are elsewhere."""

from collections.abc import Iterable
from typing import Final

from . import retry
from ._convert import decode
from .errors import DeadlineExceeded, MainspringError, Unavailable
from .tasks import Transition
from .v1 import query_requests_pb2

OUTAGE_LIMIT: Final = 60.0
"""Seconds of failing streams, one after the other, after which a watch gives up."""


class Watch:
    """One watch over any number of streams; the caller sees each transition once."""

    def __init__(
        self, task_ids: Iterable[str], *, until_terminal: bool, timeout: float | None
    ) -> None:
        """Check what is to be watched; time counts from `start`.

        Raises:
            ValueError: There is nothing to watch, or no time for it.
        """
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}: pass seconds above 0")
        ids = [task_ids] if isinstance(task_ids, str) else list(dict.fromkeys(task_ids))
        if not ids:
            raise ValueError("nothing to watch: pass at least one task id")
        self._versions = dict.fromkeys(ids, -1)
        self._ended: set[str] = set()
        self._until_terminal = until_terminal
        self._timeout = timeout
        self._deadline: float | None = None
        self._failures = 0
        self._outage_start = 0.0

    def start(self, now: float) -> None:
        """Let the time run from `now`, a monotonic time in seconds."""
        if self._timeout is not None:
            self._deadline = now + self._timeout

    def done(self) -> bool:
        """Whether there is nothing more to hear."""
        return self._until_terminal and len(self._ended) == len(self._versions)

    def request(self) -> query_requests_pb2.WatchRequest:
        """What the next stream asks for; a task that ended is not asked after again."""
        ids = [task_id for task_id in self._versions if task_id not in self._ended]
        return query_requests_pb2.WatchRequest(
            task_ids=ids or list(self._versions), until_terminal=self._until_terminal
        )

    def remaining(self, now: float) -> float | None:
        """Seconds left for the next stream; None without a timeout.

        Raises:
            DeadlineExceeded: None are left.
        """
        if self._deadline is None:
            return None
        if now >= self._deadline:
            raise self._late()
        return self._deadline - now

    def _late(self) -> DeadlineExceeded:
        live = [task_id for task_id in self._versions if task_id not in self._ended]
        return DeadlineExceeded(
            f"{len(live)} of {len(self._versions)} watched tasks had not ended in the time given, "
            f"the first of them {live[0] if live else 'none'}"
        )

    def accept(self, response: query_requests_pb2.WatchResponse) -> list[Transition]:
        """The transitions of a response that are new."""
        self._failures = 0
        fresh = []
        for message in response.transitions:
            if message.version <= self._versions.get(message.task_id, -1):
                continue
            transition = decode(Transition, message)
            self._versions[message.task_id] = message.version
            if transition.status.is_terminal:
                self._ended.add(message.task_id)
            fresh.append(transition)
        return fresh

    def delay_after(self, error: MainspringError | None, now: float, spread: float) -> float:
        """Seconds to wait before the next stream.

        Args:
            error: What ended the stream; None if the server ended it in peace, but too early.
            now: A monotonic time in seconds.
            spread: A random number in [0, 1): the jitter.

        Raises:
            MainspringError: `error`, or that the time is over, if there is to be no next stream.
        """
        if error is None:
            error = Unavailable("the server ended the watch before its time")
        if isinstance(error, DeadlineExceeded):
            raise self._late()
        if self._failures == 0:
            self._outage_start = now
        self._failures += 1
        delay = retry.next_delay(error, repeatable=True, failures=self._failures, spread=spread)
        if delay is None or now + delay - self._outage_start > OUTAGE_LIMIT:
            raise error
        if self._deadline is not None and now + delay >= self._deadline:
            raise error
        return delay
