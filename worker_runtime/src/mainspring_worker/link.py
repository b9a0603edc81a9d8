"""One session at work: what comes from the stream goes to handlers, what they say goes back."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from mainspring.v1.lease_stream_pb2 import LeaseRequest, LeaseResponse

from .attempt import NOT_BEGUN, Attempt
from .handler import Handler, Routes
from .held import HAND_BACK, Held, Stats
from .loop import HandlerLoop
from .outbox import Identity
from .outcomes import Failed, Outcome, StopReason
from .session import Session
from .threads import HandlerThreads
from .transport import Servers, Transport

log = logging.getLogger("mainspring.worker")


class Link:
    """A session behind a lock, the attempts of its leases, and its transport."""

    def __init__(self, identity: Identity, handlers: Sequence[Handler], loop: HandlerLoop) -> None:
        self.waiting: dict[Held, Attempt] = {}
        """Attempts that have not begun; whoever pops one decides what becomes of it."""
        self.settled = threading.Event()
        """Set while it drains, once every handler has ended and everything was answered."""
        self.due: Callable[[float], None] = lambda _: None
        """Told when a lease may have to be stopped sooner than the next beat."""
        self._session = Session(identity)
        self._routes = Routes(handlers)
        self._has_async = any(handler.is_async for handler in handlers)
        self._loop = loop
        self._threads = HandlerThreads(identity.slots)
        self._lock = threading.Lock()
        self._attempts: dict[Held, Attempt] = {}
        self._stream = 0
        self._transport: Transport | None = None

    def start(self, servers: Servers) -> None:
        """Open the stream."""
        self._transport = Transport(self._session.identity.worker_id, servers, self)
        self._transport.start()

    @property
    def stats(self) -> Stats:
        """What has come of its leases so far."""
        return self._session.stats

    @property
    def interval(self) -> float:
        """How often `tick` is to be called."""
        terms = self._session.terms
        return min(0.25, terms.heartbeat_interval / 4, terms.idle_interval / 2)

    @property
    def heartbeat_interval(self) -> float:
        """The beat that the server has asked for, in seconds."""
        return self._session.terms.heartbeat_interval

    def attempts(self) -> list[Attempt]:
        """Attempts whose handlers have not ended."""
        return list(self._attempts.values())

    # --- the stream -----------------------------------------------------------

    def opened(self, stream: int) -> None:
        """Begin a stream."""
        with self._lock:
            self._stream = stream
            self._session.open()

    def next_frame(self, stream: int) -> LeaseRequest | None:
        """Write the next frame; an iterator of an older stream gets none."""
        with self._lock:
            return self._session.next_frame(time.monotonic()) if stream == self._stream else None

    def received(self, frame: LeaseResponse) -> None:
        """Read a frame: acknowledge what is granted, then stop and start handlers."""
        with self._lock:
            welcomed = self._session.welcomed
            received = self._session.receive(frame, time.monotonic())
            started = [attempt for held in received.granted if (attempt := self._register(held))]
            stopped = [self._attempts[held] for held in received.stopped if held in self._attempts]
            write = self._session.has_frames or bool(stopped) or not welcomed
        if write:
            self._wake()
        self._stop(stopped)
        self._start(started)
        if received.granted:
            self.due(received.nearest)
        if received.draining and self._transport is not None:
            self._transport.move_on()
        self._settle()

    def closed(self) -> None:
        """End the stream."""
        with self._lock:
            self._stream = 0
            self._session.close()

    # --- the handlers ---------------------------------------------------------

    def finish(self, batch: list[tuple[Attempt, Outcome]]) -> None:
        """Take what attempts came to; one frame carries the batch."""
        with self._lock:
            for attempt, outcome in batch:
                self._attempts.pop(attempt.held, None)
                self._session.finish(attempt.held, outcome)
        self._wake()
        self._settle()

    def report(
        self, held: Held, progress: tuple[float | None, str] | None, checkpoint: bytes | None
    ) -> None:
        """Take progress or a checkpoint."""
        with self._lock:
            write = self._session.report(
                held, time.monotonic(), progress=progress, checkpoint=checkpoint
            )
        if write:
            self._wake()

    def _register(self, held: Held) -> Attempt | None:
        handler = self._routes.find(held.lease)
        if handler is None:
            message = f"no handler here takes task type {held.lease.task_type!r}"
            self._session.finish(held, Failed(message, "NoHandler"))
            return None
        attempt = Attempt(held, handler, self)
        self._attempts[held] = self.waiting[held] = attempt
        return attempt

    def _start(self, attempts: list[Attempt]) -> None:
        in_loop = [attempt for attempt in attempts if attempt.handler.is_async]
        if in_loop:
            self._loop.submit(in_loop)
        if len(in_loop) < len(attempts):
            self._threads.submit([attempt for attempt in attempts if not attempt.handler.is_async])

    def _stop(self, attempts: list[Attempt]) -> None:
        """Tell handlers to stop; a lease that has not begun just ends."""
        for attempt in attempts:
            attempt.context.stop(attempt.held.stop_reason or StopReason.LOST)
            log.info("task %s stopped: %s", attempt.held.task_id, attempt.context.stop_reason)
        in_loop: list[Attempt] = []
        unstarted: list[tuple[Attempt, Outcome]] = []
        for attempt in attempts:
            if self.waiting.pop(attempt.held, None) is not None:
                unstarted.append((attempt, NOT_BEGUN))
            elif attempt.handler.is_async:
                in_loop.append(attempt)
        if in_loop:
            self._loop.cancel(in_loop)
        if unstarted:
            self.finish(unstarted)

    # --- time -----------------------------------------------------------------

    def tick(self, now: float, blamed: Attempt | None, *, loop_silent: bool) -> float:
        """Beat for handlers that are alive, stop those past their time; answers when to come again."""

        def alive(held: Held) -> bool:
            attempt = self._attempts.get(held)
            # No attempt: the handler has ended, and its checkpoint is being stored.
            return attempt is None or (attempt is not blamed and not self._stalled(attempt, now))

        with self._lock:
            self._session.suspended = loop_silent and self._has_async
            stopped, again = self._session.tick(now, alive)
            attempts = [self._attempts[held] for held in stopped if held in self._attempts]
            dead = self._session.unanswered(now)
        self._wake()
        self._stop(attempts)
        if dead and self._transport is not None:
            log.warning(
                "%s: the server does not answer; connecting again", self._session.identity.worker_id
            )
            self._transport.reconnect()
        self._settle()
        return again

    @staticmethod
    def _stalled(attempt: Attempt, now: float) -> bool:
        if not attempt.stalled(now):
            return False
        if not attempt.stall_noted:
            attempt.stall_noted = True
            log.warning(
                "task %s (%s) has not called context.progress for %g s, its stall_timeout: no beats for it",
                attempt.held.task_id,
                attempt.handler.name,
                attempt.handler.stall_timeout,
            )
        return True

    # --- the end --------------------------------------------------------------

    def begin_drain(self, reason: str, grace: float) -> None:
        """Take no more, and hand back what has not begun."""
        with self._lock:
            self._session.drain(reason, grace)
            for held in list(self.waiting):
                if self.waiting.pop(held, None) is not None:
                    self._attempts.pop(held, None)
                    self._session.finish(held, HAND_BACK)
        self._wake()
        self._settle()

    def stop_running(self) -> None:
        """Stop every handler; what then ends is handed back, the attempt is not counted."""
        with self._lock:
            stopped = [
                self._attempts[held]
                for held in self._session.running_leases()
                if held in self._attempts and self._session.stop(held, StopReason.DRAIN)
            ]
        self._stop(stopped)

    def close(self, timeout: float) -> int:
        """End stream and threads; answers how many handlers still run, left to their leases."""
        if self._transport is not None:
            self._transport.finish(timeout)
        self._threads.stop()
        return len(self._attempts)

    def _settle(self) -> None:
        session = self._session
        if session.draining and not self.settled.is_set():
            with self._lock:
                if session.idle and not session.running:
                    self.settled.set()

    def _wake(self) -> None:
        if self._transport is not None:
            self._transport.wake()
