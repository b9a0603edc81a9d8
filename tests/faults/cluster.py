"""A whole cluster for the fault tests: real services, a stack of role processes, and its faults."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from mainspring import Client, ServerInfo
from mainspring.errors import MainspringError
from tests.services import RealServices

from .load import Load
from .processes import COMMAND, HERE, Process, eventually

STACK = HERE.parents[1] / "deploy" / "stack.py"
ROLES = ("api", "trigger", "dispatch", "sweep")
LONG = os.environ.get("MAINSPRING_FAULTS") == "long"
"""Run with the full figures of the promises, which takes an hour; without, a short form of each."""

SHORT_LEASES = {
    "MAINSPRING_LEASE_MS": "5000",
    "MAINSPRING_FIRST_LEASE_MS": "2000",
    "MAINSPRING_HEARTBEAT_MS": "1000",
    "MAINSPRING_HOLD_MS": "5000",
    "MAINSPRING_SWEEP_MS": "500",
    "MAINSPRING_DRAIN_MS": "3000",
}
STARTED_AGAIN_S = 2.0
"""The stack's promise about a role's process that died."""


def free_ports(count: int = 40) -> int:
    """The first of `count` ports in a row that nothing listens on."""
    for base in range(12_000 + os.getpid() % 100 * count, 19_000, count):
        if all(_free(base + offset) for offset in range(count)):
            return base
    raise OSError("no free ports")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class Cluster:
    """A running stack on a database of its own, with the services of this test run."""

    def __init__(
        self, folder: Path, services: RealServices, env: Mapping[str, str], counts: str
    ) -> None:
        self.folder = folder
        self.services = services
        self.processes: list[Process] = []
        self._database = f"faults_{os.getpid()}_{secrets.token_hex(4)}"
        asyncio.run(self._execute(f"CREATE DATABASE {self._database}"))
        self.store = urlunsplit(urlsplit(services.store)._replace(path=f"/{self._database}"))
        flush(services.wheel)
        args = [sys.executable, str(STACK), "start", "--dir", str(folder / "stack")]
        args += ["--base-port", str(free_ports()), "--counts", counts]
        args += ["--stop-with", str(os.getpid())]
        args += ["--store", self.store, "--wheel", services.wheel, "--queue", services.queue]
        for key, value in {**SHORT_LEASES, **env}.items():
            args += ["--env", f"{key}={value}"]
        self.stack = Process(args, folder / "stack.log", {}, HERE)
        eventually(self._is_up, 60, "the stack is up")
        self.client = Client(",".join(self.addresses("api")))

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.services.store)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def _is_up(self) -> bool:
        assert self.stack.child.poll() is None, self.stack.log.read_text()
        return (self.folder / "stack" / "stack.json").exists()

    def end(self) -> None:
        """Stop workers, then the stack, and drop its database."""
        self.client.close()
        for process in reversed(self.processes):
            process.end()
        self.stack.end()
        if self.stack.child.returncode is None:
            self.stack.kill()
        asyncio.run(self._execute(f"DROP DATABASE {self._database} WITH (FORCE)"))

    # --- What there is ------------------------------------------------------------------------

    def _members(self) -> dict[str, dict[str, Any]]:
        record = json.loads((self.folder / "stack" / "stack.json").read_text())
        return {entry["name"]: entry for entry in record["processes"]}

    def pid(self, name: str) -> int:
        """The process that has this name now."""
        return int(self._members()[name]["pid"])

    def addresses(self, role: str) -> list[str]:
        """Where the processes of a role serve."""
        return [entry["address"] for entry in self._members().values() if entry["role"] == role]

    def names(self, role: str) -> list[str]:
        """The processes of a role."""
        return [name for name, entry in self._members().items() if entry["role"] == role]

    def info(self, name: str) -> ServerInfo | None:
        """What a process says about itself; None while it does not answer."""
        with Client(self._members()[name]["address"]) as client:
            try:
                return client.server_info(timeout=2)
            except MainspringError:
                return None

    def rungs(self, role: str) -> set[str]:
        """The rungs that processes of a role report: trigger's of the wheel, others' of the queue."""
        found = set()
        for name in self.names(role):
            info = self.info(name)
            if info is None:
                found.add("")
            else:
                found.add((info.trigger_rung if role == "trigger" else info.queue_rung).name)
        return found

    # --- Faults -------------------------------------------------------------------------------

    def signal(self, name: str, number: signal.Signals) -> None:
        """Signal one role's process."""
        os.kill(self.pid(name), number)

    def kill(self, name: str) -> None:
        """SIGKILL, then wait until the stack has started it again and it serves."""
        before = self.pid(name)
        os.kill(before, signal.SIGKILL)
        began = time.monotonic()
        eventually(lambda: self.pid(name) != before, 10, f"{name} was started again")
        assert time.monotonic() - began < STARTED_AGAIN_S + 0.2
        self.serving(name)

    def restart(self, name: str) -> None:
        """SIGTERM: it drains, ends, is started again, and serves."""
        before = self.pid(name)
        os.kill(before, signal.SIGTERM)
        eventually(lambda: self.pid(name) != before, 30, f"{name} drained and was started again")
        self.serving(name)

    def serving(self, name: str) -> None:
        """Wait until a process answers."""
        eventually(lambda: self.info(name), 30, f"{name} serves")

    def calm(self) -> None:
        """Wait until everything is as it was at the start, whatever a test has done."""
        for name in self._members():
            self.serving(name)
        eventually(lambda: self.rungs("trigger") == {"WHEEL"}, 60, "triggers use the wheel")
        eventually(lambda: self.rungs("dispatch") == {"BROKER"}, 90, "dispatchers use the broker")

    # --- Load ---------------------------------------------------------------------------------

    def load(self, rate: int = 300) -> Load:
        """A load on the api processes, which begins with `start`."""
        return Load(",".join(self.addresses("api")), rate)

    def worker(self, load: Load, record: Path, slots: int = 200) -> Process:
        """A connected worker process for a load; its handlers write to `record`."""
        servers = ",".join(self.addresses("dispatch"))
        args = [COMMAND, "--server", servers, "worker", "load_worker:Loaded", "--slots", str(slots)]
        env = {"RECORD": str(record), "LOAD_TYPE": load.task_type}
        log = self.folder / f"{load.task_type}-{len(self.processes)}.log"
        process = Process(args, log, env, HERE)
        self.processes.append(process)
        eventually(lambda: self._connected(process), 30, "the worker is connected")
        return process

    def _connected(self, process: Process) -> bool:
        # A killed one stays on the list for a while: its id tells it apart.
        mark = f"-{process.child.pid}-"
        return any(mark in worker.worker_id for worker in self.client.workers())


def flush(wheel: str) -> None:
    """FLUSHALL: Redis forgets everything."""
    address = urlsplit(wheel)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        assert connection.recv(64).startswith(b"+OK")


@contextmanager
def cluster(
    folder: Path, services: RealServices, counts: str = "", **env: str
) -> Iterator[Cluster]:
    """A cluster that ends with the block."""
    running = Cluster(folder, services, env, counts)
    try:
        yield running
    finally:
        running.end()
