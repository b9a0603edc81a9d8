"""Several processes of one command on one machine: started together, stopped together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from .output import print_note

RESTART_DELAY_S = 1.0


class ProcessGroup:
    """Runs `count` copies of a command; one that dies is started again, a stop reaches all."""

    def __init__(
        self, command: Sequence[str], count: int, restart_delay_s: float = RESTART_DELAY_S
    ) -> None:
        self._command = [*command, "--stop-with", str(os.getpid())]
        self._count = count
        self._restart_delay_s = restart_delay_s
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Until SIGTERM or SIGINT; then every process gets SIGTERM and its time to drain."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        async with asyncio.TaskGroup() as group:
            for index in range(self._count):
                group.create_task(self._keep(index))

    async def _keep(self, index: int) -> None:
        stopping = asyncio.create_task(self._stop.wait())
        while not self._stop.is_set():
            # A session of its own: Ctrl-C reaches this process, which passes it on once.
            process = await asyncio.create_subprocess_exec(*self._command, start_new_session=True)
            ended = asyncio.create_task(process.wait())
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                process.send_signal(signal.SIGTERM)
                await ended
            elif not self._stop.is_set():
                print_note(f"process {index} ended with {process.returncode}; starting it again")
                await asyncio.wait({stopping}, timeout=self._restart_delay_s)


def this_command(arguments: Sequence[str]) -> list[str]:
    """The command line that runs `mainspring` with these arguments in this environment."""
    return [sys.executable, "-m", "mainspring_server.cli", *arguments]
