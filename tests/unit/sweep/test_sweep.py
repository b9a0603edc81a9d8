"""The sweeper over a real store on virtual time: every lost step is taken again, nothing else is touched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mainspring_server.clock import VirtualClock
from mainspring_server.domain.checks import first_check
from mainspring_server.domain.leases import Beat, Seat, Want
from mainspring_server.domain.retry import RetryPolicy
from mainspring_server.domain.task import (
    AttemptOutcome,
    NewTask,
    ReadyRef,
    Status,
    Task,
    Timeouts,
)
from mainspring_server.engine import Engine
from mainspring_server.ids import mint
from mainspring_server.queue.claimed import ClaimedQueue
from mainspring_server.store.port import DueEntry
from mainspring_server.store.sqlite.store import SqliteStore
from mainspring_server.sweep.service import SweepService, SweepSettings

LANE = "default/t"


class DeafWheel:
    """A wheel that loses everything."""

    async def add(self, entries: Sequence[DueEntry]) -> None:
        return None


class LossyQueue(ClaimedQueue):
    """A ready queue that can be told which records it has lost."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store)
        self.published: list[ReadyRef] = []
        self.forgets = False

    async def publish(self, refs: Sequence[ReadyRef]) -> None:
        self.published += refs

    async def lost(self, refs: Sequence[ReadyRef]) -> list[bool]:
        return [self.forgets] * len(refs)


class Bench:
    """One sweeper and what it works on."""

    def __init__(self, path: Path) -> None:
        self.clock = VirtualClock()
        self.store = SqliteStore(str(path), self.clock)
        self.queue = LossyQueue(self.store)
        self.engine = Engine(self.store, DeafWheel(), self.queue, self.clock)  # type: ignore[arg-type]
        self.watermark: int | None = None
        self.sweep = SweepService(
            self.engine,
            self.store,
            self.clock,
            SweepSettings(hold_ms=0),
            lambda: self.watermark,
        )

    async def submit(self, delay: int = 0, **given: object) -> bytes:
        now = self.clock.now()
        status = Status.PENDING if delay else Status.READY
        task = NewTask(mint(now, 1)[0], "default", "t", "t", 5, status, now + delay, now)
        task = replace(task, **given)  # type: ignore[arg-type]
        if task.timeouts.total_ms is not None:
            task.deadline_at = task.due_at + task.timeouts.total_ms
        task.next_check_at = first_check(
            status, task.due_at, now, task.deadline_at, task.timeouts.queue_ms
        )
        await self.engine.submit([task])
        return task.task_id

    async def claim(self, lease_ms: int = 5_000, *, acked: bool = False) -> int:
        want = Want((LANE,), (Seat("w", 10),), lease_ms, acked)
        return len(await self.engine.claim([want]))

    async def pass_time(self, ms: int) -> None:
        """Let time pass as it does, with a sweep a second."""
        until = self.clock.now() + ms
        while self.clock.now() < until:
            self.clock.advance(min(1_000, until - self.clock.now()))
            await self.sweep.run_once()

    async def row(self, task_id: bytes) -> Task:
        found = (await self.store.load([task_id]))[0]
        assert found is not None
        return found


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "m.db")
    await made.store.open()
    await made.sweep.open(range(64))
    yield made
    await made.store.close()


async def test_a_task_that_the_wheel_lost_fires_within_five_seconds(bench: Bench) -> None:
    task_id = await bench.submit(10_000)
    await bench.pass_time(10_000)
    assert (await bench.row(task_id)).status is Status.PENDING
    await bench.pass_time(5_000)
    assert (await bench.row(task_id)).status is Status.READY
    assert [ref.task_id for ref in bench.queue.published] == [task_id]


async def test_a_record_that_the_ready_queue_lost_is_published_again(bench: Bench) -> None:
    task_id = await bench.submit()
    before = await bench.row(task_id)
    bench.queue.forgets = True
    await bench.pass_time(6_000)
    after = await bench.row(task_id)
    assert after.version == before.version
    assert (after.published_at or 0) > (before.published_at or 0)
    assert len(bench.queue.published) == 2


async def test_a_ready_task_whose_record_is_not_lost_is_left_alone(bench: Bench) -> None:
    task_id = await bench.submit()
    before = await bench.row(task_id)
    await bench.pass_time(20_000)
    after = await bench.row(task_id)
    assert (after.version, after.published_at) == (before.version, before.published_at)
    assert len(bench.queue.published) == 1


async def test_an_acknowledged_lease_that_expires_costs_an_attempt(bench: Bench) -> None:
    task_id = await bench.submit(retry=RetryPolicy(max_attempts=2))
    await bench.claim(60_000, acked=True)
    await bench.pass_time(59_000)
    assert (await bench.row(task_id)).status is Status.RUNNING
    await bench.pass_time(10_000)
    row = await bench.row(task_id)
    assert (row.status in (Status.PENDING, Status.READY), row.attempts) == (True, 1)
    assert [a.outcome for a in await bench.store.attempts(task_id, 0, 10)] == [AttemptOutcome.LOST]


