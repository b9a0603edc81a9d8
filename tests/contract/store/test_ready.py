"""make_ready, due, overdue, defer, republish."""

from __future__ import annotations

from typing import Any

from mainspring_server.domain.checks import GRACE_MS
from mainspring_server.domain.leases import Success
from mainspring_server.domain.task import (
    SHARDS,
    ReadyAnswer,
    ReadyRef,
    ReadyState,
    Status,
    Timeouts,
    shard_of,
)
from mainspring_server.store.port import DueEntry, Store

ALL_SHARDS = range(SHARDS)
STALE = ReadyAnswer(ReadyState.STALE, None, None)


async def test_due_task_becomes_ready(store: Store, kit: Any, advance: Any) -> None:
    task = await kit.inserted(due_in=1_000, priority=2)
    advance(1_000)
    now = await store.now()
    (answer,) = await store.make_ready([task.task_id])
    assert answer.state is ReadyState.APPLIED
    assert answer.ref is not None
    assert answer.ref[:5] == (task.task_id, 2, "default/work", 2, task.due_at)
    stored = await kit.stored(task.task_id)
    assert (stored.status, stored.version) == (Status.READY, 2)
    assert stored.ready_at == stored.published_at == answer.ref.published_at
    assert answer.ref.published_at >= now
    assert stored.next_check_at == task.next_check_at


async def test_early_task_stays_and_says_when(store: Store, kit: Any) -> None:
    task = await kit.inserted(due_in=60_000)
    answers = await store.make_ready([task.task_id])
    assert answers == [ReadyAnswer(ReadyState.EARLY, None, task.due_at)]
    stored = await kit.stored(task.task_id)
    assert (stored.status, stored.version) == (Status.PENDING, 1)


async def test_lead_makes_ready_ahead(store: Store, kit: Any) -> None:
    near, far = await kit.inserted(due_in=30_000), await kit.inserted(due_in=99_000)
    answers = await store.make_ready([near.task_id, far.task_id], lead_ms=31_000)
    assert [answer.state for answer in answers] == [ReadyState.APPLIED, ReadyState.EARLY]
    assert (await kit.stored(near.task_id)).due_at == near.due_at


async def test_ready_before_is_published_again(store: Store, kit: Any) -> None:
    task = await kit.inserted()
    stored = await kit.stored(task.task_id)
    (answer,) = await store.make_ready([task.task_id])
    ref = ReadyRef(task.task_id, 1, "default/work", 5, task.due_at, stored.published_at)
    assert answer == ReadyAnswer(ReadyState.ALREADY, ref, None)
    assert await kit.stored(task.task_id) == stored


async def test_anything_else_is_stale(store: Store, kit: Any) -> None:
    created = await kit.inserted(status=Status.CREATED)
    running = await kit.running()
    done = await kit.running()
    await store.succeed([Success(done.task_id, done.token, None)])
    unknown = kit.uuid7(await store.now())
    ids = [created.task_id, running.task_id, done.task_id, unknown]
    assert await store.make_ready(ids) == [STALE] * 4


async def test_past_deadline_is_stale(store: Store, kit: Any, advance: Any) -> None:
    now = await store.now()
    task = await kit.inserted(due_in=1_000, deadline_at=now + 2_000)
    advance(2_000)
    assert await store.make_ready([task.task_id]) == [STALE]
    assert (await kit.stored(task.task_id)).status is Status.PENDING


async def test_answers_keep_order_and_repeated_ids(store: Store, kit: Any, advance: Any) -> None:
    first = await kit.many(200, due_in=1_000)
    later = await kit.many(100, due_in=90_000)
    advance(1_000)
    ids = [task.task_id for pair in zip(first, later, strict=False) for task in pair]
    answers = await store.make_ready([*ids, ids[0]])
    assert [answer.state for answer in answers[:-1]] == [
        ReadyState.APPLIED,
        ReadyState.EARLY,
    ] * 100
    assert answers[-1].state in (ReadyState.APPLIED, ReadyState.ALREADY)
    assert (await kit.stored(ids[0])).version == 2
    assert await store.make_ready([]) == []


async def test_queue_timeout_moves_the_check_forward_only(
    store: Store, kit: Any, advance: Any
) -> None:
    short = await kit.inserted(due_in=1_000, timeouts=Timeouts(queue_ms=500))
    long = await kit.inserted(due_in=1_000, timeouts=Timeouts(queue_ms=500_000))
    advance(1_000)
    await store.make_ready([short.task_id, long.task_id])
    stored = await kit.stored(short.task_id)
    assert stored.next_check_at == stored.queue_deadline
    assert (await kit.stored(long.task_id)).next_check_at == long.next_check_at


async def test_queue_timeout_counts_from_due_when_made_ready_ahead(store: Store, kit: Any) -> None:
    task = await kit.inserted(due_in=10_000, timeouts=Timeouts(queue_ms=500))
    await store.make_ready([task.task_id], lead_ms=10_000)
    assert (await kit.stored(task.task_id)).next_check_at == task.due_at + 500


