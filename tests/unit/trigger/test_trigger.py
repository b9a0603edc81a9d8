"""The trigger: never early, nothing lost, in batches, and calm when the store is away."""

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring_server.batching import PER_ITEM_MS
from mainspring_server.clock import VirtualClock
from mainspring_server.domain.errors import Unavailable
from mainspring_server.domain.task import SHARDS, ReadyAnswer, ReadyRef, ReadyState
from mainspring_server.store.port import DueEntry
from mainspring_server.trigger.pager import Pager
from mainspring_server.trigger.service import (
    BATCH,
    BEHIND_MS,
    BROKEN_MS,
    MAX_WAIT_MS,
    RETRY_MS,
    TriggerService,
)
from mainspring_server.wheel.polled import PolledWheel

AWAY = Unavailable("STORE_UNAVAILABLE", "the store is away")


class Tasks:
    """An engine and its store: PENDING tasks by due time; a batch takes `cost_ms` to commit."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.behind_ms = 0
        self.cost_ms = 0
        self.away = False
        self.poison: bytes | None = None
        self.pending: dict[bytes, DueEntry] = {}
        self.ready: dict[bytes, int] = {}
        self.batches: list[list[bytes]] = []

    def put(self, *entries: DueEntry) -> None:
        self.pending.update({e.task_id: e for e in entries})

    async def due(self, shards: Sequence[int], until: int, limit: int) -> list[DueEntry]:
        if self.away:
            raise AWAY
        found = [e for e in self.pending.values() if e.due_at <= until]
        return sorted(found, key=lambda e: (e.due_at, e.task_id))[:limit]

    async def make_ready(self, ids: list[bytes]) -> list[ReadyAnswer]:
        self.batches.append(ids)
        if self.away:
            raise AWAY
        if self.poison in ids:
            raise ValueError("a row that no code expects")
        self.clock.advance(self.cost_ms)
        return [self._swap(task_id) for task_id in ids]

    def _swap(self, task_id: bytes) -> ReadyAnswer:
        now = self.clock.now() - self.behind_ms
        ref = ReadyRef(task_id, 2, "default/work", 5, now, now)
        if task_id in self.ready:
            return ReadyAnswer(ReadyState.ALREADY, ref, None)
        item = self.pending.get(task_id)
        if item is None:
            return ReadyAnswer(ReadyState.STALE, None, None)
        if item.due_at > now:
            return ReadyAnswer(ReadyState.EARLY, None, item.due_at)
        del self.pending[task_id]
        self.ready[task_id] = self.clock.now()
        return ReadyAnswer(ReadyState.APPLIED, ref, None)


class Rig:
    """A trigger over a polled wheel, stepped by hand."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.start = self.clock.now()
        self.tasks = Tasks(self.clock)
        self.wheel = PolledWheel(self.tasks, self.clock)
        self.trigger = TriggerService(self.tasks, self.wheel, self.clock)

    async def open(self) -> None:
        await self.wheel.open(range(SHARDS))
        await self.trigger.run_once()
        self.wheel.changed.clear()

    async def submit(self, *entries: DueEntry) -> None:
        self.tasks.put(*entries)
        await self.wheel.add(entries)

    async def run(self, until: int) -> int:
        """Pass after pass, at the times that the trigger asks for; answers their number."""
        for passes in itertools.count(1):
            wake = await self.trigger.run_once()
            if wake is None or wake > until:
                self.clock.advance(max(until - self.clock.now(), 0))
                return passes
            self.clock.advance(max(wake - self.clock.now(), 0))
        raise AssertionError

    @property
    def fired(self) -> dict[int, int]:
        """Task number -> ms after the start."""
        ready = self.tasks.ready.items()
        return {int.from_bytes(task_id, "big"): at - self.start for task_id, at in ready}


@pytest.fixture
async def rig() -> Rig:
    rig = Rig()
    await rig.open()
    return rig


def entry(due: int, name: int = 0, priority: int = 5) -> DueEntry:
    return DueEntry(due, priority, name.to_bytes(16, "big"))


async def test_nothing_to_do_waits_for_a_hint(rig: Rig) -> None:
    assert await rig.trigger.run_once() is None
    assert rig.tasks.batches == []
    assert rig.trigger.watermark() == rig.clock.now()


