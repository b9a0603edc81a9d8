"""Who reads which partition, and what happens when a node comes, goes, dies or has no credit."""

import asyncio

from mainspring_server.queue.kafka.queue import KafkaQueue
from tests.ready import WAIT_S, Node, fresh_lane, ids

from .conftest import Cluster, queue_of, until


def held(node: Node) -> int:
    return len(queue_of(node).partitions)


def readable(queue: KafkaQueue) -> int:
    return len(queue._partitions.owned)


async def test_a_lone_node_reads_everything_and_two_share_by_credit(
    cluster: Cluster, lane: str
) -> None:
    one = await cluster.node("one", lane, credits_=300)
    await one.publish(1, lane)
    await until(one, lambda: held(one) == 4)
    two = await cluster.node("two", lane, credits_=100)
    await until(two, lambda: held(two) == 1)
    await until(one, lambda: held(one) == 3)
    await queue_of(two).close()
    cluster.queues.remove(queue_of(two))
    await until(one, lambda: held(one) == 4)


async def test_a_dead_nodes_partitions_are_read_by_another_within_five_seconds(
    cluster: Cluster, lane: str
) -> None:
    one = await cluster.node("one", lane)
    two = await cluster.node("two", lane)
    await one.publish(1, lane)
    await until(one, lambda: held(one) == 2)
    await until(two, lambda: held(two) == 2)
    await two.collect(1, lane) if not await one.claim(1, lane) else None
    await cluster.crash(one)
    died_at = cluster.clock.monotonic()
    refs = [ref for _ in range(8) for ref in await two.publish(5, lane)]
    grants = await two.collect(40, lane)
    assert sorted(ids(grants)) == sorted(ids(refs))
    await until(two, lambda: held(two) == 4)
    assert cluster.clock.monotonic() - died_at < 5_000


async def test_what_a_dead_node_had_read_is_claimed_once_by_its_successor(
    cluster: Cluster, lane: str
) -> None:
    one = await cluster.node("one", lane)
    refs = await one.publish(10, lane)
    first = await one.collect(4, lane, room=4)
    await cluster.crash(one)
    again = await cluster.node("one", lane)
    rest = await again.collect(6, lane)
    assert sorted(ids([*first, *rest])) == sorted(ids(refs))
    await again.nothing_more(lane)


async def test_a_node_that_closes_commits_what_it_claimed(cluster: Cluster, lane: str) -> None:
    one = await cluster.node("one", lane)
    for _ in range(6):
        await one.publish(2, lane)
    await one.collect(12, lane)
    await queue_of(one).close()
    cluster.queues.remove(queue_of(one))
    two = await cluster.node("two", lane)
    await until(two, lambda: readable(queue_of(two)) == 4)
    assert await two.queue.backlog([lane]) == {lane: 0}
    assert queue_of(two)._reader.records == 0


async def test_a_node_without_credit_hoards_nothing(cluster: Cluster, lane: str) -> None:
    busy = await cluster.node("busy", lane)
    free = await cluster.node("free", lane)
    await free.publish(1, lane)
    await until(busy, lambda: held(busy) == 2)
    refs = [ref for _ in range(8) for ref in await free.publish(2, lane)]
    # the node `busy` never claims
    grants = await free.collect(17, lane)
    assert set(ids(refs)) < set(ids(grants))
    # as soon as it has credit again, it takes part
    await busy.claim(1, lane)
    await until(busy, lambda: held(busy) == 2)


async def test_workers_that_come_and_go_stall_no_other_lane(cluster: Cluster, lane: str) -> None:
    steady = await cluster.node("steady", lane)
    restless = await cluster.node("restless")
    await steady.publish(1, lane)
    await steady.collect(1, lane)
    await until(steady, lambda: held(steady) == 4)
    terms = {lease.name: lease.term for lease in queue_of(steady).partitions}
    lanes = [fresh_lane() for _ in range(10)]
    for other in lanes:
        await restless.publish(1, other)
    slowest = 0
    for turn in range(100):
        restless.queue.serve({lanes[turn % 10]: 1, lanes[(turn * 7) % 10]: 2})
        began = cluster.clock.monotonic()
        await steady.publish(1, lane)
        await steady.collect(1, lane)
        slowest = max(slowest, cluster.clock.monotonic() - began)
    assert slowest < 1_000
    now = {lease.name: lease.term for lease in queue_of(steady).partitions}
    assert {name: term for name, term in now.items() if name in terms} == terms
    restless.queue.serve(dict.fromkeys(lanes, 1))
    assert len(await restless.collect(10, *lanes)) == 10


async def test_a_lane_without_workers_stays_in_kafka_and_harms_no_other(
    cluster: Cluster, lane: str
) -> None:
    node = await cluster.node("one", lane)
    deaf = fresh_lane()
    await node.publish(600, deaf)
    refs = await node.publish(3, lane)
    assert sorted(ids(await node.collect(3, lane))) == sorted(ids(refs))
    assert (await node.queue.backlog([deaf, lane]))[deaf] > 0
    assert deaf not in queue_of(node)._buffer.lanes


async def test_no_more_is_read_than_credit_and_a_prefetch(cluster: Cluster, lane: str) -> None:
    node = await cluster.node("one", lane, credits_=10)
    refs = await node.submit(20_000, lane)
    await node.queue.publish(refs)
    buffer = queue_of(node)._buffer
    async with asyncio.timeout(WAIT_S):
        while lane not in buffer.lanes or buffer.lanes[lane].count < 500:
            await node.told.wait()
            node.told.clear()
    await until(node, lambda: True)
    assert buffer.lanes[lane].count <= 3_500
    grants = await node.collect(20_000, lane)
    assert len(set(ids(grants))) == 20_000
