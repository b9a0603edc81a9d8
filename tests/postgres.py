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

EMPTY = """DO $$
DECLARE name regclass;
BEGIN
    FOR name IN SELECT oid FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
            AND NOT relispartition AND relname <> 'schema_migrations'
    LOOP
        EXECUTE format('DELETE FROM %s', name);
    END LOOP;
END $$"""
"""Far quicker than TRUNCATE, which makes new files for every partition."""


class Databases:
    """Makes and drops databases on the server of this run."""

    def __init__(self, services: RealServices) -> None:
        self._services = services
        self._template: str | None = None
        self._shared: dict[str, str] = {}

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
    async def shared(self, kind: str) -> AsyncIterator[str]:
        """The address of a database that all tests of a kind use in turn; emptied after each."""
        if kind not in self._shared:
            name = f"shared_{os.getpid()}_{secrets.token_hex(4)}"
            await self.execute(f"CREATE DATABASE {name}")
            await migrate(self.url(name))
            self._shared[kind] = name
        url = self.url(self._shared[kind])
        try:
            yield url
        finally:
            connection = await asyncpg.connect(url)
            await connection.execute(EMPTY)
            await connection.close()

    @asynccontextmanager
    async def _made(self, how: str) -> AsyncIterator[str]:
        name = f"test_{os.getpid()}_{secrets.token_hex(6)}"
        await self.execute(f"CREATE DATABASE {name}{how}")
        try:
            yield self.url(name)
        finally:
            await self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self) -> None:
        """Drop the template and what was shared."""
        asyncio.run(self._drop())

    async def _drop(self) -> None:
        for name in (self._template, *self._shared.values()):
            if name is not None:
                await self.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def databases(services: RealServices) -> Iterator[Databases]:
    """Databases of this run's PostgreSQL, which is started when first asked for."""
    made = Databases(services)
    try:
        yield made
    finally:
        made.stop()
