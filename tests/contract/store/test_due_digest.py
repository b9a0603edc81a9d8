"""What a wheel compares with: due within a span, and its digest per shard and second."""

from collections.abc import Callable
from typing import Any

from mainspring_server.domain.task import SHARDS, shard_of
from mainspring_server.store.port import DueDigest, Store, id_mark

ALL_SHARDS = range(SHARDS)


def digest_of(ids: list[bytes], second: int) -> set[DueDigest]:
    found: dict[int, list[bytes]] = {}
    for task_id in ids:
        found.setdefault(shard_of(task_id), []).append(task_id)
    marks = {}
    for shard, members in found.items():
        marks[shard] = 0
        for task_id in members:
            marks[shard] ^= id_mark(task_id)
    return {DueDigest(shard, second, len(found[shard]), mark) for shard, mark in marks.items()}


async def test_due_since_leaves_out_what_is_earlier(store: Store, kit: Any) -> None:
    now = await store.now()
    tasks = [await kit.inserted(due_in=delay) for delay in (1_000, 2_000, 3_000, 4_000)]
    found = await store.due(ALL_SHARDS, now + 3_000, 10, now + 2_000)
    assert [entry.task_id for entry in found] == [task.task_id for task in tasks[1:3]]


async def test_digest_counts_what_is_pending_per_shard_and_second(store: Store, kit: Any) -> None:
    now = await store.now()
    delay = 60_000 - now % 1_000
    second = (now + delay) // 1_000
    here = [task.task_id for task in await kit.many(150, due_in=delay)]
    here += [task.task_id for task in await kit.many(50, due_in=delay + 999)]
    there = [task.task_id for task in await kit.many(20, due_in=delay + 1_000)]
    await kit.many(10, due_in=delay - 1)
    await kit.many(10, due_in=delay + 2_000)
    found = await store.due_digest(ALL_SHARDS, second * 1_000, second * 1_000 + 1_999)
    assert len(found) == len(set(found))
    assert set(found) == digest_of(here, second) | digest_of(there, second + 1)


async def test_digest_of_some_shards(store: Store, kit: Any) -> None:
    tasks = await kit.many(200, due_in=5_000)
    due, mine = tasks[0].due_at, [3, 17, 40]
    ids = [task.task_id for task in tasks if shard_of(task.task_id) in mine]
    found = await store.due_digest(mine, due, due)
    assert set(found) == digest_of(ids, due // 1_000)
    assert await store.due_digest([], due, due) == []


async def test_what_is_no_longer_pending_leaves_the_digest(
    store: Store, kit: Any, advance: Callable[[int], None]
) -> None:
    tasks = await kit.many(30, due_in=1_000)
    advance(1_000)
    await store.make_ready([task.task_id for task in tasks])
    assert await store.due_digest(ALL_SHARDS, 0, await store.now()) == []
