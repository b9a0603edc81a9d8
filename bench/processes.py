"""The processes that the bench starts, and the processor time that each kind of them takes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
READY_WITHIN_S = 60.0
STOPPED_WITHIN_S = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")


class BenchError(Exception):
    """The measurement cannot be made, or its result is not valid; the message says why."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without settings of Mainspring, which belong to other servers."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("MAINSPRING_")}
    return {**own, "PYTHONPATH": str(ROOT), **(more or {})}


@dataclass
class Child:
    """A process with pipes to talk over; its log is shown only if it fails."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] = field(init=False)
    log: IO[str] = field(init=False)

    def __post_init__(self) -> None:
        """Start it."""
        self.log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed by stop
        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=environment(self.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def line(self, within: float = READY_WITHIN_S) -> str:
        """The next line that it prints; BenchError with its last words if there is none."""
        pipe = self.process.stdout
        assert pipe is not None
        readable, _, _ = select.select([pipe], [], [], within)
        line = pipe.readline() if readable else ""
        if not line:
            raise BenchError(f"{self.name} does not answer\n{self.last_words()}")
        return line

    def tell(self, line: str = "") -> None:
        """Write a line to its stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def check(self) -> None:
        """BenchError if it has ended."""
        code = self.process.poll()
        if code is not None:
            raise BenchError(f"{self.name} ended with {code}\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of what it wrote to its log."""
        self.log.seek(0)
        return "\n".join(self.log.read().splitlines()[-30:])

    def stop(self, how: signal.Signals | None = signal.SIGTERM) -> None:
        """End it: by a signal, or (None) by the end of its stdin."""
        if how is not None:
            self.process.send_signal(how)
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()


def python(*arguments: str) -> list[str]:
    """The command line of a Python program in this environment."""
    return [sys.executable, *arguments]


def run_once(command: Sequence[str], name: str) -> str:
    """Run a command to its end and answer what it printed; BenchError if it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"{name} failed\n{(done.stderr or done.stdout).strip()}")
    return done.stdout


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes and their descendants, ended ones included."""
    return sum(_tree_ticks(pid) for pid in pids) / _TICKS


def _tree_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    # Own user and system time, then that of children that were waited for.
    return sum(int(value) for value in fields[11:15]) + sum(_tree_ticks(int(c)) for c in children)


def machine_busy_seconds() -> float:
    """Processor time of everything on this machine, since it was booted."""
    fields: list[Any] = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    user, nice, system, _idle, _wait, irq, softirq, _steal = (int(value) for value in fields)
    return (user + nice + system + irq + softirq) / _TICKS


class CpuMeter:
    """Processor seconds by kind of process from one moment to another; with `load`, this one's too."""

    def __init__(self, kinds: Mapping[str, Sequence[int]], *, load: bool = False) -> None:
        self._kinds = {kind: list(pids) for kind, pids in kinds.items()}
        self._load = load
        self._busy = machine_busy_seconds()
        self._before = self._spent()

    def read(self) -> tuple[dict[str, float], float]:
        """Seconds by kind since it was made, and the seconds that all others on the machine took."""
        spent = {kind: value - self._before[kind] for kind, value in self._spent().items()}
        others = machine_busy_seconds() - self._busy - sum(spent.values())
        return spent, max(others, 0.0)

    def _spent(self) -> dict[str, float]:
        spent = {kind: cpu_seconds(pids) for kind, pids in self._kinds.items()}
        if self._load:
            # Not its tree: the processes of the site are this one's children.
            spent["load"] = time.process_time()
        return spent
