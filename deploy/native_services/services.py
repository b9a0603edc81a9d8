"""The three services together: start, stop, kill and restart them, alone or all at once."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from .kafka import Kafka
from .postgresql import PostgreSQL
from .process import (
    Launch,
    ServiceError,
    end,
    end_strays,
    freeze_or_thaw,
    send,
    spawn,
    start_ticks,
    wait_until_up,
)
from .redis import Redis

NAMES = ("postgresql", "redis", "kafka")

_STATE = "services.json"
_BOOT_TIMEOUT = 60.0
_END_TIMEOUT = 15.0


class Service(Protocol):
    """What there is to know about one kind of server."""

    name: str
    polite_signal: str
    discard_signal: str

    def prepare(self, folder: Path) -> Launch:
        """Lay out a fresh data folder under `folder` and choose ports."""

    def answers(self, launch: Launch) -> bool:
        """Say whether the server does its work."""

    def complete(self, launch: Launch) -> None:
        """Do what a new server still needs once it answers."""


@dataclass(frozen=True)
class Running:
    """A started service: its launch, its process, and when that was born."""

    launch: Launch
    pid: int
    started: int

    def as_json(self) -> dict[str, Any]:
        """Return the entry of services.json."""
        return {**asdict(self.launch), "pid": self.pid, "started": self.started}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> Self:
        """Read an entry of services.json."""
        rest = dict(entry)
        pid, started = rest.pop("pid"), rest.pop("started")
        return cls(Launch(**rest), pid, started)


class Services:
    """Fresh PostgreSQL, Redis and Kafka servers on free ports of the loopback interface.

    A context manager. With `owned` (the default) the servers end, and their data
    goes, when the process that made this object ends in whatever way: a watcher
    sees to it. Without, they run on until somebody calls `stop` on their folder.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        owned: bool = True,
        shared_buffers: str = "256MB",
        kafka_heap: str = "512m",
    ) -> None:
        self._made_folder = folder is None
        self.folder = (folder or Path(tempfile.mkdtemp(prefix="mainspring-services-"))).resolve()
        self._kinds: dict[str, Service] = {
            kind.name: kind for kind in (PostgreSQL(shared_buffers), Redis(), Kafka(kafka_heap))
        }
        self._owned = owned
        self._lock = threading.Lock()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._watcher: subprocess.Popen[bytes] | None = None
        self._running = self._recorded()

    def __enter__(self) -> Self:
        """Start all three."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop all three."""
        self.stop()

    @property
    def running(self) -> dict[str, Running]:
        """The services that were started, by name; one may have died since."""
        return dict(self._running)

    def url(self, name: str) -> str:
        """Return the address of a started service."""
        return self._entry(name).launch.url

    def start(self, *names: str) -> None:
        """Start these services, by default all, in parallel, and return when each answers.

        One that was started before is left alone. When one fails the others go on,
        and its error is raised.
        """
        wanted = [name for name in names or NAMES if name not in self._running]
        unknown = sorted(set(wanted) - set(NAMES))
        if unknown:
            raise ServiceError(
                f"no such service: {', '.join(unknown)}; there are {', '.join(NAMES)}"
            )
        if not wanted:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(len(wanted)) as pool:
            errors = [error for error in pool.map(self._start_one, wanted) if error]
        if errors:
            raise ServiceError("\n".join(str(error) for error in errors))

    def stop(self) -> None:
        """End every started service and remove its data; the logs stay in a given folder."""
        if self._running:
            with ThreadPoolExecutor(len(self._running)) as pool:
                list(pool.map(self._discard, list(self._running)))
        if self._watcher is not None:
            self._watcher.communicate()
            self._watcher = None
        (self.folder / _STATE).unlink(missing_ok=True)
        if self._made_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal a service. SIGSTOP and SIGCONT reach its children; others wait for its end."""
        entry = self._entry(name)
        if number in {signal.SIGSTOP, signal.SIGCONT}:
            freeze_or_thaw(entry.pid, number)
        elif not send(entry.pid, entry.started, number, _END_TIMEOUT):
            raise ServiceError(f"{name} is still there {_END_TIMEOUT:.0f} s after {number.name}")
        else:
            self._reap(entry.pid)

    def restart(self, name: str) -> None:
        """Start a service again on its data and port, after a clean stop if it still runs."""
        entry = self._entry(name)
        kind = self._kinds[name]
        end(entry.pid, entry.started, signal.Signals[kind.polite_signal], _END_TIMEOUT)
        self._reap(entry.pid)
        attempts = 3
        while attempts:
            attempts -= 1
            child = self._spawn(entry.launch)
            try:
                wait_until_up(child, entry.launch, kind.answers, _BOOT_TIMEOUT)
            except ServiceError:
                # PostgreSQL refuses while children of a killed postmaster are still on their way out.
                if child.poll() is None or not attempts:
                    raise
            else:
                return

    def _start_one(self, name: str) -> ServiceError | None:
        kind = self._kinds[name]
        try:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            launch = kind.prepare(self.folder)
            Path(launch.log).unlink(missing_ok=True)
            child = self._spawn(launch)
            wait_until_up(child, launch, kind.answers, _BOOT_TIMEOUT)
            kind.complete(launch)
        except (ServiceError, OSError) as error:
            self._discard(name)
            return ServiceError(f"{name} could not be started: {error}")
        return None

    def _spawn(self, launch: Launch) -> subprocess.Popen[bytes]:
        child = spawn(launch)
        with self._lock:
            self._children[child.pid] = child
            self._running[launch.name] = Running(launch, child.pid, start_ticks(child.pid) or 0)
            self._record()
        return child

    def _discard(self, name: str) -> None:
        entry = self._running.get(name)
        if entry is None:
            return
        discard(entry, signal.Signals[self._kinds[name].discard_signal])
        self._reap(entry.pid)
        with self._lock:
            del self._running[name]
            self._record()

    def _reap(self, pid: int) -> None:
        child = self._children.pop(pid, None)
        if child is not None:
            child.wait()

    def _entry(self, name: str) -> Running:
        try:
            return self._running[name]
        except KeyError:
            raise ServiceError(f"{name} was not started") from None

    def _recorded(self) -> dict[str, Running]:
        try:
            entries = json.loads((self.folder / _STATE).read_text())
        except FileNotFoundError:
            return {}
        return {name: Running.from_json(entry) for name, entry in entries.items()}

    def as_json(self) -> str:
        """Return the content of services.json."""
        entries = {name: self._running[name].as_json() for name in NAMES if name in self._running}
        return json.dumps(entries, indent=2) + "\n"

    def _record(self) -> None:
        scratch = self.folder / f".{_STATE}"
        scratch.write_text(self.as_json())
        scratch.replace(self.folder / _STATE)
        if self._owned:
            self._tell_watcher()

    def _tell_watcher(self) -> None:
        """Tell the watcher, by one line, what to end when this process is no more."""
        if self._watcher is None:
            program = Path(__file__).resolve().parent.parent / "services.py"
            self._watcher = subprocess.Popen(
                [sys.executable, "-S", "-E", str(program), "watch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        assert self._watcher.stdin is not None
        entries = [entry.as_json() for entry in self._running.values()]
        folder = str(self.folder) if self._made_folder else None
        line = json.dumps({"folder": folder, "services": entries})
        self._watcher.stdin.write(line.encode() + b"\n")
        self._watcher.stdin.flush()


def discard(entry: Running, number: int) -> None:
    """End a service and remove its data."""
    end(entry.pid, entry.started, number, _END_TIMEOUT)
    end_strays(entry.launch)
    shutil.rmtree(entry.launch.data, ignore_errors=True)


def watch() -> None:
    """Read one description a line until the owner is gone, then end what the last one names."""
    last = ""
    for line in sys.stdin:
        last = line
    if not last:
        return
    state = json.loads(last)
    for entry in state["services"]:
        discard(Running.from_json(entry), signal.SIGKILL)
    if state["folder"]:
        shutil.rmtree(state["folder"], ignore_errors=True)
