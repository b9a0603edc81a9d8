"""Deadlocks, lock waits, broken connections, restarts: refused or healed, never half done."""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from mainspring_server.domain.errors import InvalidArgument, Unavailable
from mainspring_server.domain.leases import Beat, BeatState, Success
from mainspring_server.domain.task import (
    IdempotencyKey,
    InsertState,
    Payload,
    PayloadKind,
    Status,
)
from mainspring_server.store.postgres import PostgresStore, pool
from tests.services import RealServices

Make = Callable[..., Any]


async def running(store: PostgresStore, make: Make, want: Callable[[int], Any], count: int) -> Any:
    now = await store.now()
    await store.insert([make(now) for _ in range(count)])
    grants = await store.claim_lanes([want(count)], 1)
    return sorted((g.task_id, g.token) for g in grants)


async def blocked(database: Any, count: int) -> None:
    """Return once so many sessions wait for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with asyncio.timeout(20):
        while await database.fetchval(query) < count:
            # Within a transaction the view stands still until it is told not to.
            await database.execute("SELECT pg_stat_clear_snapshot()")


async def test_a_deadlock_is_retried(
    store: PostgresStore, url: str, database: Any, make: Make, want: Any
) -> None:
    (first, a), (second, b) = await running(store, make, want, 2)
    rival = await asyncpg.connect(url, server_settings={"deadlock_timeout": "30s"})
    transaction = rival.transaction()
    await transaction.start()
    lock = "SELECT 1 FROM tasks WHERE task_id = $1 FOR UPDATE"
    await rival.execute(f"SELECT 1 FROM tasks WHERE task_id = '{second.hex()}' FOR UPDATE")
    results = [Success(second, b, None), Success(first, a, None)]
    succeeding = asyncio.create_task(store.succeed(results))
    await blocked(database, 1)
    locking = asyncio.create_task(rival.fetch(lock, first.hex()))
    await locking  # the store was the victim and let go
    await transaction.commit()
    assert await succeeding == [True, True]
    await rival.close()


async def test_a_lock_wait_ends_and_changes_nothing(
    url: str, database: Any, make: Make, want: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pool.ALWAYS, "lock_timeout", "100")
    store = PostgresStore(url)
    await store.open()
    (first, a), (second, b) = await running(store, make, want, 2)
    results = [Success(first, a, None), Success(second, b, None)]
    async with database.transaction():
        await database.execute(f"SELECT 1 FROM tasks WHERE task_id = '{second.hex()}' FOR UPDATE")
        with pytest.raises(Unavailable) as refused:
            await store.succeed(results)
        assert refused.value.reason == "STORE_UNAVAILABLE"
        assert refused.value.retry_after_ms
    assert await store.succeed(results) == [True, True]
    await store.close()


async def test_claim_by_lane_skips_what_others_have_locked(
    indexed: PostgresStore, database: Any, make: Make, want: Any
) -> None:
    now = await indexed.now()
    locked, free = make(now, priority=0), make(now)
    await indexed.insert([locked, free])
    async with database.transaction():
        await database.execute(
            f"SELECT 1 FROM tasks WHERE task_id = '{locked.task_id.hex()}' FOR UPDATE"
        )
        (grant,) = await indexed.claim_lanes([want(2)], 1)
    assert grant.task_id == free.task_id


async def test_terminated_backends_heal(
    store: PostgresStore, database: Any, make: Make, want: Any
) -> None:
    ((task_id, token),) = await running(store, make, want, 1)
    await database.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    applied = []
    for _ in range(20):
        try:
            applied = await store.succeed([Success(task_id, token, None)])
            break
        except Unavailable:
            continue
    assert applied == [True]


async def test_a_restarted_server_heals(
    services: RealServices, store: PostgresStore, make: Make, want: Any
) -> None:
    ((task_id, token),) = await running(store, make, want, 1)
    await asyncio.to_thread(services.kill, "postgresql")
    with pytest.raises(Unavailable):
        await store.succeed([Success(task_id, token, None)])
    await asyncio.to_thread(services.restart, "postgresql")
    (task,) = await store.load([task_id])
    assert task is not None
    assert task.status is Status.RUNNING
    assert await store.succeed([Success(task_id, token, None)]) == [True]


async def test_a_flood_of_submit_does_not_stop_heartbeats(
    url: str, database: Any, make: Make, want: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pool.ALWAYS, "lock_timeout", "30000")
    store = PostgresStore(url)
    await store.open()
    ((task_id, token),) = await running(store, make, want, 1)
    now = await store.now()
    async with database.transaction():
        await database.execute("LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE")
        flood = [
            asyncio.create_task(
                store.insert(
                    [make(now, idempotency=IdempotencyKey(bytes([n] * 16), b"h" * 32, now + 10**6))]
                )
            )
            for n in range(20)
        ]
        await blocked(database, 2)
        (answer,) = await store.extend([Beat(task_id, token, 60_000)])
        assert answer.state is BeatState.EXTENDED
        assert await store.succeed([Success(task_id, token, None)]) == [True]
    answers = await asyncio.gather(*flood)
    assert [answer.state for (answer,) in answers] == [InsertState.INSERTED] * 20
    await store.close()


async def test_a_value_that_cannot_be_stored_is_refused_without_effect(
    store: PostgresStore, make: Make
) -> None:
    now = await store.now()
    good, bad = make(now), make(now, labels='{"a": "\x00"}')
    for batch in ([good, bad], [make(now) for _ in range(99)] + [good, bad]):
        with pytest.raises(InvalidArgument, match="cannot hold"):
            await store.insert(batch)
        assert await store.load([good.task_id]) == [None]
    with pytest.raises(InvalidArgument):
        await store.insert([make(now, due_at=2**70)])


async def test_a_repeated_large_batch_is_stored_once(store: PostgresStore, make: Make) -> None:
    now = await store.now()
    tasks = [
        make(now, due_in=n % 2 * 60_000, payload=Payload(PayloadKind.JSON, b"%d" % n, None))
        for n in range(200)
    ]
    first = await store.insert(tasks)
    again = await store.insert([*tasks, make(now)])
    assert [answer.state for answer in (*first, *again)] == [InsertState.INSERTED] * 401
    loaded = await store.load([task.task_id for task in tasks], payload=True)
    assert [task and task.payload and task.payload.body for task in loaded] == [
        b"%d" % n for n in range(200)
    ]
    assert {task.ready_at is not None for task in loaded[::2] if task} == {True}
    assert {task.ready_at is None for task in loaded[1::2] if task} == {True}
