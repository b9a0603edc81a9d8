"""The one door to PostgreSQL: a few connections for one purpose, every statement counted.

Each purpose (submit, work, query) has connections of its own, so that a flood of one never waits
in front of another. Plans are pinned: on a fresh partition that nobody has analysed the planner
prefers a hash join over the whole table, several times slower than the index.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from ...domain.errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    Record = asyncpg.Record
    Connection = asyncpg.Connection[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]

T = TypeVar("T")

TRIES = 5
"""A batch that lost a deadlock or a serialization conflict is run so many times in all."""

RETRY_AFTER_MS = 200

PINNED = {
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    # Where an index has the order, walk it and stop at the limit.
    "enable_sort": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""Nested loops from the batch into the primary key, whatever the statistics say."""

ALWAYS = {
    "application_name": "mainspring",
    "jit": "off",
    "lock_timeout": "2000",
    "idle_in_transaction_session_timeout": "5000",
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    # A server that is cut off from its client gives up its locks within seconds.
    "tcp_user_timeout": "10000",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}

_RETRIED = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)

_AWAY = (
    OSError,  # TimeoutError is one
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,  # shutdown, crash, starting up, statement timeout
    asyncpg.InsufficientResourcesError,  # too many connections, disk full, out of memory
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidCatalogNameError,  # no such database, or not yet
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby that has not been promoted yet
)


DRIVER_ERRORS = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""Whatever a statement or a connection may raise."""


def mapped(error: BaseException) -> BaseException:
    """What a caller of the store sees instead of the driver's error."""
    if isinstance(error, asyncpg.DataError | ValueError):
        # PostgreSQL's class 22, or the driver's own error about a value's type or range.
        return InvalidArgument("FIELD_INVALID", "the store cannot hold a value of the request")
    if isinstance(error, (*_AWAY, *_RETRIED)):
        return Unavailable(
            "STORE_UNAVAILABLE",
            f"PostgreSQL does not answer ({type(error).__name__}); try again",
            retry_after_ms=RETRY_AFTER_MS,
        )
    return error


async def _prepare(connection: Connection) -> None:
    # Ids travel as their 16 bytes; `bytes` hands a bytes object on as it is.
    await connection.set_type_codec(
        "uuid", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary"
    )


class _Connection(asyncpg.Connection):
    """A connection that needs no cleaning between two uses: nothing here changes session state."""

    def get_reset_query(self) -> str:
        """Nothing: saves a round trip per use."""
        return ""


class Session:
    """One transaction's view of a connection; counts at the door."""

    def __init__(self, door: Door, connection: Connection) -> None:
        self._door = door
        self._connection = connection

    async def rows(self, sql: str, *args: object) -> list[Record]:
        """Run one statement, answer its rows."""
        self._door.statements += 1
        return await self._connection.fetch(sql, *args)

    async def script(self, sql: str) -> None:
        """Run DDL without parameters."""
        self._door.statements += 1
        await self._connection.execute(sql)

    async def copy(
        self, table: str, columns: Sequence[str], records: Iterable[tuple[object, ...]]
    ) -> None:
        """COPY records into a table."""
        self._door.statements += 1
        await self._connection.copy_records_to_table(table, columns=columns, records=records)


class Door:
    """`size` connections; `statements` counts what went through, BEGIN and COMMIT included."""

    def __init__(self, dsn: str, size: int, timeout_ms: int, *, pinned: bool = True) -> None:
        self._dsn = dsn
        self._size = size
        self._timeout_ms = timeout_ms
        self._settings = (
            ALWAYS | {"statement_timeout": str(timeout_ms)} | (PINNED if pinned else {})
        )
        self._pool: Pool | None = None
        self.statements = 0

    async def open(self) -> None:
        """Connect; Unavailable if PostgreSQL cannot be reached."""
        try:
            self._pool = await asyncpg.create_pool(
                self._dsn,
                min_size=1,
                max_size=self._size,
                init=_prepare,
                connection_class=_Connection,
                server_settings=self._settings,
                timeout=5,
                command_timeout=self._timeout_ms / 1000 + 2,
                max_cached_statement_lifetime=0,
                max_inactive_connection_lifetime=0,
            )
        except DRIVER_ERRORS as error:
            raise mapped(error)

    async def close(self) -> None:
        """Let what runs finish, then disconnect."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await pool.close()
        except (TimeoutError, *_AWAY):
            pool.terminate()

    async def rows(self, sql: str, *args: object) -> list[Record]:
        """One statement that is its own transaction; retried after a deadlock."""

        async def work(connection: Connection) -> list[Record]:
            self.statements += 1
            return await connection.fetch(sql, *args)

        return await self._with_connection(work)

    async def run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Several statements in one transaction; all of it is retried after a deadlock."""

        async def transaction(connection: Connection) -> T:
            self.statements += 2
            async with connection.transaction():
                return await work(Session(self, connection))

        return await self._with_connection(transaction)

    async def _with_connection(self, work: Callable[[Any], Awaitable[T]]) -> T:
        pool = self._pool
        if pool is None:
            raise Unavailable("STORE_UNAVAILABLE", "the store is not open")
        for last in (*[False] * (TRIES - 1), True):
            try:
                async with pool.acquire(timeout=self._timeout_ms / 1000) as connection:
                    return await work(connection)
            except _RETRIED as error:
                if last:
                    raise mapped(error)
            except DRIVER_ERRORS as error:
                raise mapped(error)
        raise AssertionError("unreachable")