async def test_a_grant_that_nobody_acknowledged_costs_none(bench: Bench) -> None:
    task_id = await bench.submit()
    await bench.claim()
    await bench.pass_time(9_000)
    row = await bench.row(task_id)
    assert row.status in (Status.PENDING, Status.READY)
    assert (row.attempts, row.lost_grants) == (0, 1)
    assert await bench.store.attempts(task_id, 0, 10) == []


async def test_beats_keep_a_lease_for_as_long_as_it_takes(bench: Bench) -> None:
    task_id = await bench.submit()
    await bench.claim(60_000, acked=True)
    version = (await bench.row(task_id)).version
    for _ in range(40):
        await bench.pass_time(15_000)
        await bench.engine.heartbeat([Beat(task_id, version, 60_000)])
    row = await bench.row(task_id)
    assert (row.status, row.version, row.attempts) == (Status.RUNNING, version, 1)


async def test_a_crash_loop_ends(bench: Bench) -> None:
    task_id = await bench.submit(retry=RetryPolicy(max_attempts=3, initial_delay_ms=0))
    for _ in range(3):
        assert await bench.claim(1_000, acked=True) == 1
        await bench.pass_time(12_000)
    row = await bench.row(task_id)
    assert (row.status, row.attempts, row.next_check_at) == (Status.FAILED, 3, None)
    assert await bench.claim() == 0


async def test_timeouts_end_what_they_are_for(bench: Bench) -> None:
    waiting = await bench.submit(timeouts=Timeouts(queue_ms=3_000))
    await bench.pass_time(5_000)
    assert (await bench.row(waiting)).error_type == "QueueTimeout"
    running = await bench.submit(timeouts=Timeouts(run_ms=3_000), retry=RetryPolicy(max_attempts=1))
    await bench.claim(60_000, acked=True)
    await bench.pass_time(5_000)
    row = await bench.row(running)
    assert (row.status, row.error_type) == (Status.FAILED, "RunTimeout")
    total = await bench.submit(timeouts=Timeouts(total_ms=4_000))
    await bench.claim(60_000, acked=True)
    await bench.pass_time(6_000)
    assert (await bench.row(total)).error_type == "TotalTimeout"


async def test_a_queue_timeout_does_not_run_before_the_due_time(bench: Bench) -> None:
    task_id = await bench.submit(30_000, timeouts=Timeouts(queue_ms=1_000))
    await bench.pass_time(29_000)
    assert (await bench.row(task_id)).status is Status.PENDING


async def test_nothing_is_reaped_right_after_the_sweeper_starts(bench: Bench) -> None:
    bench.sweep._settings = SweepSettings(hold_ms=60_000)
    task_id = await bench.submit()
    await bench.claim(1_000, acked=True)
    await bench.pass_time(50_000)
    assert (await bench.row(task_id)).status is Status.RUNNING
    await bench.pass_time(15_000)
    assert (await bench.row(task_id)).status is not Status.RUNNING


async def test_the_sweeper_keeps_out_of_the_way_of_a_trigger_that_is_behind(bench: Bench) -> None:
    task_id = await bench.submit(5_000)
    bench.watermark = bench.clock.now()
    await bench.pass_time(20_000)
    assert (await bench.row(task_id)).status is Status.PENDING
    await bench.pass_time(20_000)  # but not for longer than 30 s
    assert (await bench.row(task_id)).status is Status.READY


async def test_healthy_rows_do_not_hide_a_sick_one(bench: Bench) -> None:
    for _ in range(30):
        await bench.submit()
    bench.sweep._settings = SweepSettings(hold_ms=0, page=5, pages=2)
    sick = await bench.submit()
    await bench.claim(1_000, acked=True)
    await bench.pass_time(15_000)
    assert (await bench.row(sick)).status is not Status.RUNNING


async def test_a_long_queue_is_looked_at_less_often(bench: Bench) -> None:
    now = bench.clock.now()
    tasks = [
        NewTask(i, "default", "t", "t", 5, Status.READY, now, now, next_check_at=now + 5_000)
        for i in mint(now, 2_500)
    ]
    await bench.engine.submit(tasks)
    await bench.pass_time(12_000)
    rows = await bench.store.load([task.task_id for task in tasks])
    checks = [row.next_check_at for row in rows if row is not None and row.next_check_at]
    assert len(checks) == 2_500
    # the first page of a sweep does not know it yet
    assert sum(at > bench.clock.now() + 15_000 for at in checks) == 1_500
