"""Real processes for the fault tests: a server, workers, and a clean end for all of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

T = TypeVar("T")

COMMAND = str(Path(sys.executable).with_name("mainspring"))
HERE = Path(__file__).parent
SHORT_LEASES = {
    "MAINSPRING_LEASE_MS": "1500",
    "MAINSPRING_FIRST_LEASE_MS": "1000",
    "MAINSPRING_HEARTBEAT_MS": "300",
    "MAINSPRING_HOLD_MS": "1500",
    "MAINSPRING_SWEEP_MS": "200",
    "MAINSPRING_DRAIN_MS": "2000",
}


def free_port() -> int:
    """A port below the ephemeral range is not taken by a client while a server is restarted."""
    for port in range(12_000 + os.getpid() % 5_000, 20_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port")


def eventually(ask: Callable[[], T], timeout: float, what: str) -> T:
    """Ask until the answer is true; the processes are others', so there is no event to await."""
    until = time.monotonic() + timeout
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > until:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.05)


class Process:
    """A child with its output in a file."""

    def __init__(self, args: list[str], log: Path, env: dict[str, str], cwd: Path) -> None:
        self.args, self.log, self.env, self.cwd = args, log, env, cwd
        self.child = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            return subprocess.Popen(
                self.args,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.env},
                cwd=self.cwd,
            )

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def kill(self) -> None:
        self.child.kill()
        self.child.wait(10)

    def restart(self) -> None:
        self.child = self._start()

    def end(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.terminate()
            try:
                self.child.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()


class Site:
    """One embedded server on a port of its own, and workers that connect to it."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder, self.env = folder, env
        self.address = f"127.0.0.1:{free_port()}"
        self.processes: list[Process] = []
        args = [COMMAND, "dev", "--listen", self.address, "--data", str(folder / "data")]
        self.server = self.run(args, "server")
        self.healthy()

    def run(self, args: list[str], name: str, **env: str) -> Process:
        log = self.folder / f"{name}.log"
        process = Process(args, log, {**self.env, **env}, HERE)
        self.processes.append(process)
        return process

    def worker(self, name: str, *classes: str, slots: int = 100, **env: str) -> Process:
        targets = [f"workers:{each}" for each in classes]
        args = [COMMAND, "--server", self.address, "worker", *targets, "--slots", str(slots)]
        return self.run(args, name, RECORD=str(self.folder / f"{name}.txt"), **env)

    def record(self, name: str) -> list[str]:
        """The lines that a worker's handlers wrote."""
        path = self.folder / f"{name}.txt"
        return path.read_text().splitlines() if path.exists() else []

    def healthy(self) -> None:
        def ask() -> bool:
            assert self.server.child.poll() is None, self.server.log.read_text()
            with grpc.insecure_channel(self.address) as channel:
                try:
                    reply = health_pb2_grpc.HealthStub(channel).Check(
                        health_pb2.HealthCheckRequest(), timeout=1
                    )
                except grpc.RpcError:
                    return False
                return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)

        eventually(ask, 20, "the server is healthy")


@contextmanager
def site(folder: Path, **env: str) -> Iterator[Site]:
    """A running site with short leases; everything ends with the block."""
    running = Site(folder, {**SHORT_LEASES, **env})
    try:
        yield running
    finally:
        for process in reversed(running.processes):
            process.end()
