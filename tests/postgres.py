"""The fixture `databases`: PostgreSQL databases, each test's own, copied from one migrated template."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from mainspring_server.store.postgres import migrate
from tests.services import RealServices


class Databases:
    """Makes and drops databases on the server of this run."""

    def __init__(self, services: RealServices) -> None:
        self._services = services
        self._template: str | None = None

    def url(self, name: str) -> str:
        """The address of a database by name."""
        return urlunsplit(urlsplit(self._services.store)._replace(path=f"/{name}"))

    async def execute(self, statement: str) -> None:
        """Run a statement that may not stand in a transaction, on the server's own database."""
        connection = await asyncpg.connect(self._services.store)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    @asynccontextmanager
    async def empty(self) -> AsyncIterator[str]:
        """The address of a database without any table."""
        async with self._made("") as url:
            yield url

    @asynccontextmanager
    async def migrated(self) -> AsyncIterator[str]:
        """The address of an empty database with today's schema."""
        if self._template is None:
            name = f"template_{os.getpid()}_{secrets.token_hex(4)}"
            await self.execute(f"CREATE DATABASE {name}")
            await migrate(self.url(name))
            self._template = name
        async with self._made(f" TEMPLATE {self._template}") as url:
            yield url

    @asynccontextmanager
    async def _made(self, how: str) -> AsyncIterator[str]:
        name = f"test_{os.getpid()}_{secrets.token_hex(6)}"
        await self.execute(f"CREATE DATABASE {name}{how}")
        try:
            yield self.url(name)
        finally:
            await self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self) -> None:
        """Drop the template."""
        if self._template is not None:
            asyncio.run(self.execute(f"DROP DATABASE {self._template} WITH (FORCE)"))


@pytest.fixture(scope="session")
def databases(services: RealServices) -> Iterator[Databases]:
    """Databases of this run's PostgreSQL, which is started when first asked for."""
    made = Databases(services)
    try:
        yield made
    finally:
        made.stop()
