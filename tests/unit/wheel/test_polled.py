"""What is particular to the polled wheel: pages, bounds, and hints that meet polls."""

import asyncio
from collections.abc import Sequence

import pytest

from mainspring_server.clock import VirtualClock
from mainspring_server.domain.task import SHARDS, shard_of
from mainspring_server.store.port import DueEntry
from mainspring_server.wheel.polled import HORIZON_MS, REMEMBER_MS, PolledWheel

ALL = range(SHARDS)


class Rows:
    """The PENDING rows of a store, and how often and for how much it was asked."""

    def __init__(self) -> None:
        self.rows: dict[bytes, DueEntry] = {}
        self.limits: list[int] = []
        self.answering = asyncio.Event()
        self.answering.set()
        self.asked = asyncio.Event()

    def put(self, *entries: DueEntry) -> None:
        self.rows.update({e.task_id: e for e in entries})

    async def due(self, shards: Sequence[int], until: int, limit: int) -> list[DueEntry]:
        self.limits.append(limit)
        found = [e for e in self.rows.values() if e.due_at <= until]
        found = [e for e in found if shard_of(e.task_id) in shards]
        self.asked.set()
        await self.answering.wait()
        return sorted(found, key=lambda e: (e.due_at, e.task_id))[:limit]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
async def wheel(rows: Rows, clock: VirtualClock) -> PolledWheel:
    wheel = PolledWheel(rows, clock, page=10, cap=40)
    await wheel.open(ALL)
    await wheel.refill(clock.now())
    wheel.changed.clear()
    rows.limits.clear()
    return wheel


def entry(due: int, name: int = 0, priority: int = 5) -> DueEntry:
    return DueEntry(due, priority, name.to_bytes(16, "big"))


async def drain(wheel: PolledWheel, rows: Rows, now: int) -> list[DueEntry]:
    """Fire everything that is due, as a trigger does."""
    fired: list[DueEntry] = []
    while found := await wheel.peek(now, 4):
        for item in found:
            rows.rows.pop(item.task_id, None)
        await wheel.remove(found)
        fired += found
    return fired


@pytest.mark.parametrize(
    "settings",
    [{"poll_ms": 0}, {"poll_ms": 2_000, "ahead_ms": 2_000}, {"page": 0}, {"page": 11, "cap": 10}],
)
def test_settings_that_cannot_work_are_refused(
    rows: Rows, clock: VirtualClock, settings: dict[str, int]
) -> None:
    with pytest.raises(ValueError, match="must"):
        PolledWheel(rows, clock, **settings)


async def test_polls_at_its_interval(wheel: PolledWheel, clock: VirtualClock) -> None:
    assert await wheel.refill(clock.now()) == clock.now() + 500


async def test_horizon(wheel: PolledWheel, clock: VirtualClock) -> None:
    await wheel.add([entry(clock.now() + HORIZON_MS + 1, 1), entry(clock.now() + HORIZON_MS, 2)])
    assert wheel.next_due() == clock.now() + HORIZON_MS


async def test_a_herd_beyond_the_page_is_read_page_by_page(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock
) -> None:
    herd = [entry(clock.now() + 1_000, i) for i in range(95)]
    rows.put(*herd)
    await wheel.refill(clock.now())
    clock.advance(1_000)
    assert await drain(wheel, rows, clock.now()) == herd
    assert wheel.next_due() is None
    assert len(rows.limits) <= 12


async def test_a_full_page_says_from_when_on_the_store_knows_more(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock
) -> None:
    rows.put(*(entry(clock.now() + i, i) for i in range(30)))
    await wheel.refill(clock.now())
    first = await wheel.peek(clock.now() + 9, 100)
    assert [e.due_at - clock.now() for e in first] == list(range(10))
    await wheel.remove(first)
    assert wheel.next_due() == clock.now() + 9


async def test_a_page_of_known_rows_makes_the_next_one_longer(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock
) -> None:
    rows.put(*(entry(clock.now() + 1_000 + i, i) for i in range(35)))
    for _ in range(4):
        await wheel.refill(clock.now())
    assert rows.limits == [10, 10, 20, 10]
    assert len(await wheel.peek(clock.now() + 2_000, 100)) == 20


async def test_rows_that_cannot_fire_do_not_hide_the_others(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock
) -> None:
    """PENDING rows past their deadline stay in the due index until the sweeper ends them."""
    dead = [entry(clock.now() - 100, i) for i in range(25)]
    rows.put(*dead, entry(clock.now() - 50, 99))
    await wheel.refill(clock.now())
    fired: list[DueEntry] = []
    for _ in range(10):
        found = await wheel.peek(clock.now(), 100)
        await wheel.remove(found)  # stale: the rows stay
        fired += found
    assert entry(clock.now() - 50, 99) in fired
    assert len(fired) == len(set(fired)) == 26


async def test_nothing_but_dead_rows_is_left_to_the_next_poll(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock
) -> None:
    rows.put(*(entry(clock.now() - 100, i) for i in range(60)))
    await wheel.refill(clock.now())
    for _ in range(20):
        await wheel.remove(await wheel.peek(clock.now(), 100))
    assert wheel.next_due() is None
    asked = len(rows.limits)
    assert await wheel.peek(clock.now(), 100) == []
    assert len(rows.limits) == asked


