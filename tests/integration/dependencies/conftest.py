"""An engine, a resolver and a sweeper over each store, on a clock that the test moves."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mainspring_server.api.dependencies import wait_for
from mainspring_server.clock import SystemClock, VirtualClock
from mainspring_server.domain.checks import first_check
from mainspring_server.domain.graph import Fate, Outcomes, evaluate
from mainspring_server.domain.leases import Failure, Grant, Seat, Success, Want, WorkerResult
from mainspring_server.domain.retry import RetryPolicy
from mainspring_server.domain.task import (
    NewTask,
    Rule,
    Status,
    Task,
    Waits,
)
from mainspring_server.engine import Engine
from mainspring_server.ids import mint
from mainspring_server.queue.claimed import ClaimedQueue
from mainspring_server.resolve.service import Resolver
from mainspring_server.store.port import DueEntry, Store
from mainspring_server.store.postgres import PostgresStore
from mainspring_server.store.sqlite import SqliteStore
from mainspring_server.sweep.service import SweepService, SweepSettings
from tests.postgres import Databases

LANE = "default/work"


class DeafWheel:
    """A wheel that loses everything: nothing here waits for a due time."""

    async def add(self, entries: Sequence[DueEntry]) -> None:
        return None


class Node(NamedTuple):
    """One task of a graph under test: whom it waits for, how, and how it ends if it runs."""

    after: tuple[int, ...] = ()
    rule: Rule = Rule.ALL_SUCCEEDED
    fails: bool = False


HOLDS: Mapping[Rule, Callable[[set[Status]], bool]] = {
    Rule.ALL_SUCCEEDED: lambda ends: ends <= {Status.SUCCEEDED},
    Rule.ALL_DONE: lambda _: True,
    Rule.ANY_SUCCEEDED: lambda ends: Status.SUCCEEDED in ends,
    Rule.ANY_FAILED: lambda ends: Status.FAILED in ends,
    Rule.NONE_FAILED: lambda ends: Status.FAILED not in ends,
}
"""The reference: what each rule says of the ways in which all predecessors have ended."""


def reference(nodes: Sequence[Node]) -> list[Status]:
    """How each must end; nodes come after their predecessors.

    A rule that holds, or no longer can, stays so whatever follows: so the order in which
    predecessors end plays no part.
    """
    ends: list[Status] = []
    for node in nodes:
        if node.after and not HOLDS[node.rule]({ends[n] for n in node.after}):
            ends.append(Status.CANCELLED)
        else:
            ends.append(Status.FAILED if node.fails else Status.SUCCEEDED)
    return ends


def result_of(grant: Grant, *, fails: bool = False) -> WorkerResult:
    """What the worker of an attempt reports."""
    if fails:
        return Failure(grant.task_id, grant.token, "boom", "E", retryable=False)
    return Success(grant.task_id, grant.token, None)


@dataclass
class Bench:
    """One node of a cluster, with its worker."""

    store: Store
    clock: VirtualClock
    tick: Callable[[int], None]
    batch: int = 1_000

    def __post_init__(self) -> None:
        wheel: Any = DeafWheel()
        self.queue = ClaimedQueue(self.store)
        self.engine = Engine(self.store, wheel, self.queue, self.clock, self.batch)
        self.resolver = Resolver(self.engine, self.store, self.clock)
        self.sweep = SweepService(
            self.engine, self.store, self.clock, SweepSettings(hold_ms=0), lambda: None
        )

    def new(self, waits: Waits | None = None, **fields: object) -> NewTask:
        """A task that is due now, or waits."""
        now = self.clock.now()
        values: dict[str, object] = {"retry": RetryPolicy(max_attempts=1)} | fields
        task = NewTask(
            mint(now, 1)[0],
            "default",
            "work",
            "work",
            5,
            Status.READY,
            now,
            now,
            **values,  # type: ignore[arg-type]
        )
        if task.timeouts.total_ms is not None:
            task.deadline_at = now + task.timeouts.total_ms
        task.next_check_at = first_check(
            task.status, now, now, task.deadline_at, task.timeouts.queue_ms
        )
        if waits is not None:
            wait_for(task, waits)
        return task

    async def submit(self, nodes: Sequence[Node], at_once: int = 1_000) -> list[bytes]:
        """The nodes as graphs of so many tasks; edges between them are to existing tasks."""
        made: list[NewTask] = []
        for node in nodes:
            before = tuple(made[n].task_id for n in node.after)
            made.append(self.new(Waits(before, node.rule) if before else None))
        for start in range(0, len(made), at_once):
            await self.engine.submit_graph(made[start : start + at_once])
        return [task.task_id for task in made]

    async def claim(self, room: int = 1_000) -> list[Grant]:
        """Lease what is ready."""
        want = Want((LANE,), (Seat("w1", room),), 5_000, acked=True)
        return await self.engine.claim([want])

    async def resolve(self) -> None:
        """Until nobody is left to be told."""
        while await self.resolver.run_once() is not None:
            pass

    def crash(self) -> None:
        """What the node still had to tell is lost."""
        self.resolver._ended.clear()
        self.resolver._begun.clear()

    async def pass_time(self, ms: int) -> None:
        """Time passes with a sweep a second, as it does."""
        for _ in range(ms // 1_000):
            self.tick(1_000)
            await self.sweep.run_once()
            await self.resolve()

    async def rows(self, ids: Iterable[bytes]) -> list[Task]:
        """As they stand; there must be one for each."""
        listed = list(ids)
        found: list[Task] = []
        for start in range(0, len(listed), 1_000):
            rows = await self.store.load(listed[start : start + 1_000])
            found += [row for row in rows if row is not None]
        assert len(found) == len(listed)
        return found

    async def statuses(self, ids: Iterable[bytes]) -> list[Status]:
        """The same, less of it."""
        return [row.status for row in await self.rows(ids)]

    async def row(self, task_id: bytes) -> Task:
        """One of them."""
        (row,) = await self.rows([task_id])
        return row

    async def end(self, grant: Grant, *, fails: bool = False) -> None:
        """The worker reports."""
        await self.engine.complete([result_of(grant, fails=fails)])

    async def run(
        self, nodes: Sequence[Node], ids: Sequence[bytes], chaos: random.Random | None = None
    ) -> None:
        """Run all that becomes ready, and check that nothing does before its rule holds.

        With `chaos` the node loses what it had to tell now and then, and the sweeper finds it.
        """
        position = {task_id: n for n, task_id in enumerate(ids)}
        runs: Mapping[int, Status]
        ended: dict[int, Status] = {}
        runs = ended
        while True:
            grants = await self.claim()
            if not grants:
                if chaos is None or not await self._woken():
                    return
                continue
            results: list[WorkerResult] = []
            for grant in grants:
                node = nodes[position[grant.task_id]]
                if node.after:
                    statuses = [runs.get(n) for n in node.after]
                    missing = [
                        n for n, status in zip(node.after, statuses, strict=True) if not status
                    ]
                    rest = iter(await self.statuses(ids[n] for n in missing))
                    outcomes = Outcomes.of(status or next(rest) for status in statuses)
                    assert evaluate(node.rule, outcomes) is Fate.RUN, "it was started too early"
                assert position[grant.task_id] not in ended, "it was started twice"
                ended[position[grant.task_id]] = Status.FAILED if node.fails else Status.SUCCEEDED
                results.append(result_of(grant, fails=node.fails))
            await self.engine.complete(results)
            if chaos is not None and chaos.random() < 0.3:
                self.crash()
            await self.resolve()

    async def _woken(self) -> bool:
        """Let the sweeper look; true if that made something ready."""
        for _ in range(4):
            await self.pass_time(2_000)
            ready = await self.store.lane_counts("default")
            if any(counts.ready for counts in ready):
                return True
        return False


Opened = Callable[
    [Path, pytest.FixtureRequest, int, int], AbstractAsyncContextManager[Sequence[Bench]]
]


@asynccontextmanager
async def sqlite_nodes(
    folder: Path, _request: pytest.FixtureRequest, count: int, batch: int
) -> AsyncIterator[Sequence[Bench]]:
    """Engines in one process, as the file has one writer."""
    clock = VirtualClock(SystemClock().now())
    store = SqliteStore(str(folder / "tasks.db"), clock)
    await store.open()
    try:
        yield [Bench(store, clock, clock.advance, batch) for _ in range(count)]
    finally:
        await store.close()


@asynccontextmanager
async def postgres_nodes(
    _folder: Path, request: pytest.FixtureRequest, count: int, batch: int
) -> AsyncIterator[Sequence[Bench]]:
    """Engines with connections of their own to one database."""
    databases: Databases = request.getfixturevalue("databases")
    async with databases.shared("contract_True") as url, AsyncExitStack() as stack:
        stores = [PostgresStore(url, ready_index=True) for _ in range(count)]
        for store in stores:
            await store.open()
            stack.push_async_callback(store.close)
        clock = VirtualClock(await stores[0].now())

        def tick(ms: int) -> None:
            clock.advance(ms)
            for store in stores:
                store.clock_ms = clock.now()

        tick(0)
        yield [Bench(store, clock, tick, batch) for store in stores]


BACKENDS: dict[str, Opened] = {"sqlite": sqlite_nodes, "postgres": postgres_nodes}


@pytest.fixture(params=sorted(BACKENDS))
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """One node over each store."""
    async with BACKENDS[request.param](tmp_path, request, 1, 1_000) as (opened,):
        await opened.sweep.open(range(64))
        yield opened


@pytest.fixture(params=sorted(BACKENDS))
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sequence[Bench]]:
    """Two nodes over each store, whose small batches meet often."""
    async with BACKENDS[request.param](tmp_path, request, 2, 8) as opened:
        yield opened