async def test_fires_at_the_due_millisecond(rig: Rig) -> None:
    await rig.submit(entry(rig.start + 700, 1), entry(rig.start + 300, 2))
    await rig.run(rig.start + 5_000)
    assert rig.fired == {1: 700, 2: 300}
    assert rig.wheel.next_due() is None


async def test_an_idle_trigger_does_not_linger(rig: Rig) -> None:
    await rig.submit(entry(rig.start, 1))
    await rig.trigger.run_once()
    assert rig.fired == {1: 0}


async def test_an_idle_pass_costs_the_next_task_nothing(rig: Rig) -> None:
    await rig.submit(entry(rig.start + 1, 1))
    assert await rig.trigger.run_once() == rig.start + 1
    rig.clock.advance(1)
    await rig.trigger.run_once()
    assert rig.fired == {1: 1}


async def test_what_comes_right_after_a_batch_makes_up_the_next(rig: Rig) -> None:
    await rig.submit(entry(rig.start, 1))
    await rig.trigger.run_once()
    await rig.submit(entry(rig.start, 2))
    assert await rig.trigger.run_once() == rig.start + PER_ITEM_MS
    await rig.submit(entry(rig.start + 2, 3))
    await rig.run(rig.start + 100)
    assert [len(ids) for ids in rig.tasks.batches] == [1, 2]
    assert rig.fired == {1: 0, 2: PER_ITEM_MS, 3: PER_ITEM_MS}


async def test_no_gap_after_a_full_batch(rig: Rig) -> None:
    await rig.submit(*(entry(rig.start + 10, i) for i in range(2 * BATCH + 1)))
    await rig.run(rig.start + 10)
    assert [len(ids) for ids in rig.tasks.batches] == [BATCH, BATCH, 1]
    assert set(rig.fired.values()) == {10}


