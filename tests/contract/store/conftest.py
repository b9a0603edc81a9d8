"""The stores under test, each with a clock that the test moves, and what tests insert.

A backend is an async context manager that yields an open, empty store and the function that moves
its clock; another one is added to BACKENDS and passes the same suite.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from mainspring_server.clock import VirtualClock
from mainspring_server.domain import lifecycle
from mainspring_server.domain.checks import first_check
from mainspring_server.domain.leases import Grant, Seat, Want
from mainspring_server.domain.task import (
    NO_TIMEOUTS,
    Inserted,
    NewTask,
    ReadyRef,
    Status,
    Task,
    Timeouts,
)
from mainspring_server.store.port import All, Store
from mainspring_server.store.postgres import PostgresStore
from mainspring_server.store.sqlite import SqliteStore
from tests.postgres import Databases

LANE = "default/work"


@dataclass
class Backend:
    """An open, empty store and the function that moves its clock by so many ms."""

    store: Store
    advance: Callable[[int], None]


@asynccontextmanager
async def sqlite_backend(folder: Path, _request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    clock = VirtualClock()
    store = SqliteStore(str(folder / "tasks.db"), clock)
    await store.open()
    try:
        yield Backend(store, clock.advance)
    finally:
        await store.close()


@asynccontextmanager
async def postgres_backend(
    _folder: Path, request: pytest.FixtureRequest, *, ready_index: bool = False
) -> AsyncIterator[Backend]:
    databases: Databases = request.getfixturevalue("databases")
    async with databases.shared(f"contract_{ready_index}") as url:
        store = PostgresStore(url, ready_index=ready_index, purge_rows=True)
        await store.open()
        store.clock_ms = await store.now()

        def advance(ms: int) -> None:
            store.clock_ms = (store.clock_ms or 0) + ms

        try:
            yield Backend(store, advance)
        finally:
            await store.close()


Opened = Callable[[Path, pytest.FixtureRequest], AbstractAsyncContextManager[Backend]]

BACKENDS: dict[str, Opened] = {
    "sqlite": sqlite_backend,
    "postgres": partial(postgres_backend, ready_index=True),
    "postgres-distributed": postgres_backend,
}


@pytest.fixture(params=sorted(BACKENDS))
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    async with BACKENDS[request.param](tmp_path, request) as opened:
        yield opened


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store


@pytest.fixture
def advance(backend: Backend) -> Callable[[int], None]:
    return backend.advance


def uuid7(at: int) -> bytes:
    """An id as the engine mints them."""
    tail = bytearray(at.to_bytes(6, "big") + secrets.token_bytes(10))
    tail[6] = 0x70 | tail[6] & 0x0F
    tail[8] = 0x80 | tail[8] & 0x3F
    return bytes(tail)


def new_task(now: int, due_in: int = 0, **fields: object) -> NewTask:
    """A task of LANE; READY unless `due_in` or `status` says otherwise."""
    status = Status.PENDING if due_in > 0 else Status.READY
    timeouts = fields.get("timeouts", NO_TIMEOUTS)
    assert isinstance(timeouts, Timeouts)
    values: dict[str, object] = {
        "task_id": uuid7(now),
        "namespace": "default",
        "task_type": "work",
        "queue": "work",
        "priority": 5,
        "status": status,
        "due_at": now + due_in,
        "created_at": now,
    } | fields
    task = NewTask(**values)  # type: ignore[arg-type]
    if task.next_check_at is None:
        task.next_check_at = first_check(
            task.status, task.due_at, now, task.deadline_at, timeouts.queue_ms
        )
    return task


def want(*seats: tuple[str, int], lanes: tuple[str, ...] = (LANE,), **fields: object) -> Want:
    """Credit for the seats (one for one task by default)."""
    filled = tuple(Seat(*seat) for seat in seats or (("w1", 1),))
    return Want(lanes, filled, **({"lease_ms": 5_000} | fields))  # type: ignore[arg-type]


class Kit:
    """Short ways to a task in the state that a test is about."""

    everything = All(())
    uuid7 = staticmethod(uuid7)
    want = staticmethod(want)

    def __init__(self, store: Store) -> None:
        self._store = store

    async def new(self, due_in: int = 0, **fields: object) -> NewTask:
        """A task that is not inserted yet."""
        return new_task(await self._store.now(), due_in, **fields)

    async def inserted(self, due_in: int = 0, **fields: object) -> NewTask:
        """A task that is: READY, PENDING if due later, or as `status` says."""
        (task,) = await self.many(1, due_in, **fields)
        return task

    async def many(self, count: int, due_in: int = 0, **fields: object) -> list[NewTask]:
        """The same, `count` times."""
        now = await self._store.now()
        tasks = [new_task(now, due_in, **fields) for _ in range(count)]
        answers: list[Inserted] = await self._store.insert(tasks)
        assert [answer.task_id for answer in answers] == [task.task_id for task in tasks]
        return tasks

    async def running(self, worker_id: str = "w1", **fields: object) -> Grant:
        """A claimed task; `acked` and `lease_ms` are the want's, the rest the task's."""
        terms = {name: fields.pop(name) for name in ("acked", "lease_ms") if name in fields}
        task = await self.inserted(**fields)  # type: ignore[arg-type]
        (grant,) = await self._store.claim([ref(task)], want((worker_id, 1), **terms))
        return grant

    @staticmethod
    def ref_of(task: Task) -> ReadyRef:
        """What the ready queue carries about a stored task."""
        return ReadyRef(task.task_id, task.version, task.lane, task.priority, task.due_at, 0)

    async def stored(self, task_id: bytes) -> Task:
        """The row."""
        (task,) = await self._store.load([task_id])
        assert task is not None
        return task


def ref(task: NewTask, version: int = 1) -> ReadyRef:
    """What the ready queue carries about the task."""
    return ReadyRef(task.task_id, version, task.lane, task.priority, task.due_at, task.created_at)


@pytest.fixture
def kit(store: Store) -> Kit:
    return Kit(store)


@pytest.fixture
def refs() -> Callable[..., list[ReadyRef]]:
    """Freshly inserted READY tasks to references."""
    return lambda tasks: [ref(task) for task in tasks]


@pytest.fixture
def hand_back(store: Store, kit: Kit) -> Callable[[bytes], Awaitable[None]]:
    """Gives a running task back, as a draining worker does."""

    async def give(task_id: bytes) -> None:
        change = lifecycle.hand_back(await kit.stored(task_id), await store.now())
        assert await store.apply([change]) == [True]

    return give
