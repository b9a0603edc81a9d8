"""The two processes beside this one: a server, and a worker; both end with this one."""

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
READY_WITHIN_S = 60
STOPPED_WITHIN_S = 20
SLOTS = "16"


class ChildFailed(Exception):
    """A process ended that should have gone on; the message has its last words."""


@dataclass
class Child:
    """A `mainspring` command that runs."""

    name: str
    process: subprocess.Popen[str]
    log: IO[str]

    def check(self) -> None:
        """ChildFailed if it has ended."""
        code = self.process.poll()
        if code is not None:
            raise ChildFailed(f"the {self.name} ended with {code}\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of what it wrote to its log."""
        self.log.seek(0)
        return "\n".join(self.log.read().splitlines()[-20:])

    def stop(self) -> None:
        """Let it finish what it does, and end it if it does not."""
        self.process.terminate()
        try:
            self.process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def start(name: str, arguments: list[str], **options: Any) -> Child:
    """Start `mainspring` with arguments, in the environment that this program runs in."""
    log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # closed by stop
    command = [sys.executable, "-m", "mainspring_server.cli", *arguments]
    command += ["--stop-with", str(os.getpid())]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stderr=log,
        text=True,
        # Ctrl-C is for this program; it stops its children in the right order.
        start_new_session=True,
        **options,
    )
    return Child(name, process, log)


def start_server(listen: str, data: Path | None) -> Child:
    """Start a server; `address_of` waits until it serves."""
    arguments = ["dev", "--json", "--listen", listen]
    if data is not None:
        arguments += ["--data", str(data)]
    return start("server", arguments, stdout=subprocess.PIPE)


def address_of(server: Child) -> str:
    """Where the server serves, once it does: it says so in one line of JSON."""
    pipe = server.process.stdout
    assert pipe is not None
    readable, _, _ = select.select([pipe], [], [], READY_WITHIN_S)
    line = pipe.readline() if readable else ""
    if not line:
        server.process.terminate()
        server.process.wait(STOPPED_WITHIN_S)
        # With --json the reason is JSON too.
        raise ChildFailed(_reason(server.last_words()))
    # Nobody reads on: the pipe must not fill up.
    threading.Thread(target=pipe.read, daemon=True).start()
    return str(json.loads(line)["address"])


def _reason(words: str) -> str:
    try:
        error = json.loads(words)["error"]
    except (ValueError, KeyError, TypeError):
        return f"the server does not start\n{words}"
    return f"{error['message']}\n{error.get('hint', '')}".strip()


def start_worker(server: str) -> Child:
    """Start a worker process for the class in worker.py."""
    arguments = ["worker", "worker:IndexFile", "--server", server, "--slots", SLOTS]
    return start("worker", arguments, stdout=subprocess.DEVNULL, cwd=HERE)
