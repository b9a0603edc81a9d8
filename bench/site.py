"""A deployment for one measurement: the servers of a rung, what they stand on, and workers.

The embedded rung is `mainspring dev`; the Postgres-only rung a PostgreSQL server and processes of
all roles; the distributed rung all three services and one process of each role. Everything listens
on free ports of the loopback interface and is gone afterwards.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from .board import Board
from .processes import BenchError, Child, python, run_once

if TYPE_CHECKING:
    from deploy.native_services.services import Services

RUNGS = ("embedded", "postgres", "distributed")
ROLES = ("api", "trigger", "dispatch", "sweep")
CLI = ("-m", "mainspring_server.cli")
_SERVICES = {"embedded": (), "postgres": ("postgresql",), "distributed": ()}


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


class Site:
    """The processes of one rung, as a context manager."""

    def __init__(
        self, rung: str, folder: Path, *, processes: int = 1, shared_buffers: str = "1GB"
    ) -> None:
        if rung not in RUNGS:
            raise BenchError(f"there is no rung {rung!r}, only {', '.join(RUNGS)}")
        self.rung = rung
        self.folder = folder
        self.api: list[str] = []
        """Where clients submit."""
        self.dispatch: list[str] = []
        """Where workers connect."""
        self.servers: list[str] = []
        """Every server process."""
        self.urls: dict[str, str] = {}
        """store, wheel and queue, as far as the rung has them."""
        self._processes = processes
        self._shared_buffers = shared_buffers
        self._services: Services | None = None
        self._servers: dict[str, list[Child]] = {}
        self._workers: list[Child] = []

    def __enter__(self) -> Self:
        """Start everything; on failure it is stopped again."""
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop everything."""
        self._stop()

    @property
    def address(self) -> str:
        """What a client takes as its server."""
        return ",".join(self.api)

    @property
    def synchronous_commit(self) -> str:
        """How durable a commit of the store is."""
        return "FULL" if self.rung == "embedded" else "on"

    def kinds(self) -> dict[str, list[int]]:
        """Process ids by kind of process: servers, services, workers, and this one as the load."""
        found = {
            kind: [child.pid for child in children] for kind, children in self._servers.items()
        }
        if self._services is not None:
            for name, running in self._services.running.items():
                found[name] = [running.pid]
        found["worker"] = [child.pid for child in self._workers]
        return found

    def services(self) -> dict[str, list[int]]:
        """Process ids of the services alone, by name."""
        assert self._services is not None
        return {name: [running.pid] for name, running in self._services.running.items()}

    def new_database(self, name: str) -> str:
        """The URL of another, empty database on the site's PostgreSQL."""
        store = self.urls["store"]
        asyncio.run(_execute(store, f"CREATE DATABASE {name}"))
        return urlunsplit(urlsplit(store)._replace(path=f"/{name}"))

    def check(self) -> None:
        """BenchError if a process has ended."""
        for children in self._servers.values():
            for child in children:
                child.check()
        for child in self._workers:
            child.check()

    def last_words(self) -> str:
        """The ends of the logs of servers and workers."""
        children = [child for found in self._servers.values() for child in found] + self._workers
        return "\n".join(f"{child.name}: {child.last_words()}" for child in children)

    def restart(self) -> float:
        """Stop every server process and start it anew, on other ports; seconds until all serve."""
        self.stop_servers()
        began = time.monotonic()
        self._start_servers()
        return time.monotonic() - began

    def stop_servers(self) -> None:
        """Stop every server process; the services stay."""
        for children in self._servers.values():
            for child in children:
                child.stop()
        self._servers.clear()
        self.servers.clear()

    # --- workers ---

    def add_workers(
        self, board: Board, *, slots: int, count: int = 1, count_frames: bool = False
    ) -> None:
        """Start worker processes; they connect with `connect_workers`."""
        for index in range(count):
            arguments = [
                *("-m", "bench.worker_process", "--server", ",".join(self.dispatch)),
                *("--slots", str(slots), "--board", str(board.path)),
                *("--tasks", str(board.tasks), "--index", str(index)),
            ]
            if count_frames:
                arguments.append("--count-frames")
            self._workers.append(Child("worker", python(*arguments)))
        for child in self._workers:
            child.line()

    def connect_workers(self) -> None:
        """Let the worker processes open their streams."""
        for child in self._workers:
            child.tell("go")

    def stop_workers(self) -> None:
        """Drain the worker processes."""
        while self._workers:
            self._workers.pop().stop(None)

    # --- start and stop ---

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.rung != "embedded":
            self._start_services()
            run_once(python(*CLI, "migrate", "--store", self.urls["store"]), "mainspring migrate")
        self._start_servers()

    def _start_servers(self) -> None:
        if self.rung == "embedded":
            arguments = ("dev", "--json", "--listen", "127.0.0.1:0", "--data", str(self.folder))
            self.api = self.dispatch = [self._serve("server", *arguments)]
            return
        if self.rung == "postgres":
            self.api = [
                self._serve("server", *self._serve_arguments()) for _ in range(self._processes)
            ]
            self.dispatch = self.api
            return
        found = {
            role: self._serve(role, *self._serve_arguments(), "--role", role) for role in ROLES
        }
        self.api, self.dispatch = [found["api"]], [found["dispatch"]]

    def _start_services(self) -> None:
        # Imported only here: the embedded rung needs none of it.
        from deploy.native_services.services import Services  # noqa: PLC0415

        self._services = Services(shared_buffers=self._shared_buffers)
        self._services.start(*_SERVICES[self.rung])
        self.urls["store"] = self._services.url("postgresql")
        if self.rung == "distributed":
            self.urls["wheel"] = self._services.url("redis")
            self.urls["queue"] = self._services.url("kafka")

    def _serve_arguments(self) -> tuple[str, ...]:
        options = [word for name, url in self.urls.items() for word in (f"--{name}", url)]
        return ("serve", "--json", "--listen", "127.0.0.1:0", "--log-level", "warning", *options)

    def _serve(self, kind: str, *arguments: str) -> str:
        """Start a server process; answers its address once it serves."""
        command = python(*CLI, *arguments, "--stop-with", str(os.getpid()))
        child = Child(kind, command)
        self._servers.setdefault(kind, []).append(child)
        address = str(json.loads(child.line())["address"])
        self.servers.append(address)
        return address

    def _stop(self) -> None:
        self.stop_workers()
        self.stop_servers()
        if self._services is not None:
            self._services.stop()
            self._services = None