async def test_a_second_of_2000_tasks_in_batches_of_a_few_ms(rig: Rig) -> None:
    rig.tasks.cost_ms = 3
    due = {i: 1_000 + i // 2 for i in range(2_000)}
    await rig.submit(*(entry(rig.start + ms, i) for i, ms in due.items()))
    await rig.run(rig.start + 3_000)
    fired = rig.fired
    late = sorted(fired[i] - ms for i, ms in due.items())
    assert late[0] >= 0
    assert late[1_980] <= 20
    assert len(rig.tasks.batches) <= 200


@given(
    delays=st.lists(st.integers(-500, 3_000), max_size=60),
    cost_ms=st.integers(0, 30),
)
def test_never_early_and_nothing_lost(delays: list[int], cost_ms: int) -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.open()
        rig.tasks.cost_ms = cost_ms
        await rig.submit(*(entry(rig.start + ms, i) for i, ms in enumerate(delays)))
        await rig.run(rig.start + 4_000)
        assert len(rig.fired) == len(delays)
        assert all(rig.fired[i] >= ms for i, ms in enumerate(delays))
        assert all(rig.fired[i] - max(ms, 0) <= 2 * cost_ms + 5 for i, ms in enumerate(delays))

    asyncio.run(scenario())


async def test_a_moved_task_fires_when_the_store_says(rig: Rig) -> None:
    await rig.wheel.add([entry(rig.start + 10, 1, 3)])
    rig.tasks.put(entry(rig.start + 400, 1, 3))
    await rig.run(rig.start + 1_000)
    assert rig.fired == {1: 400}
    assert len(rig.tasks.batches) == 2
    assert rig.wheel.next_due() is None


async def test_a_task_moved_beyond_the_horizon_leaves_the_wheel(rig: Rig) -> None:
    await rig.wheel.add([entry(rig.start, 1)])
    rig.tasks.put(entry(rig.start + 400 * 86_400_000, 1))
    await rig.run(rig.start + 100)
    assert rig.wheel.next_due() is None


@pytest.mark.parametrize("known", [False, True])
async def test_stale_and_already_ready_entries_leave_the_wheel(rig: Rig, known: bool) -> None:
    if known:
        rig.tasks.ready[entry(0, 1).task_id] = rig.start
    await rig.wheel.add([entry(rig.start, 1)])
    assert await rig.run(rig.start + 1_000) <= 2
    assert rig.wheel.next_due() is None


async def test_a_store_whose_clock_is_behind_is_asked_again_calmly(rig: Rig) -> None:
    rig.tasks.behind_ms = 90
    await rig.submit(entry(rig.start + 100, 1))
    await rig.run(rig.start + 1_000)
    assert 190 <= rig.fired[1] <= 190 + BEHIND_MS
    assert len(rig.tasks.batches) <= 2 + 90 // BEHIND_MS


async def test_an_unavailable_store_keeps_everything_and_is_not_hammered(rig: Rig) -> None:
    await rig.submit(*(entry(rig.start + i, i) for i in range(50)))
    rig.tasks.away = True
    for _ in range(500):
        # Hints keep coming in and wake the trigger.
        await rig.wheel.add([entry(rig.start - 1, 99)])
        await rig.trigger.run_once()
        rig.clock.advance(10)
    assert len(rig.tasks.batches) <= 5_000 // RETRY_MS + 1
    assert rig.trigger.watermark() == rig.start - 1
    rig.tasks.away = False
    await rig.run(rig.clock.now() + RETRY_MS)
    assert len(rig.fired) == 50
    assert rig.trigger.watermark() == rig.clock.now()


async def test_one_bad_task_does_not_hold_up_the_others(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.tasks.poison = entry(0, 3).task_id
    await rig.submit(*(entry(rig.start + i % 7, i) for i in range(200)))
    await rig.run(rig.start + 30 * BROKEN_MS)
    assert set(rig.fired) == set(range(200)) - {3}
    assert rig.tasks.poison.hex() in caplog.text
    assert len(rig.tasks.batches) <= 30


async def test_full_batches_return_after_a_bad_task(rig: Rig) -> None:
    rig.tasks.poison = entry(0, 0).task_id
    await rig.submit(*(entry(rig.start, i) for i in range(300)))
    await rig.run(rig.start + 30 * BROKEN_MS)
    await rig.submit(*(entry(rig.clock.now() + 10, i) for i in range(1_000, 2_000)))
    await rig.run(rig.clock.now() + 5_000)
    assert len(rig.tasks.batches[-1]) > 400


async def test_a_failing_wheel_is_tried_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    await rig.wheel.open(())
    await rig.wheel.open(range(SHARDS))
    rig.tasks.put(entry(rig.start, 1))
    rig.tasks.away = True
    assert await rig.trigger.run_once() == rig.start + RETRY_MS
    assert "the store is away" in caplog.text
    rig.tasks.away = False
    await rig.run(rig.start + RETRY_MS)
    assert rig.fired == {1: RETRY_MS}


async def test_watermark_is_the_oldest_unfired_due_time(rig: Rig) -> None:
    await rig.submit(entry(rig.start + 10, 1), entry(rig.start + 60_000, 2))
    assert rig.trigger.watermark() == rig.start
    rig.clock.advance(500)
    assert rig.trigger.watermark() == rig.start + 10
    await rig.trigger.run_once()
    assert rig.trigger.watermark() == rig.start + 500


async def test_sleeps_no_longer_than_a_stepped_clock_may_hide(rig: Rig) -> None:
    await rig.submit(entry(rig.start + 3_600_000, 1))
    assert await rig.trigger.run_once() == rig.start + MAX_WAIT_MS


async def test_a_hint_wakes_the_running_trigger(rig: Rig) -> None:
    await rig.trigger.start()
    await rig.trigger.probe.next()
    await rig.submit(entry(rig.start, 1))
    await rig.trigger.probe.next()
    assert rig.fired == {1: 0}
    await rig.trigger.stop()


async def test_the_running_trigger_wakes_when_due(rig: Rig) -> None:
    await rig.submit(entry(rig.start + 50, 1))
    await rig.trigger.start()
    await rig.trigger.probe.next()
    assert rig.fired == {}
    rig.clock.advance(50)
    await rig.trigger.probe.next()
    assert rig.fired == {1: 50}
    await rig.trigger.stop()


async def test_pager_and_trigger_together_fire_what_nobody_hinted(rig: Rig) -> None:
    pager = Pager(rig.wheel, rig.clock)
    rig.tasks.put(*(entry(rig.start + 100 * i, i) for i in range(40)))
    for _ in range(10):
        poll_at = await pager.run_once()
        assert poll_at is not None
        await rig.run(poll_at)
    assert rig.fired == {i: 100 * i for i in range(40)}


async def test_the_pager_tries_again_when_the_store_is_back(rig: Rig) -> None:
    pager = Pager(rig.wheel, rig.clock)
    rig.tasks.away = True
    assert await pager.run_once() == rig.start + 250
    rig.tasks.away = False
    assert await pager.run_once() == rig.start + 500
