"""A whole server inside the test's process, on virtual time.

    with LocalServer() as server, Client(server.address) as client:
        task_id = client.submit("report", {}, delay=3_600).task_id
        server.advance(3_600)                       # an hour passes at once
        task = client.wait(task_id, timeout=5)      # a worker that is connected has run it

It is the real server (gRPC on a free port, SQLite in a folder of its own); only its clock is the
test's. Leases are long, since a worker's own clock goes on while the server's stands still; a test
that advances by more than an hour while a handler runs ends its lease, as silence would. Stop
workers before the server, which otherwise waits a second for their streams.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .app import App
from .clock import VirtualClock
from .config import Settings, load_settings

LEASE_MS = 3_600_000
FIRST_LEASE_MS = 60_000


class LocalServer:
    """A server in a thread of this process; `start` is the virtual time at which it begins.

    `settings` are those of `mainspring_server.config.Settings`. The environment's are not read:
    what it says about a cluster is not meant for a test.
    """

    def __init__(self, start: datetime | None = None, **settings: Any) -> None:
        begin = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._clock = VirtualClock(int(begin.timestamp() * 1_000))
        self._given = settings
        self._running: _Running | None = None

    @property
    def address(self) -> str:
        """Where clients and workers connect."""
        return f"127.0.0.1:{self._server.app.grpc.port}"

    @property
    def now(self) -> datetime:
        """The server's time."""
        return datetime.fromtimestamp(self._clock.now() / 1_000, UTC)

    def advance(self, by: timedelta | float) -> None:
        """Move the server's clock forward (seconds or a timedelta); what falls due is fired."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        done: Future[None] = Future()

        def move() -> None:
            try:
                self._clock.advance(round(seconds * 1_000))
                done.set_result(None)
            except ValueError as error:
                done.set_exception(error)

        self._server.loop.call_soon_threadsafe(move)
        done.result()

    @property
    def _server(self) -> _Running:
        if self._running is None:
            raise RuntimeError("the server is not running: use it in a with block")
        return self._running

    def __enter__(self) -> Self:
        if self._running is not None:
            raise RuntimeError("the server runs already")
        running = _Running(self._given, self._clock)
        running.start()
        self._running = running
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        running, self._running = self._server, None
        running.end()


class _Running:
    """One run: a thread with a loop of its own, and the folder of its data."""

    app: App
    loop: asyncio.AbstractEventLoop

    def __init__(self, given: dict[str, Any], clock: VirtualClock) -> None:
        self._given = given
        self._clock = clock
        self._stop: asyncio.Event
        self._started: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="mainspring-server", daemon=True)

    def start(self) -> None:
        """Return once it serves, or raise what keeps it from that."""
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self._thread.join()
            raise

    def end(self) -> None:
        """Drain and stop; raises what went wrong meanwhile."""
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._ended.result()

    def _run(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="mainspring-") as folder:
                asyncio.run(self._serve(Path(folder)))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            (self._ended if self._started.done() else self._started).set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self, folder: Path) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        settings = load_settings(**{**_defaults(), "store": _store(folder), **self._given})
        self.app = App(settings, self._clock)
        await self.app.start()
        self._started.set_result(None)
        await self._stop.wait()
        await self.app.stop()


def _store(folder: Path) -> str:
    return f"sqlite:///{folder / 'mainspring.db'}"


def _defaults() -> dict[str, Any]:
    """Every setting, so that none is taken from the environment."""
    found = {
        name: field.get_default(call_default_factory=True)
        for name, field in Settings.model_fields.items()
    }
    # Empty is "none given"; what is None would be looked up.
    found |= {"wheel": "", "queue": "", "hold_ms": LEASE_MS}
    # Where the clock stands still, a batch that lingered would never go out.
    found |= {"listen": "127.0.0.1:0", "drain_ms": 0, "linger_ms": 0}
    return found | {"lease_ms": LEASE_MS, "first_lease_ms": FIRST_LEASE_MS}
