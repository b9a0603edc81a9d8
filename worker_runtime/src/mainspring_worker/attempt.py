"""One run of a handler: from a lease to what it came to."""

import asyncio
import time
from math import inf
from typing import Final, Protocol

from .context import Context
from .handler import Handler
from .held import Held
from .outcomes import Failed, Outcome, Succeeded, outcome_of
from .payloads import encode_outcome


class Desk(Protocol):
    """Where attempts are registered and report to; see `link`."""

    waiting: dict[Held, "Attempt"]

    def finish(self, batch: "list[tuple[Attempt, Outcome]]") -> None:
        """Take what attempts came to."""

    def report(
        self, held: Held, progress: tuple[float | None, str] | None, checkpoint: bytes | None
    ) -> None:
        """Take progress or a checkpoint."""


class Attempt:
    """A lease, its handler and its context."""

    __slots__ = ("context", "desk", "handler", "held", "running", "stall_noted", "task")

    def __init__(self, held: Held, handler: Handler, desk: Desk) -> None:
        self.held = held
        self.handler = handler
        self.desk = desk
        deadline = None if held.run_deadline == inf else held.run_deadline
        self.context = Context(held.lease, self, deadline)
        self.task: asyncio.Task[None] | None = None
        self.running = False
        self.stall_noted = False

    def begin(self) -> bool:
        """Claim the start; False if it was handed back in the meantime."""
        # One pop decides between the thread that starts it and the one that drains.
        if self.desk.waiting.pop(self.held, None) is None:
            return False
        self.context.last_report = time.monotonic()
        return True

    def stalled(self, now: float) -> bool:
        """Whether it has been silent for longer than its class allows."""
        limit, last = self.handler.stall_timeout, self.context.last_report
        return limit is not None and last is not None and now - last > limit

    def report_progress(self, context: Context, fraction: float | None, message: str) -> None:
        """Pass on what the handler says about how far it is."""
        del context
        self.desk.report(self.held, (fraction, message), None)

    def report_checkpoint(self, context: Context, data: bytes) -> None:
        """Pass on what the next attempt is to start from."""
        del context
        self.desk.report(self.held, None, data)

    def run(self) -> Outcome:
        """Run a handler of the `def` kind, unless it was told to stop before its first step."""
        return NOT_BEGUN if self.context.cancelled else self.call()

    async def run_async(self) -> Outcome:
        """Run a handler of the `async def` kind, unless it was told to stop before its first step."""
        self.running = True
        return NOT_BEGUN if self.context.cancelled else await self.call_async()

    def call(self) -> Outcome:
        """Input, handler, outcome; whatever is raised on the way is an outcome as well."""
        handler = self.handler
        try:
            value = handler.call(self.context, handler.decode(self.held.lease.payload))
            return Succeeded(encode_outcome(value))
        except BaseException as error:  # noqa: BLE001 - a handler must not end the worker
            return outcome_of(error)

    async def call_async(self) -> Outcome:
        """Do the same with a handler that is awaited."""
        handler = self.handler
        try:
            value = await handler.call(self.context, handler.decode(self.held.lease.payload))
            return Succeeded(encode_outcome(value))
        except GeneratorExit:
            # The loop was closed under it; there is nobody left to tell.
            raise
        except BaseException as error:  # noqa: BLE001 - a handler must not end the worker
            return outcome_of(error)


NOT_BEGUN: Final = Failed("stopped before it began", "Cancelled")
"""What a handler comes to that was stopped before its first step."""
