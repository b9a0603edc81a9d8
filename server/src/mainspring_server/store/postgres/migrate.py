"""Numbered SQL migrations: append-only, one transaction each, one process at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from ...domain.errors import FailedPrecondition
from .partitions import DEFAULT_PERIOD_DAYS, ensure_partitions
from .pool import ALWAYS, DRIVER_ERRORS, Door, Session, mapped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .pool import Connection

ADVISORY_LOCK = 0x6D61696E73707267
"""Held while migrations run; the number spells `mainsprg`."""

LOCK_WAIT_MS = 60_000

_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


class Migration(NamedTuple):
    """One file of `migrations/`."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Tells an edited file from the one that was applied."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """Names of the migrations; `unknown` are applied ones that this version does not know."""

    applied: tuple[str, ...]
    pending: tuple[str, ...]
    changed: tuple[str, ...]
    unknown: tuple[str, ...]


def migrations() -> list[Migration]:
    """All of this version, by number."""
    folder = files(__package__).joinpath("migrations")
    found = [
        Migration(int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found)


def _compare(rows: Sequence[asyncpg.Record]) -> MigrationStatus:
    known = {migration.number: migration for migration in migrations()}
    applied = {row["number"]: row for row in rows}
    return MigrationStatus(
        applied=tuple(row["name"] for row in rows),
        pending=tuple(m.name for n, m in known.items() if n not in applied),
        changed=tuple(
            m.name
            for n, m in known.items()
            if n in applied and applied[n]["checksum"] != m.checksum
        ),
        unknown=tuple(row["name"] for number, row in applied.items() if number not in known),
    )


async def _status(connection: Connection) -> MigrationStatus:
    exists = await connection.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL")
    if not exists:
        return _compare([])
    return _compare(
        await connection.fetch(
            "SELECT number, name, checksum FROM schema_migrations ORDER BY number"
        )
    )


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[Connection]:
    settings = ALWAYS | {
        "lock_timeout": str(LOCK_WAIT_MS),
        "application_name": "mainspring-migrate",
    }
    try:
        connection = await asyncpg.connect(dsn, server_settings=settings, timeout=10)
        try:
            yield connection
        finally:
            await connection.close()
    except DRIVER_ERRORS as error:
        raise mapped(error)


async def migration_status(dsn: str) -> MigrationStatus:
    """What is applied and what is pending; changes nothing."""
    async with _connected(dsn) as connection:
        return await _status(connection)


async def migrate(
    dsn: str, *, dry_run: bool = False, period_days: int = DEFAULT_PERIOD_DAYS
) -> list[str]:
    """Apply what is pending, in order, and make the partitions; answers the names.

    A dry run answers what would be applied. An applied migration whose file was edited since is
    refused with FailedPrecondition before anything runs.
    """
    async with _connected(dsn) as connection:
        if dry_run:
            return list((await _status(connection)).pending)
        await connection.execute("SELECT pg_advisory_lock($1)", ADVISORY_LOCK)
        await connection.execute(_TABLE)
        status = await _status(connection)
        if status.changed:
            raise FailedPrecondition(
                "MIGRATION_CHANGED",
                f"applied migrations were edited afterwards: {', '.join(status.changed)}; "
                "restore their files and put the change into a new migration",
            )
        pending = [m for m in migrations() if m.name in status.pending]
        for migration in pending:
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(
                    "INSERT INTO schema_migrations (number, name, checksum) VALUES ($1, $2, $3)",
                    migration.number,
                    migration.name,
                    migration.checksum,
                )
    await _make_partitions(dsn, period_days)
    return [migration.name for migration in pending]


async def _make_partitions(dsn: str, period_days: int) -> None:
    door = Door(dsn, 1, LOCK_WAIT_MS)
    await door.open()
    try:
        now = await door.rows("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        await ensure_partitions(door, now[0][0], period_days)
    finally:
        await door.close()


async def check_schema(door: Door) -> None:
    """FailedPrecondition unless all migrations of this version are applied."""

    async def read(session: Session) -> Sequence[asyncpg.Record]:
        if not (await session.rows("SELECT to_regclass('schema_migrations') IS NOT NULL"))[0][0]:
            return []
        return await session.rows(
            "SELECT number, name, checksum FROM schema_migrations ORDER BY number"
        )

    pending = _compare(await door.run(read)).pending
    if pending:
        raise FailedPrecondition(
            "SCHEMA_OUT_OF_DATE",
            f"the database lacks {', '.join(pending)}; run `mainspring migrate` first",
        )
