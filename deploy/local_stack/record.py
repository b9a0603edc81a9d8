"""The files of a stack: stack.json for others to read, and who runs it."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from native_services import Running, Services
from native_services.process import current_user, start_ticks

from .plan import StackError, Urls
from .role_process import RoleProcess

RECORD = "stack.json"
OWNER = "owner"


class Owner:
    """The claim of one process on a stack's folder; it ends with the process, however that ends."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / OWNER).open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise StackError(
                f"a stack runs in {folder} already: stop it with 'make stack-stop', or choose "
                "another --dir and --base-port"
            ) from None
        self._file.truncate(0)
        self._file.write(f"{os.getpid()} {start_ticks(os.getpid())}")
        self._file.flush()

    def release(self) -> None:
        """Let the next one have the folder."""
        self._file.truncate(0)
        self._file.close()


def owner_of(folder: Path) -> tuple[int, int] | None:
    """Pid and start of the process that runs the stack in `folder`, or None."""
    try:
        pid, started = (int(word) for word in (folder / OWNER).read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    return (pid, started) if start_ticks(pid) == started else None


def write_record(folder: Path, urls: Urls, services: Services, roles: list[RoleProcess]) -> None:
    """Write stack.json in one step: a reader sees the old one or the new one."""
    entries = [_service_entry(entry) for entry in services.running.values()]
    entries += [_role_entry(process, folder) for process in roles]
    addresses = {
        role: [process.member.address for process in roles if process.member.role == role]
        for role in ("api", "dispatch")
    }
    record = {
        "urls": {"store": urls.store, "wheel": urls.wheel, "queue": urls.queue, **addresses},
        "processes": entries,
    }
    scratch = folder / f".{RECORD}"
    scratch.write_text(json.dumps(record, indent=2) + "\n")
    scratch.replace(folder / RECORD)


def _service_entry(entry: Running) -> dict[str, Any]:
    launch = entry.launch
    return {
        "name": launch.name,
        "role": launch.name,
        "pid": entry.pid,
        "log": launch.log,
        "command": launch.command,
        "cwd": launch.cwd,
        "user": launch.user,
        "url": launch.url,
    }


def _role_entry(process: RoleProcess, folder: Path) -> dict[str, Any]:
    member = process.member
    return {
        "name": member.name,
        "role": member.role,
        "pid": process.pid,
        "log": str(member.log),
        "command": member.command,
        "cwd": str(folder),
        "user": current_user(),
        "address": member.address,
    }
