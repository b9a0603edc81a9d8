"""Kafka away: down the ladder, up again, and what one broken part may cost the others."""

import contextlib
import logging
import signal

import pytest
from native_services import Services

from mainspring_server.domain.errors import ResourceExhausted, Unavailable
from tests.ready import fresh_lane, ids

from .conftest import Cluster, queue_of, rung


async def test_work_goes_on_while_the_broker_is_dead_and_returns_to_kafka(
    cluster: Cluster, lane: str, caplog: pytest.LogCaptureFixture
) -> None:
    services = Services()
    services.start("kafka")
    try:
        cluster.url = services.url("kafka")
        node = await cluster.node("one", lane)
        await node.publish(5, lane)
        await node.collect(5, lane)
        before = await node.publish(5, lane)
        services.kill("kafka")
        caplog.clear()
        refused = await node.submit(5, lane)
        with contextlib.suppress(Unavailable):  # unless the node knows already
            await node.queue.publish(refused)
        await rung(node, "claimed")
        away = await node.publish(5, lane)  # no error: READY rows are the queue now
        wanted = ids([*before, *refused, *away])
        assert sorted(ids(await node.collect(15, lane))) == sorted(wanted)
        assert await node.queue.lost(away) == [False] * 5
        assert await node.queue.backlog([lane]) == {}
        left = await node.publish(3, lane)
        services.restart("kafka")
        while queue_of(node)._ladder.down:
            await queue_of(node)._ladder.probe.next()
        # what waits in the store comes first
        assert node.queue.rung == "claimed"
        assert sorted(ids(await node.collect(3, lane))) == sorted(ids(left))
        await rung(node, "kafka")
        back = await node.publish(5, lane)
        assert sorted(ids(await node.collect(5, lane))) == sorted(ids(back))
        assert queue_of(node)._reader.records > 0
        lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(lines) < 10, [record.getMessage() for record in lines]
    finally:
        await cluster.close()
        cluster.queues.clear()
        services.stop()


async def test_a_broker_that_hangs_holds_up_nothing_for_long(cluster: Cluster, lane: str) -> None:
    services = Services()
    services.start("kafka")
    try:
        cluster.url = services.url("kafka")
        node = await cluster.node("one", lane)
        await node.publish(5, lane)
        await node.collect(5, lane)
        services.kill("kafka", signal.SIGSTOP)
        refused = await node.submit(5, lane)
        began = cluster.clock.monotonic()
        with pytest.raises(Unavailable):
            await node.queue.publish(refused)
        assert cluster.clock.monotonic() - began < 4_000
        await rung(node, "claimed")
        assert sorted(ids(await node.collect(5, lane))) == sorted(ids(refused))
        services.kill("kafka", signal.SIGCONT)
        await rung(node, "kafka")
        back = await node.publish(5, lane)
        assert sorted(ids(await node.collect(5, lane))) == sorted(ids(back))
    finally:
        await cluster.close()
        cluster.queues.clear()
        services.stop()


async def test_a_node_starts_on_the_lower_rung_where_no_broker_answers(
    cluster: Cluster, lane: str
) -> None:
    cluster.url = "kafka://127.0.0.1:1"
    node = await cluster.node("one", lane)
    assert node.queue.rung == "claimed"
    refs = await node.publish(3, lane)
    assert sorted(ids(await node.collect(3, lane))) == sorted(ids(refs))
    await queue_of(node).close()


async def test_a_namespace_with_too_many_topics_is_refused_alone_and_still_served(
    cluster: Cluster, lane: str
) -> None:
    other = fresh_lane()
    node = await cluster.node("one", lane, other, max_topics=1)
    await node.publish(1, lane)
    await node.collect(1, lane)
    good, refused = await node.submit(2, lane), await node.submit(2, other)
    with pytest.raises(ResourceExhausted, match="topics") as caught:
        await node.queue.publish([*refused, *good])
    assert caught.value.reason == "QUOTA_EXCEEDED"
    assert sorted(ids(await node.collect(2, lane))) == sorted(ids(good))
    # without a topic the lane's tasks are claimed from the store, now and then
    queue_of(node)._partitions.lanes.get(other).steal_at = 0  # type: ignore[union-attr]
    assert sorted(ids(await node.collect(2, other))) == sorted(ids(refused))


async def test_what_was_published_is_counted(cluster: Cluster, lane: str) -> None:
    node = await cluster.node("one", lane, consume=False)
    await node.publish(1, lane)
    await node.publish(1_200, lane)
    queue = queue_of(node)
    assert (queue.records, queue.tasks) == (4, 1_201)
    assert queue.requests["Produce"] <= 3
    assert await node.queue.backlog([lane]) == {lane: 1_201}
