"""What every wheel must do. An adapter is added by one more maker."""

import uuid
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from mainspring_server.clock import VirtualClock
from mainspring_server.domain.task import SHARDS, shard_of
from mainspring_server.store.port import DueDigest, DueEntry, id_mark
from mainspring_server.wheel.ladder import LadderWheel
from mainspring_server.wheel.polled import PolledWheel
from mainspring_server.wheel.port import Wheel
from mainspring_server.wheel.redis import RedisWheel

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


class PendingRows:
    """The part of a store that a wheel reads: its PENDING rows."""

    def __init__(self) -> None:
        self.rows: dict[bytes, DueEntry] = {}

    def put(self, entries: Sequence[DueEntry]) -> None:
        self.rows.update({e.task_id: e for e in entries})

    def take(self, entries: Sequence[DueEntry]) -> None:
        for item in entries:
            self.rows.pop(item.task_id, None)

    async def due(
        self, shards: Sequence[int], until: int, limit: int, since: int = 0
    ) -> list[DueEntry]:
        found = [e for e in self.rows.values() if since <= e.due_at <= until]
        found = [e for e in found if shard_of(e.task_id) in shards]
        return sorted(found, key=lambda e: (e.due_at, e.task_id))[:limit]

    async def due_digest(self, shards: Sequence[int], since: int, until: int) -> list[DueDigest]:
        counted: dict[tuple[int, int], tuple[int, int]] = {}
        for e in await self.due(shards, until, len(self.rows), since):
            key = (shard_of(e.task_id), e.due_at // 1_000)
            count, mark = counted.get(key, (0, 0))
            counted[key] = (count + 1, mark ^ id_mark(e.task_id))
        return [DueDigest(*key, *value) for key, value in counted.items()]


Asked = pytest.FixtureRequest


def make_polled(rows: PendingRows, clock: VirtualClock, _asked: Asked) -> Wheel:
    return PolledWheel(rows, clock, page=500)


def make_redis(rows: PendingRows, clock: VirtualClock, asked: Asked) -> RedisWheel:
    url = asked.getfixturevalue("services").wheel
    return RedisWheel(url, rows, clock, prefix=f"t-{uuid.uuid4().hex}")


def make_ladder(rows: PendingRows, clock: VirtualClock, asked: Asked) -> Wheel:
    return LadderWheel(make_redis(rows, clock, asked), PolledWheel(rows, clock, page=500), clock)


MAKERS: dict[str, Callable[[PendingRows, VirtualClock, Asked], Wheel]] = {
    "ladder": make_ladder,
    "polled": make_polled,
    "redis": make_redis,
}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def rows() -> PendingRows:
    return PendingRows()


@pytest.fixture(params=sorted(MAKERS))
async def wheel(
    request: pytest.FixtureRequest, rows: PendingRows, clock: VirtualClock
) -> AsyncIterator[Wheel]:
    """A wheel open with all shards, filled once from a store without rows."""
    wheel = MAKERS[request.param](rows, clock, request)
    await wheel.open(range(SHARDS))
    await wheel.refill(clock.now())
    await wheel.peek(clock.now(), 1)
    wheel.changed.clear()
    yield wheel
    await wheel.close()


def entry(due: int, name: int = 0, priority: int = 5) -> DueEntry:
    return DueEntry(due, priority, name.to_bytes(16, "big"))


async def run(
    wheel: Wheel, rows: PendingRows, clock: VirtualClock, until: int, longest: int = SECOND
) -> list[tuple[int, DueEntry]]:
    """Fire as trigger and pager do, waking when the wheel asks; answers (when, entry)."""
    fired: list[tuple[int, DueEntry]] = []
    refill_at = clock.now()
    while True:
        now = clock.now()
        if now >= refill_at:
            refill_at = await wheel.refill(now)
        while found := await wheel.peek(now, 100):
            fired += [(now, item) for item in found]
            rows.take(found)
            await wheel.remove(found)
        if now >= until:
            return fired
        due = wheel.next_due()
        wake = min(until, refill_at, now + longest if due is None else max(due, now + 1))
        clock.advance(wake - now)


def test_names_its_rung(wheel: Wheel) -> None:
    assert wheel.rung in MAKERS


async def test_empty(wheel: Wheel, clock: VirtualClock) -> None:
    assert await wheel.peek(clock.now(), 10) == []
    await wheel.add([])
    await wheel.remove([entry(clock.now())])
    assert await wheel.refill(clock.now()) > clock.now()


@pytest.mark.parametrize("delay", [0, 1, 999, SECOND, MINUTE, MINUTE + 1, HOUR, 23 * HOUR])
async def test_fires_in_its_millisecond_and_not_before(
    wheel: Wheel, rows: PendingRows, clock: VirtualClock, delay: int
) -> None:
    item = entry(clock.now() + delay)
    rows.put([item])
    await wheel.add([item])
    due = wheel.next_due()
    assert due is not None
    assert due <= item.due_at
    clock.advance(max(delay - 2_000, 0))
    assert await run(wheel, rows, clock, item.due_at + 10) == [(item.due_at, item)]


async def test_peek_takes_nothing_out(wheel: Wheel, clock: VirtualClock) -> None:
    await wheel.add([entry(clock.now())])
    for _ in range(3):
        assert await wheel.peek(clock.now(), 10) == [entry(clock.now())]
    await wheel.remove([entry(clock.now())])
    assert await wheel.peek(clock.now(), 10) == []


async def test_order_is_due_time_then_priority(wheel: Wheel, clock: VirtualClock) -> None:
    now = clock.now()
    entries = [entry(now + (i * 7) % 5, i, (i * 3) % 10) for i in range(50)]
    await wheel.add(entries)
    clock.advance(10)
    everything = sorted((e.due_at, e.priority) for e in entries)
    found = await wheel.peek(clock.now(), 100)
    assert [(e.due_at, e.priority) for e in found] == everything
    found = await wheel.peek(clock.now(), 7)
    assert [(e.due_at, e.priority) for e in found] == everything[:7]


async def test_the_past_is_due_now(wheel: Wheel, clock: VirtualClock) -> None:
    await wheel.add([entry(clock.now() - 1_500)])
    assert await wheel.peek(clock.now(), 10) == [entry(clock.now() - 1_500)]


async def test_add_is_idempotent(wheel: Wheel, clock: VirtualClock) -> None:
    item = entry(clock.now() + 5)
    await wheel.add([item, item])
    await wheel.add([item])
    clock.advance(5)
    assert await wheel.peek(clock.now(), 10) == [item]
    await wheel.remove([item, item])
    assert await wheel.peek(clock.now(), 10) == []


async def test_remove_keeps_an_entry_that_stands_otherwise(
    wheel: Wheel, clock: VirtualClock
) -> None:
    now = clock.now()
    await wheel.add([entry(now)])
    await wheel.remove([entry(now + 1), entry(now, priority=4)])
    assert await wheel.peek(now, 10) == [entry(now)]


async def test_a_hint_without_a_row_may_fire_but_not_early(
    wheel: Wheel, rows: PendingRows, clock: VirtualClock
) -> None:
    item = entry(clock.now() + 1_500)
    await wheel.add([item])
    fired = await run(wheel, rows, clock, clock.now() + 3_000)
    assert all(when >= item.due_at for when, _ in fired)


async def test_a_lost_hint_is_refilled_in_time(
    wheel: Wheel, rows: PendingRows, clock: VirtualClock
) -> None:
    entries = [entry(clock.now() + 2_500 + i * 97, i) for i in range(100)]
    rows.put(entries)
    fired = await run(wheel, rows, clock, clock.now() + 15_000, longest=100)
    assert sorted(e.task_id for _, e in fired) == [e.task_id for e in entries]
    assert all(0 <= when - e.due_at <= SECOND for when, e in fired)


async def test_refill_brings_an_overdue_row(
    wheel: Wheel, rows: PendingRows, clock: VirtualClock
) -> None:
    rows.put([entry(clock.now() - HOUR)])
    await wheel.refill(clock.now())
    assert await wheel.peek(clock.now(), 10) == [entry(clock.now() - HOUR)]


async def test_refill_and_hint_are_one_entry(
    wheel: Wheel, rows: PendingRows, clock: VirtualClock
) -> None:
    item = entry(clock.now() + 300)
    rows.put([item])
    await wheel.refill(clock.now())
    await wheel.add([item])
    await wheel.refill(clock.now())
    assert await run(wheel, rows, clock, clock.now() + 2_000) == [(item.due_at, item)]


async def test_a_task_moved_forward_fires_at_the_new_time(
    wheel: Wheel, rows: PendingRows, clock: VirtualClock
) -> None:
    later, sooner = entry(clock.now() + HOUR), entry(clock.now() + 2_000)
    rows.put([later])
    await wheel.add([later])
    rows.put([sooner])
    await wheel.add([sooner])
    assert await run(wheel, rows, clock, clock.now() + 5_000) == [(sooner.due_at, sooner)]


async def test_only_the_open_shards_are_answered(
    wheel: Wheel, rows: PendingRows, clock: VirtualClock
) -> None:
    entries = [entry(clock.now(), i) for i in range(SHARDS)]
    rows.put(entries)
    await wheel.open([3, 5])
    await wheel.refill(clock.now())
    await wheel.add(entries)
    assert [e.task_id[15] for e in await wheel.peek(clock.now(), 100)] == [3, 5]


async def test_shards_come_and_go(wheel: Wheel, rows: PendingRows, clock: VirtualClock) -> None:
    entries = [entry(clock.now(), i) for i in range(SHARDS)]
    rows.put(entries)
    await wheel.add(entries)
    await wheel.open(range(32))
    assert len(await wheel.peek(clock.now(), 100)) == 32
    await wheel.open([])
    assert await wheel.peek(clock.now(), 100) == []
    await wheel.open(range(SHARDS))
    await wheel.refill(clock.now())
    assert len(await wheel.peek(clock.now(), 100)) == SHARDS


async def test_changed_is_set_for_a_sooner_entry_only(wheel: Wheel, clock: VirtualClock) -> None:
    now = clock.now()
    await wheel.add([entry(now + 900, 1)])
    assert wheel.changed.is_set()
    wheel.changed.clear()
    await wheel.add([entry(now + 500, 2)])
    assert wheel.changed.is_set()


async def test_next_due_never_lies_behind_the_soonest(wheel: Wheel, clock: VirtualClock) -> None:
    now = clock.now()
    for i, delay in enumerate((HOUR, 50 * MINUTE, 70 * SECOND, 800, 20)):
        await wheel.add([entry(now + delay, i)])
        due = wheel.next_due()
        assert due is not None
        assert due <= now + delay


async def test_a_sleep_of_hours_loses_nothing(
    wheel: Wheel, rows: PendingRows, clock: VirtualClock
) -> None:
    entries = [entry(clock.now() + i * 61_007, i) for i in range(200)]
    rows.put(entries)
    await wheel.add(entries)
    clock.advance(10 * HOUR)
    fired = await run(wheel, rows, clock, clock.now() + 10_000)
    assert sorted(e.task_id for _, e in fired) == [e.task_id for e in entries]


async def test_a_herd_fires_once_and_whole(
    wheel: Wheel, rows: PendingRows, clock: VirtualClock
) -> None:
    herd = [entry(clock.now() + 3_000, i, i % 10) for i in range(2_000)]
    rows.put(herd)
    await wheel.add(herd[::2])
    fired = await run(wheel, rows, clock, clock.now() + 5_000, longest=50)
    assert len(fired) == len({e.task_id for _, e in fired}) == len(herd)
    assert {when for when, _ in fired} == {herd[0].due_at}
