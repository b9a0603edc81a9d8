"""A worker that runs shell commands: what `mainspring import crontab` makes schedules for.

    mainspring worker worker:CommandWorker --slots 8        # in this folder
    mainspring import crontab /path/to/crontab

Whoever may submit tasks of this type may run anything as this worker's user: run it where that is
meant, under a user who may do no more than it needs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from mainspring_worker import Context, Worker

OUTPUT_BYTES = 32 * 1_024
"""The end of what a command has written is kept as its outcome."""

POLITE_S = 5.0
"""From SIGTERM to SIGKILL, when a command is cancelled."""


@dataclass
class Command:
    """One command line for the shell. `user` needs a worker that runs as root."""

    command: str
    stdin: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None


class CommandFailed(Exception):
    """It ended with another exit code than 0; retried as the task's policy says."""


class CommandWorker(Worker):
    """Runs each task's command in a process group of its own."""

    task_type = "command"

    def handle(self, context: Context, task: Command) -> dict[str, Any]:
        """Answers exit code and output; a cancelled task's processes are ended, all of them."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as given:
            given.write((task.stdin or "").encode())
            given.seek(0)
            process = subprocess.Popen(
                [task.environment.get("SHELL", "/bin/sh"), "-c", task.command],
                stdin=given,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **task.environment, "MAINSPRING_TASK_ID": context.task_id},
                user=task.user,
                start_new_session=True,
            )
            watch = threading.Thread(target=end_when_stopped, args=(context, process), daemon=True)
            watch.start()
            code = process.wait()
            text = tail(output)
        context.raise_if_cancelled()
        if code != 0:
            raise CommandFailed(f"exit code {code}\n{text}")
        return {"exit_code": code, "output": text}


def end_when_stopped(context: Context, process: subprocess.Popen[bytes]) -> None:
    """End the command's process group once its task is to stop; return when it has ended."""
    while process.poll() is None:
        if context.wait_cancelled(1.0):
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(POLITE_S)
                except ProcessLookupError:
                    return
                except subprocess.TimeoutExpired:
                    continue
            return


def tail(output: IO[bytes]) -> str:
    """The last part of a file, as text."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - OUTPUT_BYTES))
    return output.read().decode(errors="replace")
