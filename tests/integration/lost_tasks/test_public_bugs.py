"""Bugs that other schedulers had with lost, late and doubled tasks, by the numbers of our list.

L2 and L8 are also shown with real processes, in tests/faults/test_embedded.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from mainspring_server.config import ConfigError, load_settings
from mainspring_server.domain.checks import first_check
from mainspring_server.domain.leases import (
    Beat,
    BeatState,
    Failure,
    Grant,
    ResultState,
    Seat,
    Success,
    Want,
)
from mainspring_server.domain.retry import RetryPolicy
from mainspring_server.domain.task import NewTask, Status
from mainspring_server.ids import mint
from mainspring_server.trigger.ownership import TTL_MS, ShardOwner
from mainspring_server.wheel.polled import PolledWheel

from ..schedules.conftest import LEASE_MS, Node, Open, Site

START = 1_767_225_600_000


def new(site: Site, delay_ms: int = 0, count: int = 1, **fields: object) -> list[NewTask]:
    """Tasks that are due after so long."""
    now = site.clock.now()
    due_at = now + delay_ms
    status = Status.PENDING if delay_ms else Status.READY
    made = []
    for task_id in mint(now, count):
        values: dict[str, object] = {"retry": RetryPolicy(max_attempts=3)} | fields
        task = NewTask(task_id, "default", "work", "work", 5, status, due_at, now, **values)  # type: ignore[arg-type]
        task.next_check_at = first_check(status, due_at, now, None, None)
        made.append(task)
    return made


async def node_of(site: Site) -> Node:
    node = Node(site.store, site.clock)
    await node.open()
    return node


async def claimed(node: Node, worker: str = "w1") -> Grant:
    want = Want(("default/work",), (Seat(worker, 1),), LEASE_MS, acked=True)
    (grant,) = await node.engine.claim([want])
    return grant


async def swept(site: Site, node: Node, ms: int) -> None:
    """Time passes with a poll and a sweep a second."""
    for _ in range(ms // 1_000):
        site.tick(1_000)
        await node.wheel.refill(site.clock.now())  # else the sweeper waits for the trigger
        await node.sweep.run_once()


async def test_l1_a_delay_of_ten_leases_is_one_attempt(open_site: Open) -> None:
    async with open_site(START) as site:
        node = await node_of(site)
        (task,) = new(site, 10 * LEASE_MS)
        await node.engine.submit([task])
        await site.live(START + 12 * LEASE_MS, sweep_ms=1_000)
        (row,) = await site.store.load([task.task_id])
        assert (row.status, row.attempts, row.version) == (Status.SUCCEEDED, 1, 4)
        assert row.started_at >= task.due_at


async def test_l2_who_wakes_after_its_lease_changes_nothing(open_site: Open) -> None:
    async with open_site(START) as site:
        node = await node_of(site)
        (task,) = new(site)
        await node.engine.submit([task])
        old = await claimed(node, "old")
        await swept(site, node, LEASE_MS + 5_000)
        (row,) = await site.store.load([task.task_id])
        assert row.status is Status.PENDING
        site.tick(2_000)  # the backoff
        await node.wheel.refill(site.clock.now())
        await node.trigger.run_once()
        heir = await claimed(node, "heir")
        before = await site.store.load([task.task_id])
        late = [
            Success(task.task_id, old.token, b"late"),
            Failure(task.task_id, old.token, "late", "E"),
        ]
        assert await node.engine.complete(list(late)) == [ResultState.STALE] * 2
        (beat,) = await node.engine.heartbeat([Beat(task.task_id, old.token, LEASE_MS)])
        assert not isinstance(beat, Exception)
        assert beat.state is BeatState.LOST
        assert await site.store.load([task.task_id]) == before
        assert heir.attempt == 2


async def test_l5_a_task_that_every_hint_has_lost_is_found_by_the_sweeper(open_site: Open) -> None:
    """The wheel never hears of it, nor the ready queue: the row alone brings it back."""
    async with open_site(START) as site:
        (task,) = new(site, 2_000)
        await site.store.insert([task])
        node = Node(site.store, site.clock)  # its wheel owns no shard: it fires nothing
        await node.sweep.open(range(64))
        await swept(site, node, 10_000)
        assert node.sweep.oldest_age_ms >= 0
        (row,) = await site.store.load([task.task_id])
        assert row.status is Status.READY
        assert row.ready_at <= task.due_at + 5_000


async def test_l7_a_stale_owner_steps_down_and_ticks_stay_single(open_site: Open) -> None:
    async with open_site(START) as site:
        nodes = [await node_of(site), await node_of(site)]
        owners = [
            ShardOwner(site.store, node.wheel, site.clock, f"node-{n}")
            for n, node in enumerate(nodes)
        ]
        tasks = new(site, 2 * TTL_MS, count=50)
        await nodes[0].engine.submit(list(tasks))
        await owners[0].run_once()
        assert len(owners[0].shards) == 64
        site.tick(TTL_MS)  # the first one did not renew
        await owners[1].run_once()
        assert len(owners[1].shards) == 64
        await owners[0].run_once()
        assert not owners[0].shards & owners[1].shards
        site.tick(TTL_MS)
        for node in nodes:
            await node.wheel.refill(site.clock.now())
            await node.trigger.run_once()
        rows = await site.store.load([task.task_id for task in tasks])
        assert Counter(row.version for row in rows) == {2: 50}


async def test_l8_ten_leases_with_beats_are_one_grant(open_site: Open) -> None:
    async with open_site(START) as site:
        node = await node_of(site)
        (task,) = new(site)
        await node.engine.submit([task])
        grant = await claimed(node)
        for _ in range(30):
            await swept(site, node, LEASE_MS // 3)
            (beat,) = await node.engine.heartbeat([Beat(task.task_id, grant.token, LEASE_MS)])
            assert not isinstance(beat, Exception)
            assert beat.state is BeatState.EXTENDED
        assert await node.engine.complete([Success(task.task_id, grant.token, None)]) == [
            ResultState.APPLIED
        ]
        (row,) = await site.store.load([task.task_id])
        assert (row.status, row.attempts) == (Status.SUCCEEDED, 1)


async def test_l10_a_success_just_before_expiry_stays(open_site: Open) -> None:
    async with open_site(START) as site:
        node = await node_of(site)
        (task,) = new(site)
        await node.engine.submit([task])
        grant = await claimed(node)
        site.tick(LEASE_MS - 10)
        answers, _ = await asyncio.gather(
            node.engine.complete([Success(task.task_id, grant.token, b"x")]),
            node.sweep.run_once(),
        )
        assert answers == [ResultState.APPLIED]
        await swept(site, node, 3 * LEASE_MS)
        (row,) = await site.store.load([task.task_id])
        assert (row.status, row.outcome, row.version) == (Status.SUCCEEDED, b"x", 3)


def test_l10_a_lease_shorter_than_three_beats_is_refused() -> None:
    with pytest.raises(ConfigError, match="lease"):
        load_settings(store="sqlite:///x", lease_ms=29_000, heartbeat_ms=10_000)


async def test_l12_a_lease_ends_on_time_though_its_dispatcher_was_restarted(
    open_site: Open,
) -> None:
    async with open_site(START) as site:
        node = await node_of(site)
        (task,) = new(site)
        await node.engine.submit([task])
        grant = await claimed(node)
        site.tick(LEASE_MS // 2)
        await node.engine.heartbeat([Beat(task.task_id, grant.token, LEASE_MS)])
        heir = await node_of(site)  # the dispatcher is another one now, and the worker is dead
        await swept(site, heir, LEASE_MS - 1_000)
        (row,) = await site.store.load([task.task_id])
        assert row.status is Status.RUNNING
        await swept(site, heir, 6_000)
        (row,) = await site.store.load([task.task_id])
        assert (row.status, row.attempts) == (Status.PENDING, 1)


async def test_l13_eight_triggers_at_one_shard_fire_each_task_once(open_site: Open) -> None:
    async with open_site(START) as site:
        count = 2_000
        first = await node_of(site)
        tasks = new(site, 1_000, count=count)
        await first.engine.submit(list(tasks))
        site.tick(1_000)
        nodes = [await node_of(site) for _ in range(8)]
        for node in nodes:
            await node.wheel.refill(site.clock.now())
        while any(
            (node.wheel.next_due() or site.clock.now() + 1) <= site.clock.now() for node in nodes
        ):
            await asyncio.gather(*(node.trigger.run_once() for node in nodes))
        versions: Counter[int] = Counter()
        for start in range(0, count, 500):
            rows = await site.store.load([task.task_id for task in tasks[start : start + 500]])
            versions.update(row.version for row in rows)
        assert versions == {2: count}


async def test_c23_a_node_whose_clock_is_ahead_fires_nothing_early(open_site: Open) -> None:
    """C23: the store's clock decides. SQLite's is its node's, so there only time itself passes."""
    async with open_site(START) as site:
        (task,) = new(site, 60_000)
        await site.store.insert([task])
        node = Node(site.store, site.clock)
        wheel = PolledWheel(site.store, site.clock, poll_ms=1_000, ahead_ms=2_000)
        await wheel.open(range(64))
        (answer,) = await node.engine.make_ready([task.task_id])
        assert (answer.state.name, answer.due_at) == ("EARLY", task.due_at)
        (row,) = await site.store.load([task.task_id])
        assert (row.status, row.version) == (Status.PENDING, 1)
        await site.live(START + 61_000)
        (row,) = await site.store.load([task.task_id])
        assert row.status is Status.SUCCEEDED
        assert row.started_at >= task.due_at
