"""Runs worker classes in this process until told to stop."""

import dataclasses
import os
import queue
import signal
import socket
import uuid
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final

import grpc

from .drain import STOP_TIMEOUT, drain
from .handler import MAX_SLOTS, Handler, Routes
from .heartbeat import Heartbeat
from .held import Stats
from .link import Link
from .loop import HandlerLoop
from .outbox import Identity
from .transport import Servers
from .version import sdk_version
from .worker import Worker

SERVER_VARIABLE: Final = "MAINSPRING_SERVER"
DEFAULT_SERVER: Final = "127.0.0.1:7400"
DEFAULT_SLOTS: Final = 32
DEFAULT_DRAIN_TIMEOUT: Final = 25.0


class Runner:
    """Runs workers: `Runner([A(), B()], server="host:7400").run()`.

    `server` may be a comma list, tried in turn; not given, it is what MAINSPRING_SERVER says, or
    127.0.0.1:7400. `token` is sent as a bearer token, `credentials` turn TLS on. `slots` is how
    many tasks run at a time, for all classes together; a class with `slots` of its own has them
    beside these, and a session of its own. `drain_timeout` is what running handlers get to
    finish, in seconds. ValueError or TypeError says what is wrong with a class or an argument.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        server: str | None = None,
        slots: int | None = None,
        drain_timeout: float = DEFAULT_DRAIN_TIMEOUT,
        token: str | None = None,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self.worker_id = f"{socket.gethostname()[:64]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        """Names this process to the server; a class with slots of its own adds its number."""
        self._servers = Servers(_addresses(server), token, credentials)
        if slots is not None and not 1 <= slots <= MAX_SLOTS:
            raise ValueError(f"slots is 1 to {MAX_SLOTS}, not {slots}")
        handlers = [Handler(worker) for worker in workers]
        if not handlers:
            raise ValueError("there is no worker to run")
        # Two classes that want the same tasks are a mistake, whichever session they are in.
        Routes(handlers)
        self._drain_timeout = drain_timeout
        self._loop = HandlerLoop()
        self._links = self._make_links(handlers, slots or DEFAULT_SLOTS)
        self._heartbeat = Heartbeat(self._links, self._loop)
        self._started = self._stopped = False

    def run(self) -> None:
        """Run until SIGTERM or SIGINT, then drain; a second signal ends the wait. Main thread only."""
        signals: queue.SimpleQueue[int] = queue.SimpleQueue()

        def note(number: int, frame: FrameType | None) -> None:
            # Putting into a SimpleQueue is the one wake-up that is safe within a signal handler.
            del frame
            signals.put(number)
            if signals.qsize() > 1:
                raise KeyboardInterrupt

        before: dict[int, Any] = {number: signal.signal(number, note) for number in _SIGNALS}
        try:
            self.start()
            try:
                name = signal.Signals(signals.get()).name
                # One is in the queue from now on: the next signal is the second.
                signals.put(0)
                self.stop(reason=name)
            except KeyboardInterrupt:
                self.stop(timeout=0.0, reason="second signal")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self) -> None:
        """Start in threads and return: for a program that does other things as well. Once only."""
        if self._started:
            raise RuntimeError("a runner starts once; make another")
        self._started = True
        self._loop.start()
        self._heartbeat.start()
        for link in self._links:
            link.start(self._servers)

    def stop(self, timeout: float | None = None, *, reason: str = "stopped") -> bool:
        """Drain within `timeout` seconds (default: drain_timeout); True if nothing was left behind."""
        if not self._started or self._stopped:
            return True
        settled = drain(self._links, reason, self._drain_timeout if timeout is None else timeout)
        self._stopped = True
        self._heartbeat.stop(STOP_TIMEOUT)
        self._loop.stop(STOP_TIMEOUT)
        return settled

    @property
    def stats(self) -> Stats:
        """What has come of all leases so far."""
        totals = Stats()
        for link in self._links:
            for item in dataclasses.fields(Stats):
                setattr(
                    totals, item.name, getattr(totals, item.name) + getattr(link.stats, item.name)
                )
        return totals

    def _make_links(self, handlers: list[Handler], slots: int) -> list[Link]:
        shared = [handler for handler in handlers if handler.slots is None]
        groups = [(shared, slots)] if shared else []
        groups += [([handler], handler.slots) for handler in handlers if handler.slots is not None]
        links = []
        for index, (members, count) in enumerate(groups):
            identity = Identity(
                worker_id=self.worker_id if index == 0 else f"{self.worker_id}-{index}",
                task_types=tuple(name for member in members for name in member.task_types),
                queues=tuple(dict.fromkeys(name for member in members for name in member.queues)),
                slots=count,
                hostname=socket.gethostname()[:256],
                sdk_version=sdk_version(),
            )
            links.append(Link(identity, members, self._loop))
        return links


def _addresses(server: str | None) -> tuple[str, ...]:
    text = os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER if server is None else server
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    if not addresses or not all(":" in address for address in addresses):
        raise ValueError(f"server is host:port, or several with commas between them, not {text!r}")
    return addresses


_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
