"""Starts a stack in order, keeps it, and stops it the other way round."""

import asyncio
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from native_services import Services

from .plan import BASE_PORT, ROLES, Counts, Member, StackError, Urls, mainspring, members
from .record import RECORD, Owner, write_record
from .role_process import RoleProcess

SERVICES = {"store": "postgresql", "wheel": "redis", "queue": "kafka"}
"""Which service stands behind which URL."""


@dataclass(frozen=True)
class StackOptions:
    """How a stack is to be. `given` are URLs of services that run already; `without` has none."""

    folder: Path
    base_port: int = BASE_PORT
    counts: Counts = field(default_factory=lambda: dict.fromkeys(ROLES, 2))
    given: Mapping[str, str] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    env: Mapping[str, str] = field(default_factory=dict)


class Stack:
    """One cluster of this machine, from its services to its roles."""

    def __init__(self, options: StackOptions, say: Callable[[str], None]) -> None:
        self.options = options
        self.folder = options.folder.resolve()
        self.urls: Urls | None = None
        self.roles: list[RoleProcess] = []
        self._say = say
        self._up = False
        self._services: Services | None = None

    async def run(self, stop: asyncio.Event, started: Callable[["Stack"], None]) -> None:
        """Start everything, call `started` once all is up, keep it until `stop` is set."""
        self.folder.mkdir(parents=True, exist_ok=True)
        owner = Owner(self.folder)
        stop_roles = asyncio.Event()
        keepers: list[asyncio.Task[None]] = []
        try:
            self._clear()
            self.urls = await self._start_services()
            if not stop.is_set():
                await self._migrate(self.urls)
            if not stop.is_set():
                keepers = self._start_roles(self.urls, stop_roles)
                await self._wait_until_up(stop)
            if not stop.is_set():
                self._up = True
                self._write()
                started(self)
                await stop.wait()
        finally:
            stop_roles.set()
            for keeper in keepers:
                await asyncio.wait({keeper})
            if self._services is not None:
                await asyncio.to_thread(self._services.stop)
            (self.folder / RECORD).unlink(missing_ok=True)
            owner.release()

    def _clear(self) -> None:
        """Remove what a stack left that was killed; its processes have ended with it."""
        (self.folder / RECORD).unlink(missing_ok=True)
        for old in self.folder.glob("services-*"):
            shutil.rmtree(old, ignore_errors=True)
        shutil.rmtree(self._logs, ignore_errors=True)
        self._logs.mkdir()

    @property
    def _logs(self) -> Path:
        return self.folder / "logs"

    async def _start_services(self) -> Urls:
        # A folder for each run: what ends the services of a killed stack may still be at work.
        self._services = services = Services(self.folder / f"services-{os.getpid()}")
        options = self.options
        wanted = {
            key: name
            for key, name in SERVICES.items()
            if key not in options.given and key not in options.without
        }
        if wanted:
            self._say(f"starting {', '.join(wanted.values())}")
            await asyncio.to_thread(services.start, *wanted.values())
        urls = {key: services.url(name) for key, name in wanted.items()}
        return Urls(**{**urls, **options.given})

    async def _migrate(self, urls: Urls) -> None:
        process = await asyncio.create_subprocess_exec(
            *mainspring("migrate", "--store", urls.store), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
        )
        output, _ = await process.communicate()
        if process.returncode:
            raise StackError(f"mainspring migrate failed:\n{output.decode(errors='replace')}")

    def _start_roles(self, urls: Urls, stop: asyncio.Event) -> list["asyncio.Task[None]"]:
        found = list(members(self.options.counts, self.options.base_port, urls, self._logs))
        self._say(f"starting {', '.join(member.name for member in found)}")
        self.roles = [self._role(member) for member in found]
        return [asyncio.create_task(process.keep(stop)) for process in self.roles]

    def _role(self, member: Member) -> RoleProcess:
        env = {**os.environ, **self.options.env}
        return RoleProcess(member, env, self.folder, self._changed, self._say)

    async def _wait_until_up(self, stop: asyncio.Event) -> None:
        """Until all serve, or one cannot, or it is to stop."""
        stopping: asyncio.Future[Any] = asyncio.create_task(stop.wait())
        all_up: asyncio.Future[Any] = asyncio.gather(*(process.up for process in self.roles))
        await asyncio.wait({stopping, all_up}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if all_up.done():
            all_up.result()
        else:
            all_up.cancel()

    def _changed(self) -> None:
        if self._up:
            self._write()

    def _write(self) -> None:
        assert self.urls is not None
        assert self._services is not None
        write_record(self.folder, self.urls, self._services, self.roles)
