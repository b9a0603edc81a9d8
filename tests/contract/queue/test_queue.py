"""What every ready queue must do, on a real store and, for Kafka, a real broker."""

import random

import pytest

from mainspring_server.domain.leases import Grant, Seat, Want
from mainspring_server.domain.task import ReadyRef, Status
from tests.ready import Node, fresh_lane, ids


async def test_what_is_published_is_announced_and_claimed_once(node: Node, lane: str) -> None:
    refs = await node.publish(3, lane)
    grants = await node.collect(3, lane)
    assert sorted(ids(grants)) == sorted(ids(refs))
    assert {grant.token for grant in grants} == {2}
    await node.nothing_more(lane)


async def test_a_claim_takes_no_more_than_its_credit(node: Node, lane: str) -> None:
    await node.publish(10, lane)
    assert len(await node.collect(4, lane, room=4)) == 4
    assert len(await node.collect(6, lane, room=4)) == 6


async def test_seats_are_filled_in_order(node: Node, lane: str) -> None:
    await node.publish(4, lane)
    await _all_there(node, lane, 4)
    want = Want((lane,), (Seat("a", 1), Seat("b", 1), Seat("a", 1)), 5_000)
    grants = await node.queue.claim([want])
    assert [grant.worker_id for grant in grants] == ["a", "b", "a"]


async def test_several_wants_share_what_there_is(node: Node, lane: str) -> None:
    await node.publish(4, lane)
    await _all_there(node, lane, 4)
    wants = [Want((lane,), (Seat(name, 2),), 5_000) for name in "ab"]
    grants = await node.queue.claim(wants)
    assert sorted(grant.worker_id for grant in grants) == ["a", "a", "b", "b"]


async def test_a_want_without_work_is_answered_empty(node: Node, lane: str) -> None:
    await node.nothing_more(lane, fresh_lane())
    assert await node.queue.claim([]) == []


async def test_lower_bands_come_first(node: Node, lane: str) -> None:
    for priority in (9, 5, 0):
        await node.publish(4, lane, priority=priority)
    await _all_there(node, lane, 12)
    claimed = []
    for _ in range(6):  # fewer turns than the starvation guard's
        claimed += await node.claim(2, lane)
    assert await _priorities(node, claimed) == [0] * 4 + [5] * 4 + [9] * 4


async def test_higher_bands_do_not_starve(node: Node, lane: str) -> None:
    await node.publish(1, lane, priority=5)
    await node.publish(1, lane, priority=9)
    await node.publish(60, lane, priority=0)
    await _all_there(node, lane, 62)
    turns = [await _priorities(node, await node.claim(1, lane)) for _ in range(40)]
    claimed = [priority for turn in turns for priority in turn]
    assert 5 in claimed[:9]
    assert 9 in claimed[:34]
    assert claimed.count(0) == 38


async def test_older_tasks_come_first(node: Node, lane: str) -> None:
    batches = [await node.publish(2, lane) for _ in range(5)]
    await _all_there(node, lane, 10)
    claimed = [set(ids(await node.claim(2, lane))) for _ in range(5)]
    assert claimed == [set(ids(batch)) for batch in batches]


async def test_a_prestaged_task_waits_for_its_due_time_and_is_announced(
    node: Node, lane: str
) -> None:
    await node.publish(1, lane)
    await node.collect(1, lane)
    (early,) = await node.submit(1, lane, delay_ms=1_000)
    await node.queue.publish([early])
    now = await node.publish(2, lane)
    first = ids(await node.collect(2, lane))
    assert set(first) <= {*ids(now), early.task_id}
    assert early.task_id not in first or node.clock.now() >= early.due_at
    while node.clock.now() < early.due_at:
        assert early.task_id not in ids(await node.claim(10, lane)) or (
            node.clock.now() >= early.due_at
        )
        await node.clock.sleep_until(min(node.clock.now() + 100, early.due_at))
    node.told.set()
    await _claimed(node, lane, early)


async def test_a_task_published_again_and_out_of_order_is_granted_once(
    node: Node, lane: str
) -> None:
    refs = await node.submit(30, lane)
    shuffled = refs * 3
    random.Random(7).shuffle(shuffled)
    for start in range(0, len(shuffled), 7):
        await node.queue.publish(shuffled[start : start + 7])
    grants = await node.collect(30, lane)
    assert sorted(ids(grants)) == sorted(ids(refs))
    await node.nothing_more(lane)


async def test_unknown_and_stale_references_are_dropped(node: Node, lane: str) -> None:
    refs = await node.submit(2, lane)
    ghost = ReadyRef(b"\x01" * 16, 1, lane, 5, refs[0].due_at, refs[0].published_at)
    await node.queue.publish([ghost, refs[0]._replace(version=9), *refs])
    assert sorted(ids(await node.collect(2, lane))) == sorted(ids(refs))
    await node.nothing_more(lane)


async def test_a_lane_that_is_not_asked_for_stays(node: Node, lane: str) -> None:
    other = fresh_lane()
    node.queue.serve({lane: 100, other: 100})
    await node.publish(2, other)
    refs = await node.publish(2, lane)
    assert sorted(ids(await node.collect(2, lane))) == sorted(ids(refs))
    await node.nothing_more(lane)
    assert len(await node.collect(2, other)) == 2


async def test_a_claim_that_fails_loses_nothing(
    node: Node, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = await node.publish(3, lane)
    await _all_there(node, lane, 3)

    async def fail(*_: object) -> list[Grant]:
        raise ConnectionError("the store is away")

    with monkeypatch.context() as broken:
        broken.setattr(node.store, "claim", fail)
        broken.setattr(node.store, "claim_lanes", fail)
        with pytest.raises(ConnectionError):
            await node.claim(3, lane)
    assert sorted(ids(await node.collect(3, lane))) == sorted(ids(refs))


async def test_what_is_published_before_anybody_serves_is_found_later(
    node: Node, lane: str
) -> None:
    later = fresh_lane()
    refs = await node.publish(3, later)
    node.queue.serve({lane: 100, later: 5})
    node.told.set()
    assert sorted(ids(await node.collect(3, later))) == sorted(ids(refs))


async def test_a_fresh_task_is_not_lost(node: Node, lane: str) -> None:
    refs = await node.publish(2, lane)
    assert await node.queue.lost(refs) == [False, False]
    assert await node.queue.lost([]) == []


async def test_no_backlog_is_left_when_all_is_claimed(node: Node, lane: str) -> None:
    assert (await node.queue.backlog([lane])).get(lane, 0) == 0


async def _all_there(node: Node, lane: str, count: int) -> None:
    """Return once so many tasks could be claimed at once."""
    buffer = getattr(node.queue, "_buffer", None)
    if buffer is None:
        return
    while lane not in buffer.lanes or buffer.lanes[lane].count < count:
        node.told.clear()
        await node.told.wait()


async def _priorities(node: Node, grants: list[Grant]) -> list[int]:
    rows = await node.store.load(ids(grants))
    return [row.priority for row in rows if row is not None]


async def _claimed(node: Node, lane: str, ref: ReadyRef) -> None:
    """Claim whenever told, until this task runs."""
    while (await node.store.load([ref.task_id]))[0].status is not Status.RUNNING:  # type: ignore[union-attr]
        node.told.clear()
        if not await node.claim(10, lane):
            await node.told.wait()
