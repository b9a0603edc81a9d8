"""Calls that arrive together share a batch; a bad item fails alone."""

from __future__ import annotations

import asyncio

import pytest

from mainspring_server.batching import PER_ITEM_MS, Batcher, Pace
from mainspring_server.domain.errors import Unavailable


async def test_what_arrives_during_a_batch_makes_up_the_next() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()
    batches: list[list[int]] = []

    async def run(items: list[int]) -> list[int]:
        batches.append(items)
        begun.set()
        await gate.wait()
        return [item * 2 for item in items]

    batcher: Batcher[int, int] = Batcher(run, limit=10)
    calls = [asyncio.create_task(batcher.submit([n])) for n in range(4)]
    await begun.wait()
    calls += [asyncio.create_task(batcher.submit([n])) for n in range(4, 7)]
    await asyncio.sleep(0)
    gate.set()
    assert [await call for call in calls] == [[n * 2] for n in range(7)]
    assert len(batches) <= 3


async def test_a_batch_holds_at_most_its_limit() -> None:
    sizes: list[int] = []

    async def run(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return items

    batcher: Batcher[int, int] = Batcher(run, limit=5)
    await asyncio.gather(*(batcher.submit([n, n]) for n in range(20)))
    await batcher.drain()
    assert max(sizes) <= 5
    assert sum(sizes) == 40


async def test_one_bad_item_never_fails_its_neighbours() -> None:
    async def run(items: list[int]) -> list[int]:
        if 13 in items:
            raise ValueError("bad")
        return items

    batcher: Batcher[int, int] = Batcher(run, limit=1_000)
    results = await batcher.submit(list(range(20)))
    assert [r for r in results if not isinstance(r, Exception)] == [n for n in range(20) if n != 13]
    assert isinstance(results[13], ValueError)


async def test_an_absent_store_fails_the_batch_without_trying_each_item() -> None:
    calls = 0

    async def run(items: list[int]) -> list[int]:
        nonlocal calls
        calls += 1
        raise Unavailable("STORE_UNAVAILABLE", "away")

    batcher: Batcher[int, int] = Batcher(run, limit=1_000)
    results = await batcher.submit(list(range(20)))
    assert calls == 1
    assert all(isinstance(r, Unavailable) for r in results)


async def test_a_caller_that_leaves_disturbs_nobody() -> None:
    gate = asyncio.Event()

    async def run(items: list[int]) -> list[int]:
        await gate.wait()
        return items

    batcher: Batcher[int, int] = Batcher(run, limit=1_000)
    leaver = asyncio.create_task(batcher.submit([1]))
    stayer = asyncio.create_task(batcher.submit([2]))
    await asyncio.sleep(0)
    leaver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaver
    gate.set()
    assert await stayer == [2]


def test_a_loop_that_was_idle_never_waits() -> None:
    pace = Pace(60)
    assert pace.wait(1_000) == 0
    pace.started(1_000, 1)
    assert pace.wait(1_000 + PER_ITEM_MS) == 0


def test_under_load_batches_grow_to_the_longest_wait() -> None:
    pace, now, arrived, batches = Pace(60), 0, 0, []
    while now < 1_000:
        wait = pace.wait(now)
        now, arrived = now + wait, arrived + wait  # one item a millisecond
        pace.started(now, max(arrived, 1))
        batches.append(arrived)
        now, arrived = now + 1, 1
    assert len(batches) <= 1_000 // 60 + 5
    assert max(batches) <= 60 + 1


def test_a_rate_of_200_a_second_is_not_slowed_down() -> None:
    pace = Pace(60)
    for now in range(0, 1_000, 5):
        assert pace.wait(now) == 0
        pace.started(now, 1)
