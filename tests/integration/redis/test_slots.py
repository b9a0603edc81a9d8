"""Placing, cascading, removing: the wheel on virtual time over a real Redis."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from mainspring_server.clock import VirtualClock
from mainspring_server.domain.task import SHARDS
from mainspring_server.store.port import DueEntry, Store
from mainspring_server.wheel.hierarchy import Level, Slot, score_of
from mainspring_server.wheel.redis import RedisWheel
from mainspring_server.wheel.redis.keys import Keys, Place, group_of
from mainspring_server.wheel.redis.slots import CHUNK
from tests.integration.redis.conftest import entry_of, pending

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


async def put(wheel: RedisWheel, store: Store, clock: VirtualClock, *delays: int) -> list[Any]:
    """Tasks due after these delays, stored and hinted, and the hints sent."""
    now = clock.now()
    tasks = [pending(now, now + delay) for delay in delays]
    await store.insert(tasks)
    await wheel.add([entry_of(task) for task in tasks])
    await wheel._outbox.flush(everything=True)
    return tasks


async def test_a_slot_holds_ids_with_milliseconds_and_priority(
    wheel: RedisWheel, glance: Any, clock: VirtualClock
) -> None:
    due = clock.now() + 30 * SECOND + 123
    await wheel.add([DueEntry(due, 7, bytes(15) + b"\x05")])
    await wheel._outbox.flush(everything=True)
    assert await glance.slots() == {f"L0:{due // SECOND}": {bytes(15) + b"\x05": 1237.0}}


async def test_levels_by_distance(wheel: RedisWheel, glance: Any, clock: VirtualClock) -> None:
    now = clock.now()
    dues = [now + delay for delay in (30 * SECOND, 30 * MINUTE, 20 * HOUR, 50 * HOUR)]
    await wheel.add([DueEntry(due, 5, n.to_bytes(16, "big")) for n, due in enumerate(dues)])
    await wheel._outbox.flush(everything=True)
    assert set(await glance.slots()) == {
        f"L0:{dues[0] // SECOND}",
        f"L1:{dues[1] // MINUTE}",
        f"L2:{dues[2] // HOUR}",
    }  # the last lies beyond the horizon


async def test_the_hash_tag_keeps_a_group_together(prefix: str) -> None:
    keys = Keys(prefix)
    place = Place(3, Slot(Level.HOURS, 17))
    assert keys.slot(place) == f"{{{prefix}/3}}:L2:17"
    assert keys.filled(3).startswith(f"{{{prefix}/3}}:")
    assert keys.place(keys.slot(place).encode()) == place
    assert {group_of(bytes(15) + bytes([shard])) for shard in range(SHARDS)} == {0, 1, 2, 3}


async def test_everything_fires_in_its_millisecond_over_all_boundaries(
    wheel: RedisWheel, turner: Any, glance: Any, clock: VirtualClock, still_store: Store
) -> None:
    """From just before an hour, and a day, begins; the slots are empty afterwards."""
    clock.advance(DAY - clock.now() % DAY - 90 * SECOND - 7)
    delays = [n * 7_919 + 41 for n in range(18)]
    delays += [MINUTE * n + edge for n in (1, 2) for edge in (-1, 0, 1)]
    delays += [90 * SECOND + edge for edge in (-1, 0, 7, 8, 1_000)]
    delays += [HOUR + 90 * SECOND + edge for edge in (-1, 0, 7, 8)]
    tasks = await put(wheel, still_store, clock, *delays)
    await turner.to(clock.now() + 150 * SECOND)
    clock.advance(HOUR - 70 * SECOND)
    await turner.to(max(task.due_at for task in tasks))
    assert turner.fired == {task.task_id: task.due_at for task in tasks}
    await turner.to(clock.now() + 10 * SECOND)
    assert await glance.slots() == {}


async def test_a_cascade_of_many_chunks(
    wheel: RedisWheel, turner: Any, glance: Any, clock: VirtualClock, still_store: Store
) -> None:
    minute = (
        90 * MINUTE - clock.now() % MINUTE
    )  # begins so far from now; a slot of the hours' level
    tasks = await put(wheel, still_store, clock, *([minute + 30 * SECOND] * (3 * CHUNK + 5)))
    assert [key[:2] for key in await glance.slots()] == ["L2"]
    clock.advance(minute - 10 * SECOND)
    await turner.to(clock.now() + 41 * SECOND)
    assert turner.fired == {task.task_id: task.due_at for task in tasks}
    await turner.to(clock.now() + 10 * SECOND)
    assert await glance.slots() == {}


async def test_a_lost_add_behind_a_stale_member_is_seen(
    wheel: RedisWheel, turner: Any, clock: VirtualClock, still_store: Store
) -> None:
    """One member too many and one too few: the counts are equal, the marks are not."""
    now = clock.now()
    due = now + 30 * SECOND
    stale = DueEntry(due, 5, bytes(15) + b"\x07")
    task = pending(now, due)
    task.task_id = task.task_id[:15] + b"\x07"
    await still_store.insert([task])
    await wheel.add([stale])
    await turner.to(due)
    assert turner.fired == {task.task_id: due}


async def test_a_member_put_back_with_another_score_is_not_removed(
    wheel: RedisWheel, glance: Any, clock: VirtualClock
) -> None:
    due = clock.now() + 30 * SECOND
    slot, task_id = Slot(Level.SECONDS, due // SECOND), bytes(16)
    await wheel.add([DueEntry(due + 500, 5, task_id)])
    await wheel._outbox.flush(everything=True)
    wheel._outbox.remove(Place(0, slot), [(task_id, score_of(slot, due, 5))])
    await wheel._outbox.flush(everything=True)
    assert list((await glance.slots()).values()) == [{task_id: 5005.0}]
    wheel._outbox.remove(Place(0, slot), [(task_id, 5005)])
    await wheel._outbox.flush(everything=True)
    assert await glance.slots() == {}


async def test_an_early_member_leaves_its_old_slot_for_its_own(
    wheel: RedisWheel, turner: Any, glance: Any, clock: VirtualClock, still_store: Store
) -> None:
    """The task was moved; what stands at its old time is dropped, what stands at the new fires."""
    now = clock.now()
    old = DueEntry(now + 20 * SECOND, 5, (task := pending(now, now + 40 * SECOND)).task_id)
    await still_store.insert([task])
    await wheel.add([old])
    await wheel._outbox.flush(everything=True)
    await turner.to(old.due_at - 1)
    clock.advance(1)
    (found,) = await wheel.peek(clock.now(), 10)
    assert found == old
    await wheel.add([entry_of(task)])  # as the trigger does when the store says: early
    await wheel.remove([old])
    await turner.to(clock.now() + 10 * SECOND)
    assert list((await glance.slots()).values()) == [{task.task_id: 5.0}]
    await turner.to(task.due_at + 10 * SECOND)
    assert turner.fired == {task.task_id: task.due_at}
    assert await glance.slots() == {}


async def test_members_that_arrive_late_fire_and_leave(
    wheel: RedisWheel, turner: Any, redis: Redis, prefix: str, glance: Any, clock: VirtualClock
) -> None:
    """A stalled process may add to a slot that was read; nobody else knows of these."""
    store, now = turner.store, clock.now()
    await turner.to(now + 5 * SECOND)
    keys, tasks = Keys(prefix), []
    for delay in (-4 * SECOND, 0, SECOND, 2 * SECOND):
        task = pending(now, clock.now() + delay)
        await store.insert([task])
        slot = Slot(Level.SECONDS, task.due_at // SECOND)
        key = keys.slot(Place(group_of(task.task_id), slot))
        await redis.zadd(key, {task.task_id: score_of(slot, task.due_at, 5)})
        tasks.append(task)
    await turner.to(clock.now() + 5 * SECOND)
    assert set(turner.fired) == {task.task_id for task in tasks}
    assert all(turner.fired[t.task_id] - max(t.due_at, now + 5_000) <= 2_500 for t in tasks)
    await turner.to(clock.now() + 70 * SECOND)
    assert await glance.slots() == {}


async def test_the_horizon_is_brought_in(
    wheel: RedisWheel, turner: Any, glance: Any, clock: VirtualClock, still_store: Store
) -> None:
    (task,) = await put(wheel, still_store, clock, DAY + HOUR)
    assert await glance.slots() == {}
    await turner.to(clock.now() + 20 * SECOND)
    assert await glance.slots() == {}
    clock.advance(2 * HOUR)
    await turner.to(clock.now() + 60 * SECOND)
    assert list((await glance.slots()).values()) == [
        {task.task_id: float(task.due_at % HOUR * 10 + 5)}
    ]


async def test_an_emptied_redis_is_filled_again(
    wheel: RedisWheel, turner: Any, redis: Redis, glance: Any, still_store: Store
) -> None:
    clock = turner.clock
    tasks = await put(
        wheel, still_store, clock, *(n * 3_700 + 10_000 for n in range(40)), 20 * HOUR
    )
    before = await glance.slots()
    await turner.to(clock.now() + SECOND)
    await redis.flushdb()
    await turner.to(clock.now() + 40 * SECOND)
    filled = await glance.slots()
    assert filled.keys() & before.keys()
    assert sum(map(len, filled.values())) == len(tasks) - len(turner.fired)
    await turner.to(tasks[-2].due_at)
    assert turner.fired == {task.task_id: task.due_at for task in tasks[:-1]}
