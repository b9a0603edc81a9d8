"""Chains, fans, ladders and random graphs: all terminal, as the reference evaluator says."""

from __future__ import annotations

import os
import random

import pytest

from mainspring_server.domain.graph import PUBLISHED
from mainspring_server.domain.task import Rule, Status
from mainspring_server.ids import text_of
from mainspring_server.resolve.service import PAGE

from .conftest import Bench, Node, reference

CHAIN_RUNS = int(os.environ.get("MAINSPRING_TEST_CHAIN_RUNS", "200"))
FAN_OUT = int(os.environ.get("MAINSPRING_TEST_FAN_OUT", "10000"))
FAN_IN = int(os.environ.get("MAINSPRING_TEST_FAN_IN", "5000"))
RANDOM_NODES = int(os.environ.get("MAINSPRING_TEST_GRAPH_NODES", "2000"))

pytestmark = pytest.mark.timeout(600)


async def test_a_chain_of_1000_runs_up_to_the_task_that_fails(bench: Bench) -> None:
    nodes = [Node((n - 1,) if n else (), fails=n == CHAIN_RUNS) for n in range(1_000)]
    ids = await bench.submit(nodes)
    await bench.run(nodes, ids)
    rows = await bench.rows(ids)
    assert [row.status for row in rows] == reference(nodes)
    for n in range(CHAIN_RUNS + 1, 1_000):
        how = "failed" if n == CHAIN_RUNS + 1 else "was cancelled"
        reason = rows[n].status_reason or ""
        assert reason.endswith(f"predecessor {text_of(ids[n - 1])} {how}")
    await check_quiet(bench, ids)


async def test_d6_a_failure_is_carried_down_a_chain_of_50(bench: Bench) -> None:
    """D6: 49 terminal without anybody's help, also over several submits."""
    nodes = [Node(fails=True), *(Node((n,)) for n in range(49))]
    ids = await bench.submit(nodes, at_once=7)
    await bench.run(nodes, ids)
    assert (await bench.statuses(ids)) == [Status.FAILED] + [Status.CANCELLED] * 49
    await check_quiet(bench, ids)


async def test_fan_out(bench: Bench) -> None:
    nodes = [Node(), *(Node((0,)) for _ in range(FAN_OUT))]
    ids = await bench.submit(nodes)
    await bench.run(nodes, ids)
    assert set(await bench.statuses(ids)) == {Status.SUCCEEDED}
    await check_quiet(bench, ids)


async def test_a_wide_fan_keeps_nobody_waiting(bench: Bench) -> None:
    nodes = [Node(), *(Node((0,)) for _ in range(3 * PAGE)), Node(), Node((3 * PAGE + 1,))]
    ids = await bench.submit(nodes)
    children = ids[1 : 3 * PAGE + 1]
    grants = {grant.task_id: grant for grant in await bench.claim()}
    await bench.end(grants[ids[0]])
    await bench.resolver.run_once()
    await bench.end(grants[ids[-2]])
    await bench.resolver.run_once()
    await bench.resolver.run_once()
    assert (await bench.row(ids[-1])).status is Status.READY
    assert (await bench.statuses(children)).count(Status.READY) == 2 * PAGE
    await bench.resolve()
    assert set(await bench.statuses(children)) == {Status.READY}
    assert (await bench.row(ids[0])).next_check_at is None


async def test_fan_in(bench: Bench) -> None:
    nodes = [Node() for _ in range(FAN_IN)]
    nodes += [Node(tuple(range(FAN_IN))), Node((FAN_IN,))]
    ids = await bench.submit(nodes, at_once=10_000)
    await bench.run(nodes, ids)
    assert set(await bench.statuses(ids)) == {Status.SUCCEEDED}
    assert (await bench.row(ids[FAN_IN])).version == 4
    await check_quiet(bench, ids)


async def test_a_ladder_of_diamonds(bench: Bench) -> None:
    nodes = [Node()]
    for n in range(60):
        top = len(nodes) - 1
        nodes += [Node((top,)), Node((top,), fails=n == 40), Node((top + 1, top + 2))]
    ids = await bench.submit(nodes)
    await bench.run(nodes, ids)
    assert await bench.statuses(ids) == reference(nodes)
    assert reference(nodes).count(Status.SUCCEEDED) == 3 * 40 + 2
    await check_quiet(bench, ids)


def random_graph(count: int, seed: int) -> list[Node]:
    chance = random.Random(seed)
    nodes: list[Node] = []
    for n in range(count):
        wide = chance.random() < 0.01
        degree = min(n, chance.randrange(50) if wide else chance.choice((0, 1, 1, 2, 2, 3, 5)))
        near = range(max(0, n - 60), n)

        def before(n: int = n, near: range = near) -> int:
            return chance.choice(near) if chance.random() < 0.8 else chance.randrange(n)

        after = {before() for _ in range(degree)}
        rule = chance.choice(PUBLISHED) if chance.random() < 0.4 else Rule.ALL_SUCCEEDED
        nodes.append(Node(tuple(sorted(after)), rule, chance.random() < 0.05))
    return nodes


@pytest.mark.parametrize("chaotic", [False, True])
async def test_random_graphs_with_failures(bench: Bench, chaotic: bool) -> None:
    nodes = random_graph(RANDOM_NODES, seed=7 + chaotic)
    expected = reference(nodes)
    assert len(set(expected)) == 3
    ids = await bench.submit(nodes)
    await bench.run(nodes, ids, random.Random(3) if chaotic else None)
    found = await bench.statuses(ids)
    wrong = [
        (n, nodes[n], a, b) for n, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b
    ]
    assert wrong == []
    await check_quiet(bench, ids)


async def check_quiet(bench: Bench, ids: list[bytes]) -> None:
    """All terminal, and nothing is left to do."""
    rows = await bench.rows(ids)
    assert all(row.terminal and row.next_check_at is None for row in rows)