async def test_due_is_soonest_first_and_limited(store: Store, kit: Any) -> None:
    now = await store.now()
    tasks = [await kit.inserted(due_in=delay) for delay in (3_000, 1_000, 2_000, 9_000)]
    await kit.inserted()
    expected = [
        DueEntry(task.due_at, 5, task.task_id) for task in sorted(tasks, key=lambda t: t.due_at)
    ]
    assert await store.due(ALL_SHARDS, now + 5_000, 10) == expected[:3]
    assert await store.due(ALL_SHARDS, now + 5_000, 2) == expected[:2]
    assert await store.due(ALL_SHARDS, now, 10) == []


async def test_due_leaves_passed_deadlines_to_the_sweeper(
    store: Store, kit: Any, advance: Any
) -> None:
    now = await store.now()
    await kit.inserted(due_in=1_000, deadline_at=now + 2_000)
    later = await kit.inserted(due_in=1_000, deadline_at=now + 2_001)
    assert len(await store.due(ALL_SHARDS, now + 5_000, 10)) == 2
    advance(2_000)
    found = await store.due(ALL_SHARDS, now + 5_000, 10)
    assert [entry.task_id for entry in found] == [later.task_id]


async def test_due_of_some_shards(store: Store, kit: Any) -> None:
    tasks = await kit.many(200, due_in=1_000)
    mine = [3, 17, 40]
    entries = await store.due(mine, tasks[0].due_at, 1_000)
    assert {entry.task_id for entry in entries} == {
        task.task_id for task in tasks if shard_of(task.task_id) in mine
    }
    assert await store.due([], tasks[0].due_at, 10) == []


async def test_overdue_pages_by_key(store: Store, kit: Any) -> None:
    now = await store.now()
    tasks = [
        *await kit.many(7, next_check_at=now + 10),
        *await kit.many(6, next_check_at=now + 20),
        *await kit.many(3, next_check_at=now + 90),
    ]
    found: list[tuple[int, bytes]] = []
    after = None
    while page := await store.overdue(ALL_SHARDS, now + 50, after, 4):
        found += [(task.next_check_at or 0, task.task_id) for task in page]
        after = found[-1]
    assert found == sorted((task.next_check_at, task.task_id) for task in tasks[:13])


async def test_overdue_of_some_shards_in_every_state(store: Store, kit: Any) -> None:
    now = await store.now()
    running = await kit.running(next_check_at=now + 1)
    pending = await kit.inserted(due_in=5_000, next_check_at=now + 1)
    created = await kit.inserted(status=Status.CREATED, next_check_at=now + 1)
    done = await kit.running(next_check_at=now + 1)
    await store.succeed([Success(done.task_id, done.token, None)])
    found = await store.overdue(ALL_SHARDS, now + 1, None, 10)
    assert {task.task_id for task in found} == {
        running.task_id, pending.task_id, created.task_id,
    }  # fmt: skip
    shard = shard_of(running.task_id)
    mine = await store.overdue([shard], now + 1, None, 10)
    assert running.task_id in {task.task_id for task in mine}
    assert {shard_of(task.task_id) for task in mine} == {shard}


async def test_defer_moves_the_check_of_that_version_only(store: Store, kit: Any) -> None:
    now = await store.now()
    first, second = await kit.many(2)
    await store.defer([(first.task_id, 1, now + 77_000), (second.task_id, 2, now + 77_000)])
    assert (await kit.stored(first.task_id)).next_check_at == now + 77_000
    assert (await kit.stored(first.task_id)).version == 1
    assert (await kit.stored(second.task_id)).next_check_at == second.next_check_at
    await store.defer([])


async def test_republish_moves_only_the_time(store: Store, kit: Any, advance: Any) -> None:
    task = await kit.inserted()
    before = await kit.stored(task.task_id)
    running = await kit.running()
    advance(3_000)
    unknown = kit.uuid7(await store.now())
    now = await store.now()
    answers = await store.republish(
        [(running.task_id, 1), (task.task_id, 1), (task.task_id, 2), (unknown, 1)]
    )
    assert [answer is None for answer in answers] == [True, False, True, True]
    ref = answers[1]
    assert ref is not None
    assert ref.published_at >= now
    assert ref[:5] == (task.task_id, 1, "default/work", 5, task.due_at)
    after = await kit.stored(task.task_id)
    assert (after.version, after.published_at) == (1, ref.published_at)
    assert (after.ready_at, after.next_check_at) == (before.ready_at, before.next_check_at)
    assert await store.republish([]) == []


async def test_pending_check_is_due_plus_grace(store: Store, kit: Any) -> None:
    """The engine's rule that `due` of a store may build on."""
    task = await kit.inserted(due_in=4_000)
    assert (await kit.stored(task.task_id)).next_check_at == task.due_at + GRACE_MS