async def test_a_row_read_before_its_swap_does_not_come_back(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock
) -> None:
    item = entry(clock.now())
    rows.put(item)
    await wheel.add([item])
    rows.asked.clear()
    rows.answering.clear()
    poll = asyncio.create_task(wheel.refill(clock.now()))
    await rows.asked.wait()
    await wheel.remove(await wheel.peek(clock.now(), 10))
    rows.answering.set()
    await poll
    assert await wheel.peek(clock.now(), 10) == []


async def test_what_was_removed_is_believed_again_later(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock
) -> None:
    item = entry(clock.now())
    rows.put(item)
    await wheel.remove([item])
    for _ in range(3):
        await wheel.refill(clock.now())
        clock.advance(REMEMBER_MS)
    assert await wheel.peek(clock.now(), 10) == [item]


async def test_a_hint_is_believed_at_once_although_it_was_removed(
    wheel: PolledWheel, clock: VirtualClock
) -> None:
    item = entry(clock.now())
    await wheel.remove([item])
    await wheel.add([item])
    assert await wheel.peek(clock.now(), 10) == [item]


@pytest.mark.parametrize("polled_ms", [100, 900])
async def test_of_hint_and_poll_the_earlier_wins(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock, polled_ms: int
) -> None:
    """Too early is put right by make_ready; too late would be late."""
    now = clock.now()
    await wheel.add([entry(now + 500)])
    rows.put(entry(now + polled_ms))
    await wheel.refill(now)
    assert wheel.next_due() == now + min(polled_ms, 500)


async def test_hints_beyond_the_cap_are_left_to_the_polls(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock
) -> None:
    later = [entry(clock.now() + 60_000 + i, i) for i in range(50)]
    rows.put(*later)
    await wheel.add(later)
    clock.advance(59_000)
    await wheel.refill(clock.now())
    clock.advance(1_100)
    await wheel.refill(clock.now())
    assert await drain(wheel, rows, clock.now()) == later


async def test_a_hint_without_room_inside_the_window_is_loaded_when_due(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock
) -> None:
    later = [entry(clock.now() + 60_000, i) for i in range(40)]
    soon = entry(clock.now() + 10, 99)
    rows.put(*later, soon)
    await wheel.add(later)
    await wheel.add([soon])
    assert wheel.next_due() == soon.due_at
    assert wheel.changed.is_set()
    clock.advance(10)
    assert await wheel.peek(clock.now(), 10) == [soon]


async def test_at_the_cap_a_known_task_can_still_move(
    wheel: PolledWheel, clock: VirtualClock
) -> None:
    await wheel.add([entry(clock.now() + 60_000, i) for i in range(40)])
    await wheel.add([entry(clock.now() + 5, 7)])
    assert wheel.next_due() == clock.now() + 5


async def test_shards_that_come_are_read_at_the_next_peek(rows: Rows, clock: VirtualClock) -> None:
    wheel = PolledWheel(rows, clock)
    rows.put(*(entry(clock.now(), i) for i in range(4)))
    await wheel.open([1])
    assert [e.task_id[15] for e in await wheel.peek(clock.now(), 10)] == [1]
    await wheel.open([1, 2])
    assert wheel.changed.is_set()
    await wheel.remove(await wheel.peek(clock.now(), 10))
    assert [e.task_id[15] for e in await wheel.peek(clock.now(), 10)] == [2]


async def test_shards_lost_while_a_page_is_read_bring_nothing(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock
) -> None:
    rows.put(*(entry(clock.now(), i) for i in range(4)))
    rows.asked.clear()
    rows.answering.clear()
    poll = asyncio.create_task(wheel.refill(clock.now()))
    await rows.asked.wait()
    await wheel.open([3])
    rows.answering.set()
    await poll
    assert [e.task_id[15] for e in await wheel.peek(clock.now(), 10)] == [3]
    await wheel.close()
    assert await wheel.peek(clock.now(), 10) == []
    assert wheel.next_due() is None


async def test_without_shards_the_store_is_not_asked(rows: Rows, clock: VirtualClock) -> None:
    wheel = PolledWheel(rows, clock)
    await wheel.add([entry(clock.now())])
    await wheel.refill(clock.now())
    assert await wheel.peek(clock.now(), 10) == []
    assert rows.limits == []


async def test_two_peeks_past_the_mark_load_one_page(
    wheel: PolledWheel, rows: Rows, clock: VirtualClock
) -> None:
    await wheel.open(())
    await wheel.open(ALL)
    rows.put(entry(clock.now()))
    rows.asked.clear()
    rows.answering.clear()
    peeks = [asyncio.create_task(wheel.peek(clock.now(), 10)) for _ in range(2)]
    await rows.asked.wait()
    rows.answering.set()
    assert await asyncio.gather(*peeks) == [[entry(clock.now())]] * 2
    assert len(rows.limits) == 1
