"""Periods are made ahead, dropped when old, and what still lives is carried over."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring_server.domain.errors import InvalidArgument
from mainspring_server.domain.leases import Success
from mainspring_server.domain.task import ReadyState, Status
from mainspring_server.store.postgres import PostgresStore
from mainspring_server.store.postgres.partitions import (
    DAY_MS,
    Partition,
    missing,
    partitions,
    period_of,
)
from tests.integration.postgres.conftest import new_id

WEEK_MS = 7 * DAY_MS
MONDAY = 1_704_067_200_000  # 2024-01-01T00:00:00Z


def test_periods_begin_on_monday() -> None:
    assert period_of(MONDAY, 7) == Partition(MONDAY, MONDAY + WEEK_MS, "20240101")
    assert period_of(MONDAY - 1, 7).end == MONDAY
    assert period_of(MONDAY + DAY_MS, 1) == Partition(
        MONDAY + DAY_MS, MONDAY + 2 * DAY_MS, "20240102"
    )


@given(st.lists(st.integers(0, 400), max_size=20), st.sampled_from([1, 7]), st.sampled_from([1, 7]))
def test_periods_never_overlap_also_when_their_length_changes(
    days: list[int], first: int, second: int
) -> None:
    moments = [MONDAY + day * DAY_MS // 3 for day in days]
    known: list[Partition] = missing([], moments[::2], first)
    known += missing(known, moments, second)
    assert missing(known, moments, 7) == []
    known.sort()
    assert all(a.end <= b.start for a, b in pairwise(known))
    assert len({part.suffix for part in known}) == len(known)


async def periods(store: PostgresStore) -> list[Partition]:
    return await store._query.run(partitions)


async def test_four_weeks_ahead_and_everything_before(store: PostgresStore) -> None:
    now = await store.now()
    known = await periods(store)
    assert known[0].carried
    assert known[0].end == period_of(now, 7).start == known[1].start
    assert known[-1].end > now + 4 * WEEK_MS
    assert all(a.end == b.start for a, b in pairwise(known))


async def test_opening_and_purging_make_what_is_missing_and_nothing_twice(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    before = await periods(store)
    store.clock_ms = before[-1].end + 1
    await store.purge(0, 10)
    after = await periods(store)
    assert after[: len(before)] == before
    assert after[-1].end > store.clock_ms + 4 * WEEK_MS
    await store.purge(0, 10)
    assert await periods(store) == after
    await store.close()


async def test_an_id_beyond_the_last_period_gets_one(
    store: PostgresStore, make: Callable[..., Any]
) -> None:
    now = await store.now()
    later = make(now, task_id=new_id(now + 7 * WEEK_MS))
    await store.insert([make(now), later])
    (task,) = await store.load([later.task_id])
    assert task is not None
    with pytest.raises(InvalidArgument, match="far future"):
        await store.insert([make(now, task_id=new_id(now + 60 * WEEK_MS))])


async def test_retiring_drops_the_finished_and_carries_the_living(
    store: PostgresStore, database: Any, make: Callable[..., Any], want: Callable[[int], Any]
) -> None:
    now = await store.now()
    done, ready = [make(now) for _ in range(5)], make(now, queue="other")
    later, waiting = make(now, 400 * DAY_MS), make(now, status=Status.CREATED)
    await store.insert([*done, ready, later, waiting])
    grants = await store.claim_lanes([want(5)], 1)
    assert all(await store.succeed([Success(g.task_id, g.token, None) for g in grants]))
    period = period_of(now, 7)

    assert await store.retire_partitions(period.end - 1) == []
    assert await store.retire_partitions(period.end) == [period.suffix]

    living = [ready.task_id, later.task_id, waiting.task_id]
    loaded = await store.load([task.task_id for task in done] + living, payload=True)
    assert loaded[:5] == [None] * 5
    assert [task and task.payload and task.payload.body for task in loaded[5:]] == [b"body"] * 3
    counts = await database.fetchrow(
        "SELECT (SELECT count(*) FROM tasks_carried), (SELECT count(*) FROM task_payloads_carried)"
    )
    assert tuple(counts) == (3, 3)
    known = await periods(store)
    assert known[0] == Partition(0, period.end, "carried")
    # They go on living there, and an id of the dropped period still finds a place.
    (answer,) = await store.make_ready([later.task_id], 401 * DAY_MS)
    assert answer.state is ReadyState.APPLIED
    await store.insert([make(now)])


async def test_carried_rows_are_purged_one_by_one_and_others_with_their_period(
    store: PostgresStore, make: Callable[..., Any], want: Callable[[int], Any]
) -> None:
    now = await store.now()
    old, young = make(now), make(now, task_id=new_id(period_of(now, 7).end))
    await store.insert([old, young])
    await store.retire_partitions(period_of(now, 7).end)
    grants = await store.claim_lanes([want(2)], 1)
    assert all(await store.succeed([Success(g.task_id, g.token, None) for g in grants]))
    assert await store.purge(await store.now() + 1, 10) == 1
    assert [task is None for task in await store.load([old.task_id, young.task_id])] == [
        True,
        False,
    ]
