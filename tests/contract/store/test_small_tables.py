"""Paused queues, connected workers, shard leases."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from mainspring_server.store.port import DEAD_LEASE_MS, PausedQueue, ShardLease, Store, WorkerRow

MINUTE = 60_000


async def test_pause_and_resume(store: Store, advance: Any) -> None:
    assert await store.paused() == []
    await store.pause("default/b", "first")
    ((lane, reason, paused_at),) = [
        (row.lane, row.reason, row.paused_at) for row in await store.paused()
    ]
    assert (lane, reason) == ("default/b", "first")
    advance(10_000)
    await store.pause("default/b", "second")
    await store.pause("default/a", "")
    paused = sorted(await store.paused(), key=lambda row: row.lane)
    assert [row.lane for row in paused] == ["default/a", "default/b"]
    assert paused[1] == PausedQueue("default/b", "second", paused_at)
    assert await store.resume("default/b") is True
    assert await store.resume("default/b") is False
    assert [row.lane for row in await store.paused()] == ["default/a"]


def worker(now: int, session: str, **fields: Any) -> WorkerRow:
    values = {
        "worker_id": f"worker-{session}",
        "namespace": "default",
        "session_id": session,
        "node": "node-1",
        "hostname": "host",
        "sdk": "python 0.1",
        "slots": 8,
        "in_use": 3,
        "queues": ("q1", "q2"),
        "task_types": (),
        "connected_at": now,
        "seen_at": now,
    }
    return WorkerRow(**(values | fields))


async def test_workers_are_replaced_by_session(store: Store) -> None:
    now = await store.now()
    first, second = worker(now, "s1"), worker(now, "s2", task_types=("a", "b"))
    foreign = worker(now, "s3", namespace="other")
    await store.save_workers([first, second, foreign], [])
    rows = sorted(await store.workers("default"), key=lambda row: row.session_id)
    assert rows == [first, second]
    assert await store.workers("other") == [foreign]
    busy = replace(first, in_use=8, seen_at=now + 1)
    await store.save_workers([busy], ["s2", "s3", "never"])
    assert await store.workers("default") == [busy]
    assert await store.workers("other") == []


async def test_silent_workers_disappear(store: Store, advance: Any) -> None:
    now = await store.now()
    await store.save_workers([worker(now, "s1"), worker(now, "s2")], [])
    advance(MINUTE // 2)
    again = worker(now, "s2", seen_at=await store.now())
    await store.save_workers([again], [])
    assert len(await store.workers("default")) == 2
    advance(MINUTE // 2 + 1_000)
    assert await store.workers("default") == [again]
    await store.save_workers([], [])
    assert await store.workers("default") == [again]


async def test_leases_are_taken_once_and_renewed(store: Store, advance: Any) -> None:
    names = ["shard/0", "shard/1", "shard/2"]
    now = await store.now()
    mine = await store.acquire(names, "one", 3_000)
    assert [(lease.name, lease.owner, lease.term) for lease in mine] == [
        (name, "one", 1) for name in names
    ]
    assert all(lease.expires_at >= now + 3_000 for lease in mine)
    assert await store.acquire(names, "two", 3_000) == []
    advance(2_000)
    again = await store.acquire(names, "one", 3_000)
    assert [lease.term for lease in again] == [1, 1, 1]
    assert all(lease.expires_at >= now + 5_000 for lease in again)
    advance(1_500)
    assert await store.acquire(names[:1], "two", 3_000) == []


async def test_expired_lease_gets_another_owner_and_term(store: Store, advance: Any) -> None:
    await store.acquire(["shard/0", "shard/1"], "one", 3_000)
    advance(1_000)
    await store.acquire(["shard/1"], "one", 9_000)
    advance(2_000)
    taken = await store.acquire(["shard/0", "shard/1"], "two", 3_000)
    assert [(lease.name, lease.owner, lease.term) for lease in taken] == [("shard/0", "two", 2)]
    kept = await store.acquire(["shard/0", "shard/1"], "one", 3_000)
    assert [(lease.name, lease.term) for lease in kept] == [("shard/1", 1)]


async def test_released_lease_is_free_at_once(store: Store) -> None:
    (lease,) = await store.acquire(["shard/0"], "one", 60_000)
    await store.release([replace(lease, term=9), replace(lease, owner="two")])
    assert await store.acquire(["shard/0"], "two", 60_000) == []
    await store.release([lease])
    assert await store.shard_leases("shard/") == []
    (taken,) = await store.acquire(["shard/0"], "two", 60_000)
    assert taken.term == 2
    await store.release([lease])
    assert [row.owner for row in await store.shard_leases("shard/")] == ["two"]


async def test_leases_of_the_dead_are_forgotten(store: Store, advance: Any) -> None:
    (first,) = await store.acquire(["trigger/gone"], "gone", 3_000)
    advance(3_000 + DEAD_LEASE_MS)
    await store.acquire(["shard/0"], "one", 3_000)
    await store.purge(0, 10)
    (again,) = await store.acquire(["trigger/gone"], "back", 3_000)
    assert (first.term, again.term) == (1, 2)  # not a moment too soon
    advance(3_001 + DEAD_LEASE_MS)
    await store.purge(0, 10)
    (anew,) = await store.acquire(["trigger/gone"], "back", 3_000)
    assert anew.term == 1


async def test_leases_by_prefix(store: Store, advance: Any) -> None:
    await store.acquire(["shard/0", "shard/1", "lane/a", "shard_0"], "one", 3_000)
    await store.acquire(["shard/2"], "two", 9_000)
    leases = await store.shard_leases("shard/")
    assert sorted((lease.name, lease.owner) for lease in leases) == [
        ("shard/0", "one"),
        ("shard/1", "one"),
        ("shard/2", "two"),
    ]
    advance(3_000)
    assert [lease.name for lease in await store.shard_leases("shard/")] == ["shard/2"]
    assert len(await store.shard_leases("")) == 1
    await store.acquire(["lane/b"], "one", 3_000)
    found = await store.shard_leases("lane/", "shard/")
    assert [lease.name for lease in found] == ["lane/b", "shard/2"]
    assert await store.shard_leases() == []


async def test_contenders_for_a_lease_get_one_owner(store: Store) -> None:
    names = [f"shard/{n}" for n in range(16)]
    answers: list[list[ShardLease]] = await asyncio.gather(
        *(store.acquire(names, f"owner-{n}", 60_000) for n in range(8))
    )
    owned = [lease.name for answer in answers for lease in answer]
    assert sorted(owned) == sorted(names)
