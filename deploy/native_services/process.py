"""One service as a process of the system: start it, watch it, end it."""

import os
import pwd
import random
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"

# Below the range from which the kernel takes ports for outgoing connections
# (32768 and up on Linux): a client that keeps trying a stopped server must not
# be given the server's own port, or the server could not come back to it.
_PORTS = range(20_000, 32_000)

_POLL_INTERVAL = 0.02
_LOG_TAIL_LINES = 25


class ServiceError(Exception):
    """A service could not be installed, started or found; the text says what to do."""


@dataclass(frozen=True)
class Launch:
    """All that is needed to start a service, for the first time or again."""

    name: str
    url: str
    port: int
    data: str
    log: str
    command: list[str]
    cwd: str
    user: str


def current_user() -> str:
    """Return the name of the user that runs this program, or its number if it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def identity(user: str) -> dict[str, Any]:
    """Return the arguments of subprocess that run a command as `user`."""
    if user == current_user():
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def free_ports(count: int) -> list[int]:
    """Return `count` ports of the loopback interface that nothing listens on."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            # What the servers do: a port in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise ServiceError(f"no free port on {LOOPBACK} between {_PORTS.start} and {_PORTS.stop}")


def spawn(launch: Launch) -> subprocess.Popen[bytes]:
    """Start the process of `launch`, in a session of its own so that Ctrl-C spares it."""
    with Path(launch.log).open("ab") as log:
        return subprocess.Popen(
            launch.command,
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **identity(launch.user),
        )


def wait_until_up(
    child: subprocess.Popen[bytes],
    launch: Launch,
    answers: Callable[[Launch], bool],
    timeout: float,
) -> None:
    """Return when the service answers; raise ServiceError with its last words if it does not."""
    deadline = time.monotonic() + timeout
    while not answers(launch):
        code = child.poll()
        if code is not None:
            raise ServiceError(
                f"{launch.name} ended with {code} before it answered:\n{tail(launch.log)}"
            )
        if time.monotonic() > deadline:
            raise ServiceError(
                f"{launch.name} did not answer within {timeout:.0f} s:\n{tail(launch.log)}"
            )
        time.sleep(_POLL_INTERVAL)


def tail(log: str) -> str:
    """Return the last lines of a log."""
    try:
        lines = Path(log).read_text(errors="replace").splitlines()
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(lines[-_LOG_TAIL_LINES:])


def start_ticks(pid: int) -> int | None:
    """Return when `pid` was started, in clock ticks since boot; None if it is gone or a zombie.

    Together with the pid it names one process for ever: pids come back.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may contain anything; fields are counted after it.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def send(pid: int, started: int, number: int, wait: float) -> bool:
    """Signal the process and wait up to `wait` seconds for its end; say whether it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if start_ticks(pid) != started:
            return True
        signal.pidfd_send_signal(handle, number)
        return bool(select.select([handle], [], [], wait)[0])
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)


def freeze_or_thaw(pid: int, number: int) -> None:
    """Send SIGSTOP or SIGCONT to the process and its children: PostgreSQL works in those."""
    family = [pid, *_children(pid)]
    for member in family:
        try:
            os.kill(member, number)
        except ProcessLookupError:
            continue


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def end(pid: int, started: int, polite: int, timeout: float) -> None:
    """End the process: a polite signal first, SIGKILL when that is not heeded."""
    if start_ticks(pid) != started:
        return
    freeze_or_thaw(pid, signal.SIGCONT)
    if not send(pid, started, polite, timeout):
        send(pid, started, signal.SIGKILL, timeout)


def end_strays(launch: Launch) -> None:
    """Kill what else runs the service on its data: somebody may have started it again by hand."""
    program = Path(launch.command[0]).resolve()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            where, what = (entry / "cwd").readlink(), (entry / "exe").readlink()
            if where.is_relative_to(launch.data) and what == program:
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue
