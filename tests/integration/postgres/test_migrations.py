"""Migrations run once, in order, one process at a time, and lead to the schema on file."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from mainspring_server.domain.errors import FailedPrecondition, Unavailable
from mainspring_server.store.postgres import PostgresStore, migrate, migration_status
from mainspring_server.store.postgres.migrate import migrations
from tests.postgres import Databases

SCHEMA = Path(__file__).with_name("schema.txt")

DESCRIBE = """
SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
UNION ALL
SELECT c.relname || ' check ' || pg_get_constraintdef(k.oid)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE c.relnamespace = 'public'::regnamespace AND k.contype = 'c' AND NOT c.relispartition
UNION ALL
SELECT relname || ' by ' || pg_get_partkeydef(oid) FROM pg_class
WHERE relkind = 'p' AND relnamespace = 'public'::regnamespace
ORDER BY 1
"""


@pytest.fixture
async def empty(databases: Databases) -> AsyncIterator[str]:
    async with databases.empty() as address:
        yield address


async def test_dry_run_status_and_run(empty: str) -> None:
    names = [migration.name for migration in migrations()]
    assert await migrate(empty, dry_run=True) == names
    assert (await migration_status(empty)).pending == tuple(names)
    assert await migrate(empty) == names
    status = await migration_status(empty)
    assert (status.applied, status.pending, status.changed) == (tuple(names), (), ())
    assert await migrate(empty) == []


async def test_two_at_once_apply_each_once(empty: str) -> None:
    answers = await asyncio.gather(migrate(empty), migrate(empty))
    assert sorted(map(len, answers)) == [0, len(migrations())]


async def test_an_edited_migration_is_refused(empty: str) -> None:
    await migrate(empty)
    connection = await asyncpg.connect(empty)
    await connection.execute("UPDATE schema_migrations SET checksum = 'other'")
    await connection.close()
    with pytest.raises(FailedPrecondition, match="0001_tasks"):
        await migrate(empty)


async def test_a_store_refuses_an_older_schema(empty: str) -> None:
    store = PostgresStore(empty)
    with pytest.raises(FailedPrecondition, match="mainspring migrate"):
        await store.open()
    await store.close()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await migrate("postgresql://nobody@127.0.0.1:1/none")


def test_each_says_why_what_it_locks_and_its_kind() -> None:
    numbers = [migration.number for migration in migrations()]
    assert numbers == list(range(1, len(numbers) + 1))
    for migration in migrations():
        for heading in ("-- Why: ", "-- Locks: ", "-- Kind: "):
            assert heading in migration.sql, migration.name


async def test_the_schema_is_the_one_on_file(url: str) -> None:
    connection = await asyncpg.connect(url)
    lines = [row[0] for row in await connection.fetch(DESCRIBE)]
    await connection.close()
    assert lines == SCHEMA.read_text().splitlines()
