"""A whole server inside the test's process, on virtual time.

    with LocalServer() as server:
        client = Client(server.address)
        task_id = client.submit("report", {}, delay=3_600).task_id
        server.advance(3_600)                       # an hour passes at once
        assert client.wait(task_id, timeout=5)      # a worker that is connected has run it

It is the real server (gRPC on a free port, SQLite in a folder of its own); only its clock is the
test's. Leases are long, since a worker's own clock goes on while the server's stands still.
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
from .config import load_settings

LEASE_MS = 3_600_000
FIRST_LEASE_MS = 60_000


class LocalServer:
    """A server in a thread of this process; `start` is the virtual time at which it begins."""

    def __init__(self, start: datetime | None = None, **settings: Any) -> None:
        begin = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._clock = VirtualClock(int(begin.timestamp() * 1_000))
        self._given = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._app: App | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def address(self) -> str:
        """Where clients and workers connect."""
        if self._app is None:
            raise RuntimeError("the server is not running: use it in a with block")
        return f"127.0.0.1:{self._app.grpc.port}"

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

        assert self._loop is not None
        self._loop.call_soon_threadsafe(move)
        done.result()

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="mainspring-")
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        assert self._thread is not None
        assert self._folder is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._folder.cleanup()

    def _run(self, started: Future[None]) -> None:
        asyncio.run(self._serve(started))

    async def _serve(self, started: Future[None]) -> None:
        assert self._folder is not None
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            settings = load_settings(
                **{
                    "listen": "127.0.0.1:0",
                    "store": f"sqlite:///{Path(self._folder.name) / 'mainspring.db'}",
                    "lease_ms": LEASE_MS,
                    "first_lease_ms": FIRST_LEASE_MS,
                    "drain_ms": 0,
                    **self._given,
                }
            )
            self._app = App(settings, self._clock)
            await self._app.start()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            started.set_exception(error)
            return
        started.set_result(None)
        await self._stop.wait()
        await self._app.stop()
