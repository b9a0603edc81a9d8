"""What happens at the same instant on two nodes: a child runs once, never early, and never not.

Rounds run many at a time, so that each meets the batches of others; what is wrong names its round.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest

from mainspring_server.admission.limits import Limits
from mainspring_server.api.copies import retry
from mainspring_server.api.taken_down import find_copies
from mainspring_server.domain.graph import PUBLISHED, Fate, Outcomes, evaluate
from mainspring_server.domain.leases import Grant
from mainspring_server.domain.task import NewTask, Rule, Status, Waits
from mainspring_server.ids import text_of
from mainspring_server.store.port import Field

from .conftest import Bench, Node, reference, result_of

ROUNDS = int(os.environ.get("MAINSPRING_TEST_RACE_ROUNDS", "500"))
AT_ONCE = 100

pytestmark = pytest.mark.timeout(580)

Action = Callable[[], Awaitable[object]]
Pair = Sequence[Bench]


class Race:
    """Rounds under way at the same time; every grant is checked and ended as planned.

    The two nodes resolve, claim and complete beside whatever else is going on.
    """

    def __init__(self, nodes: Pair, chance: random.Random) -> None:
        self.nodes = nodes
        self.chance = chance
        self.held: dict[bytes, Grant] = {}
        """First tasks of the rounds, claimed, that end when the round says so."""
        self._plan: dict[bytes, tuple[NewTask, Status]] = {}
        self._ended: dict[bytes, Status] = {}
        self._started: set[bytes] = set()

    @property
    def tasks(self) -> list[NewTask]:
        """Those of all rounds."""
        return [task for task, _ in self._plan.values()]

    def add(self, nodes: Sequence[Node]) -> list[NewTask]:
        """The tasks of a round, not submitted yet."""
        bench, made = self.nodes[0], list[NewTask]()
        for node, end in zip(nodes, reference(nodes), strict=True):
            waits = Waits(tuple(made[n].task_id for n in node.after), node.rule)
            task = bench.new(waits if node.after else None)
            made.append(task)
            self._plan[task.task_id] = task, end
        return made

    async def submit(self, tasks: Sequence[NewTask]) -> None:
        """As one graph, to any node."""
        await self.chance.choice(self.nodes).engine.submit_graph(tasks)

    async def hold(self) -> None:
        """Claim what is ready now; it ends when `end` says so."""
        while grants := await self.nodes[0].claim():
            self.held |= {grant.task_id: grant for grant in grants}

    async def end(self, task: NewTask, times: int = 1) -> None:
        """The worker reports the end of a held task, and again and again."""
        await asyncio.gather(*(self._complete(self.held[task.task_id]) for _ in range(times)))

    async def replay(self, task: NewTask) -> None:
        """A node hears, rightly or not, that a task has ended."""
        self.chance.choice(self.nodes).engine.replay([task.task_id])

    async def run(self, actions: list[Action]) -> None:
        """All of it at once, in any order, until nothing is left to do."""
        self.chance.shuffle(actions)
        under_way = asyncio.gather(*(action() for action in actions))
        busy = True
        while busy:
            over = under_way.done()
            busy = any(await asyncio.gather(*map(self._turn, self.nodes))) or not over
        await under_way

    async def _turn(self, node: Bench) -> bool:
        """What a node does all the time; true if there was something to do."""
        told = node.resolver.pending > 0
        await node.resolver.run_once()
        grants = await node.claim(self.chance.randrange(1, 30))
        for grant in grants:
            await self._check_start(node, grant)
        await asyncio.gather(*map(self._complete, grants))
        return told or bool(grants)

    async def _check_start(self, node: Bench, grant: Grant) -> None:
        task, _ = self._plan[grant.task_id]
        name = text_of(grant.task_id)
        assert grant.task_id not in self._started, f"{name} was started twice"
        self._started.add(grant.task_id)
        if task.waits:
            before = task.waits.predecessors
            reported = Outcomes.of(map(self._reported, before))
            assert evaluate(task.waits.rule, reported) is Fate.RUN, f"{name} was started too early"
            stored = Outcomes.of(await node.statuses(before))
            assert evaluate(task.waits.rule, stored) is Fate.RUN, f"{name} was started too early"

    def _reported(self, task_id: bytes) -> Status | None:
        """How a task has ended, or is just ending; what never runs is only in the store."""
        end = self._plan[task_id][1]
        return end if end is Status.CANCELLED else self._ended.get(task_id)

    async def _complete(self, grant: Grant) -> None:
        task, end = self._plan[grant.task_id]
        self._ended[task.task_id] = end
        node = self.chance.choice(self.nodes)
        await node.engine.complete([result_of(grant, fails=end is Status.FAILED)])

    async def check(self) -> None:
        """Every task has ended as the reference says, and nothing is left to do."""
        ran = self._started | self.held.keys()
        for row in await self.nodes[0].rows(self._plan):
            assert row.status is self._plan[row.task_id][1], f"{text_of(row.task_id)}: {row}"
            assert row.next_check_at is None
            assert row.attempts == (row.task_id in ran)


def rule(chance: random.Random) -> Rule:
    return Rule.ALL_SUCCEEDED if chance.random() < 0.5 else chance.choice(PUBLISHED)


def rounds(seed: int) -> list[tuple[random.Random, int]]:
    """A source of chance for each group of rounds that run at once, and their number."""
    sizes = [min(AT_ONCE, ROUNDS - start) for start in range(0, ROUNDS, AT_ONCE)]
    return [(random.Random(f"{seed} {n}"), size) for n, size in enumerate(sizes)]


async def test_two_predecessors_that_end_at_the_same_instant(pair: Pair) -> None:
    for chance, size in rounds(1):
        race = Race(pair, chance)
        actions: list[Action] = []
        late: list[Action] = []
        for _ in range(size):
            a, b = Node(fails=chance.random() < 0.2), Node(fails=chance.random() < 0.2)
            tasks = race.add([a, b, Node((0, 1), rule(chance)), Node((2,), Rule.ALL_DONE)])
            await race.submit(tasks)
            actions.append(partial(race.end, tasks[0]))
            (late if chance.random() < 0.1 else actions).append(partial(race.end, tasks[1]))
        await race.hold()
        await race.run(actions)
        await race.run(late)
        await race.check()


async def test_d1_a_child_submitted_at_the_instant_its_parent_ends(pair: Pair) -> None:
    """D1: the child finds its parent alive or ended, and neither is missed."""
    for chance, size in rounds(2):
        race = Race(pair, chance)
        actions: list[Action] = []
        for _ in range(size):
            nodes = [Node(fails=chance.random() < 0.2), Node((0,)), Node((0,), rule(chance))]
            parent, *children = race.add([*nodes, Node((2, 0), Rule.ALL_DONE)])
            # A parent that is known as one already must be locked by its next child all the same.
            before = [children.pop(0)] if chance.random() < 0.5 else []
            await race.submit([parent, *before])
            actions.append(partial(race.end, parent))
            node = chance.choice(pair)
            if chance.random() < 0.5:
                actions.append(partial(race.submit, children))
            else:
                actions.append(partial(submit_apart, node, children))
        await race.hold()
        await race.run(actions)
        await race.check()


async def submit_apart(node: Bench, tasks: Sequence[NewTask]) -> None:
    """One after the other, in batches with those of other callers."""
    for task in tasks:
        (answer,) = await node.engine.submit_waiting([task])
        assert not isinstance(answer, Exception), answer


async def test_ends_replayed_three_times_in_random_order(pair: Pair) -> None:
    for chance, size in rounds(3):
        race = Race(pair, chance)
        actions: list[Action] = []
        for _ in range(size):
            a, b = Node(fails=chance.random() < 0.2), Node(fails=chance.random() < 0.2)
            tasks = race.add([a, b, Node((0, 1), rule(chance)), Node((0, 2), rule(chance))])
            await race.submit(tasks)
            actions += [partial(race.end, task, 3) for task in tasks[:2]]
            actions += [partial(race.replay, task) for task in tasks for _ in range(3)]
        await race.hold()
        await race.run(actions)
        # And once more, when all is over: nothing moves.
        await race.run([partial(race.replay, task) for task in race.tasks for _ in range(3)])
        await race.check()


async def test_two_retries_at_the_same_instant_bring_their_common_dependents(pair: Pair) -> None:
    """Each finds them held down by the other's task; one copy of each is made all the same."""
    copied = 0
    for chance, size in rounds(4):
        race = Race(pair, chance)
        actions: list[Action] = []
        for _ in range(size // 10 or 1):
            fan = [Node(fails=True), Node(fails=True), Node((0, 1)), Node((2,)), Node((3, 0))]
            tasks = race.add(fan)
            await race.submit(tasks)
            calls = [tasks[0], tasks[1], chance.choice(tasks[:2])]
            actions += [partial(again, chance.choice(pair), task) for task in calls]
        await race.run([])
        await race.check()
        chance.shuffle(actions)
        await asyncio.gather(*(action() for action in actions))
        await check_copies(pair[0], race, copied)
        copied += len(race.tasks)


async def again(node: Bench, task: NewTask) -> None:
    answer = await retry(node.engine, node.store, task.task_id, "default", Limits())
    assert text_of(task.task_id) in answer.new_task_ids


async def check_copies(node: Bench, race: Race, before: int) -> None:
    """Each has one copy, whose edges lead to the copies of its predecessors; all of them run."""
    ids = [task.task_id for task in race.tasks]
    copies = await find_copies(node.store, "default", ids)
    assert copies.keys() == set(ids)
    new = {copy.task_id for copy in copies.values()}
    retried = Field("retry_of", "!=", bytes(16))
    ((_, made),) = await node.store.count_tasks("default", retried, None)
    assert made == len(ids) + before
    for task in race.tasks:
        edges = await node.store.edges([copies[task.task_id].task_id])
        waited = task.waits.predecessors if task.waits else ()
        assert {edge.predecessor for edge in edges} == {copies[i].task_id for i in waited}
    while grants := await node.claim():
        assert {grant.task_id for grant in grants} <= new
        await node.engine.complete([result_of(grant) for grant in grants])
        await node.resolve()
    assert set(await node.statuses(new)) == {Status.SUCCEEDED}
