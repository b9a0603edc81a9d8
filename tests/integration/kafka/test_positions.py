"""Which READY rows the sweeper publishes again: those whose records can no longer arrive."""

import asyncio
from collections.abc import Sequence

from aiokafka.protocol.admin import DeleteTopicsRequest

from mainspring_server.domain.task import ReadyRef, Status
from mainspring_server.queue.kafka.producer import Entry
from tests.ready import WAIT_S, Node, ids

from .conftest import Cluster, queue_of, until

MINUTE = 60_000


async def delete_topic(node: Node, lane: str) -> None:
    queue = queue_of(node)
    name = queue._topics.name(lane, 1)
    await queue._cluster.send(queue._cluster._controller, DeleteTopicsRequest([name], 1_000))


async def sweep(node: Node, refs: Sequence[ReadyRef]) -> int:
    """Publish again what is lost, as the sweeper does; answers how many tasks still wait."""
    rows = [row for row in await node.store.load(ids(refs)) if row and row.status is Status.READY]
    waiting = [
        ReadyRef(r.task_id, r.version, r.lane, r.priority, r.due_at, r.published_at or 0)
        for r in rows
    ]
    lost = await node.queue.lost(waiting)
    again = [(ref.task_id, ref.version) for ref, gone in zip(waiting, lost, strict=True) if gone]
    if again:
        await node.queue.publish([r for r in await node.store.republish(again) if r is not None])
    return len(rows)


async def answers(node: Node, refs: Sequence[ReadyRef], expected: list[bool]) -> None:
    """Return once `lost` answers this: the leader of a new topic is not known everywhere at once."""
    async with asyncio.timeout(WAIT_S):
        while await node.queue.lost(refs) != expected:
            await queue_of(node)._ladder.probe.next()


async def test_a_row_that_was_never_published_is_lost_after_the_grace(
    cluster: Cluster, lane: str
) -> None:
    node = await cluster.node("sweeper", consume=False)
    fresh = await node.submit(1, lane)
    old = await node.submit(1, lane, age_ms=MINUTE)
    never = [old[0]._replace(published_at=0)]
    assert await node.queue.lost([*fresh, *old, *never]) == [False, True, True]
    await node.publish(1, lane)  # now the topic exists, and its one record is not claimed
    await answers(node, [*old, *never], [True, True])
    assert await node.queue.lost(await node.submit(1, lane)) == [False]


async def test_a_row_behind_a_backlog_is_not_lost(cluster: Cluster, lane: str) -> None:
    node = await cluster.node("sweeper", consume=False)
    waiting = await node.submit(1, lane, age_ms=MINUTE)
    await node.queue.publish(waiting)
    behind = waiting[0]._replace(published_at=waiting[0].published_at + MINUTE // 2)
    before = waiting[0]._replace(published_at=waiting[0].published_at - MINUTE)
    await answers(node, [*waiting, behind, before], [False, False, True])
    assert await node.queue.backlog([lane]) == {lane: 1}


async def test_the_position_follows_the_claims(cluster: Cluster, lane: str) -> None:
    sweeper = await cluster.node("sweeper", consume=False)
    refs = await sweeper.submit(3, lane, age_ms=MINUTE)
    await sweeper.queue.publish(refs)
    assert await sweeper.queue.lost(refs) == [False] * 3
    node = await cluster.node("one", lane)
    await node.collect(3, lane)
    await answers(sweeper, refs, [True] * 3)
    assert await sweeper.queue.backlog([lane]) == {lane: 0}


async def test_a_topic_that_is_deleted_under_load_heals(cluster: Cluster, lane: str) -> None:
    node = await cluster.node("one", lane)
    refs = [ref for _ in range(10) for ref in await node.publish(20, lane)]
    grants = await node.collect(100, lane, room=50)
    await delete_topic(node, lane)
    refs += await node.submit(50, lane)
    granted = set(ids(grants))
    async with asyncio.timeout(3 * WAIT_S):
        while await sweep(node, refs):
            granted |= set(ids(await node.claim(1_000, lane)))
            await queue_of(node)._ladder.probe.next()
    granted |= set(ids(await node.claim(1_000, lane)))
    assert granted == set(ids(refs))
    more = await node.publish(5, lane)
    assert sorted(ids(await node.collect(5, lane))) == sorted(ids(more))


async def test_offsets_of_a_deleted_topic_mean_nothing_in_the_new_one(
    cluster: Cluster, lane: str
) -> None:
    node = await cluster.node("one", lane)
    for _ in range(12):
        await node.publish(1, lane)
    await node.collect(12, lane)
    await queue_of(node).close()
    cluster.queues.remove(queue_of(node))
    other = await cluster.node("two")
    await other.queue._cluster.metadata([])
    await delete_topic(other, lane)
    name = queue_of(other)._topics.name(lane, 1)
    async with asyncio.timeout(WAIT_S):
        while await queue_of(other)._topics.find([name], fresh=True):
            pass
    refs = await other.publish(2, lane)
    other.queue.serve({lane: 10})
    await until(other, lambda: len(queue_of(other)._partitions.owned) == 4)
    assert sorted(ids(await other.collect(2, lane))) == sorted(ids(refs))


async def test_a_record_that_is_not_ours_is_skipped(cluster: Cluster, lane: str) -> None:
    node = await cluster.node("one", lane)
    first = await node.publish(1, lane)
    queue = queue_of(node)
    (topic,) = (await queue._topics.find([queue._topics.name(lane, 1)])).values()
    now = node.clock.now()
    for number, leader in enumerate(topic.leaders):
        entries = [Entry(topic, number, value, now, 0) for value in (b"", b"\xff" * 100)]
        while await queue._producer.send(leader, entries) != [None, None]:
            pass  # a new leader does not know at once that it is one
    last = [ref for _ in range(4) for ref in await node.publish(1, lane)]
    assert sorted(ids(await node.collect(5, lane))) == sorted(ids([*first, *last]))
