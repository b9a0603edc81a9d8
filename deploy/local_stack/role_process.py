"""One process of a role: started, waited for, started again when it dies, drained at the end."""

import asyncio
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping
from pathlib import Path

from native_services.process import tail

from .plan import Member, StackError

RESTART_DELAY_S = 0.2
SHORT_LIFE_S = 3.0
"""A process that ends sooner is started again after a longer pause, so that it does not take all CPU."""
LONG_RESTART_DELAY_S = 1.0
DRAIN_S = 25.0
"""How long a process may take over its end; then it is killed."""


class RoleProcess:
    """Keeps one member of the stack running.

    `up` is done once the process serves for the first time, or fails with StackError if it ended
    before that. `changed` is called whenever `pid` is another.
    """

    def __init__(
        self,
        member: Member,
        env: Mapping[str, str],
        folder: Path,
        changed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self.member = member
        self.pid = 0
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._env = env
        self._folder = folder
        self._changed = changed
        self._say = say

    async def keep(self, stop: asyncio.Event) -> None:
        """Run it until `stop` is set, then let it drain."""
        stopping = asyncio.create_task(stop.wait())
        while not stop.is_set():
            began = time.monotonic()
            process = await self._spawn()
            announced = asyncio.create_task(self._announced(process))
            ended = asyncio.create_task(process.wait())
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._drain(process, ended)
            await announced
            if stop.is_set() or self.up.exception() is not None:
                break
            short = time.monotonic() - began < SHORT_LIFE_S
            delay = LONG_RESTART_DELAY_S if short else RESTART_DELAY_S
            self._say(f"{self.member.name} ended with {ended.result()}; starting it again")
            await asyncio.wait({stopping}, timeout=delay)
        stopping.cancel()

    async def _spawn(self) -> Process:
        with self.member.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self.member.command,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=log,
                env=self._env,
                cwd=self._folder,
                # A session of its own: Ctrl-C reaches the stack, which passes it on once.
                start_new_session=True,
            )
        self.pid = process.pid
        self._changed()
        return process

    async def _announced(self, process: Process) -> None:
        """Wait for the line that it prints once it serves; then read on, so that it never blocks."""
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not self.up.done():
            if line:
                self.up.set_result(None)
            else:
                log = tail(str(self.member.log))
                self.up.set_exception(
                    StackError(f"{self.member.name} ended before it served:\n{log}")
                )
        while await process.stdout.readline():
            pass

    async def _drain(self, process: Process, ended: "asyncio.Task[int]") -> None:
        # One that somebody froze would never read the other signal.
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        await asyncio.wait({ended}, timeout=DRAIN_S)
        if not ended.done():
            self._say(f"{self.member.name} did not end within {DRAIN_S:.0f} s and is killed")
            process.kill()
            await ended
