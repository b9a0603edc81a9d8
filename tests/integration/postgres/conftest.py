"""A store on a database of its own, a second way into that database, and tasks to put there."""

import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

from mainspring_server.domain.checks import first_check
from mainspring_server.domain.leases import Seat, Want
from mainspring_server.domain.task import (
    NewTask,
    Payload,
    PayloadKind,
    Status,
)
from mainspring_server.store.postgres import PostgresStore
from tests.postgres import Databases


@pytest.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    """A migrated, empty database."""
    async with databases.migrated() as address:
        yield address


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """The store of the distributed rung."""
    opened = PostgresStore(url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def indexed(url: str) -> AsyncIterator[PostgresStore]:
    """The store of the Postgres-only rung."""
    opened = PostgresStore(url, ready_index=True)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Any]:
    """A plain connection to the same database."""
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close(timeout=5)


def new_id(at: int) -> bytes:
    """An id of that millisecond."""
    tail = bytearray(at.to_bytes(6, "big") + secrets.token_bytes(10))
    tail[6] = 0x70 | tail[6] & 0x0F
    tail[8] = 0x80 | tail[8] & 0x3F
    return bytes(tail)


@pytest.fixture
def make() -> Callable[..., NewTask]:
    """A task: `make(now, due_in_ms, **fields)`; READY unless it is due later."""

    def one(now: int, due_in: int = 0, **fields: Any) -> NewTask:
        status = fields.setdefault("status", Status.PENDING if due_in > 0 else Status.READY)
        values: dict[str, Any] = {
            "task_id": new_id(now),
            "namespace": "default",
            "task_type": "work",
            "queue": "work",
            "priority": 5,
            "due_at": now + due_in,
            "created_at": now,
            "payload": Payload(PayloadKind.DATA, b"body", None),
            "next_check_at": first_check(status, now + due_in, now, None, None),
        }
        return NewTask(**(values | fields))

    return one


@pytest.fixture
def want() -> Callable[[int], Want]:
    """Credit for so many tasks of the lane."""
    return lambda room: Want(("default/work",), (Seat("w1", room),), 5_000)
