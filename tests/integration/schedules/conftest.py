"""A node that makes, fires and runs instances over each store, on a clock that the test moves.

It is the real engine, materialiser, trigger, wheel, resolver and sweeper; only its loops are the
test's: every instant at which something is due is visited, and everything due is done.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mainspring_server.clock import VirtualClock
from mainspring_server.domain import schedule_changes
from mainspring_server.domain.calendar import CalendarSpec
from mainspring_server.domain.leases import Seat, Success, Want
from mainspring_server.domain.retry import RetryPolicy
from mainspring_server.domain.schedule import LedgerRow, Outcome, Policy, Schedule, TemplateTask
from mainspring_server.domain.task import Status, Task
from mainspring_server.engine import Engine
from mainspring_server.ids import mint
from mainspring_server.materialise.service import Materialiser
from mainspring_server.queue.claimed import ClaimedQueue
from mainspring_server.resolve.service import Resolver
from mainspring_server.schedules import Schedules
from mainspring_server.store.port import All, Field, ListQuery
from mainspring_server.store.postgres import PostgresStore
from mainspring_server.store.schedules import ScheduleKey
from mainspring_server.store.sqlite import SqliteStore
from mainspring_server.sweep.service import SweepService, SweepSettings
from mainspring_server.trigger.service import TriggerService
from mainspring_server.wheel.polled import PolledWheel
from tests.postgres import Databases

EVERY = range(64)
LEASE_MS = 5_000
TEMPLATE = TemplateTask("work", "work", 5, retry=RetryPolicy(max_attempts=10))
FOR_EVER = 2**62


class Killed(BaseException):
    """The node is gone: nothing of it may catch this and go on."""


@dataclass
class Failpoints:
    """Kills the node before or after calls of the store, `chance` of them; counts how often."""

    chance: float = 0.0
    random: random.Random = field(default_factory=random.Random)
    kills: Counter[str] = field(default_factory=Counter)

    def pass_by(self, place: str) -> None:
        if self.chance and self.random.random() < self.chance:
            self.kills[place] += 1
            raise Killed(place)


class Fragile:
    """A store whose calls pass failpoints before and after."""

    def __init__(self, inner: Any, points: Failpoints) -> None:
        self._inner = inner
        self._points = points

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "schedules":
            return Fragile(found, self._points)
        if not callable(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            self._points.pass_by(f"before {name}")
            answer = await found(*args, **options)
            self._points.pass_by(f"after {name}")
            return answer

        return call


class Node:
    """One process of all roles, with a worker that ends every task at once."""

    def __init__(self, store: Any, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        wheel = PolledWheel(store, clock, poll_ms=1_000, ahead_ms=2_000)
        self.wheel = wheel
        self.engine = Engine(store, wheel, ClaimedQueue(store), clock)
        self.resolver = Resolver(self.engine, store, clock)
        self.trigger = TriggerService(self.engine, wheel, clock, linger_ms=0)
        self.schedules = Schedules(store.schedules, self.engine)
        self.materialiser = Materialiser(self.schedules, clock)
        self.sweep = SweepService(
            self.engine, store, clock, SweepSettings(hold_ms=0), self.trigger.watermark
        )

    async def open(self) -> None:
        await self.wheel.open(EVERY)
        await self.materialiser.open(EVERY)
        await self.sweep.open(EVERY)

    async def work(self) -> None:
        """Everything that is due now, until nothing is left."""
        while await self._once():
            pass

    async def _once(self) -> bool:
        await self.wheel.refill(self.clock.now())
        made = await self.store.schedules.due_schedules(EVERY, 1)
        if made:
            await self.materialiser.run_once()
        await self.trigger.run_once()
        grants = await self.engine.claim(
            [Want(("default/work",), (Seat("w", 500),), LEASE_MS, acked=True)]
        )
        if grants:
            await self.engine.complete([Success(g.task_id, g.token, None) for g in grants])
        await self.resolver.run_once()
        return bool(made or grants)

    async def next_instant(self) -> int:
        """When something is due next."""
        check = await self.store.schedules.next_schedule_check(EVERY)
        due = await self.store.due(EVERY, FOR_EVER, 1)
        return min(check or FOR_EVER, due[0].due_at if due else FOR_EVER)


@dataclass
class Site:
    """A store that outlives its nodes."""

    store: Any
    clock: VirtualClock
    tick: Callable[[int], None]
    points: Failpoints = field(default_factory=Failpoints)
    restarts: int = 0

    async def start(self) -> Node:
        node = Node(Fragile(self.store, self.points), self.clock)
        await node.open()
        return node

    async def submit(self, expression: str, policy: Policy, **spec: Any) -> bytes:
        now = self.clock.now()
        schedule_id = mint(now, 1)[0]
        values: dict[str, Any] = {"exact": True, "start_at": now, "anchor_at": now} | spec
        calendar = CalendarSpec(expression, schedule_id=schedule_id, **values)
        schedule = Schedule(schedule_id, "default", calendar, policy, (TEMPLATE,), now, now, now)
        await self.store.schedules.insert_schedules([ScheduleKey(schedule)])
        return schedule_id

    async def end(self, schedule_id: bytes) -> None:
        """Cancel it: other schedules have the site to themselves."""
        node = await self.start()
        await node.schedules.change(
            schedule_id, "default", lambda view, mint: schedule_changes.end(view, mint, "")
        )

    async def live(self, until: int, sweep_ms: int = 0) -> None:
        """Up to an instant, restarting the node whenever it is killed; sweeping if asked to."""
        node: Node | None = None
        swept_at = self.clock.now()
        while True:
            try:
                node = node or await self.start()
                await node.work()
                if sweep_ms and self.clock.now() >= swept_at + sweep_ms:
                    await node.sweep.run_once()
                    swept_at = self.clock.now()
                    await node.work()
                coming = min(await node.next_instant(), until)
            except Killed:
                node = None
                self.restarts += 1
                continue
            if sweep_ms:
                coming = min(coming, swept_at + sweep_ms)
            if self.clock.now() >= until:
                return
            self.tick(max(coming - self.clock.now(), 1))

    async def ledger(self, schedule_id: bytes) -> list[LedgerRow]:
        """All rows but the open ones, oldest first."""
        found: list[LedgerRow] = []
        before: tuple[int, int, int] | None = None
        while True:
            rows = await self.store.schedules.ledger(schedule_id, before, 1_000)
            found += rows
            if len(rows) < 1_000:
                return [row for row in reversed(found) if row.outcome is not Outcome.OPEN]
            before = rows[-1].nominal_at, int(rows[-1].source), rows[-1].sequence

    async def tasks(self, schedule_id: bytes) -> list[Task]:
        """Every instance that was ever made."""
        where = All((Field("schedule_id", "=", schedule_id),))
        found: list[Task] = []
        after: tuple[int, bytes] | None = None
        while True:
            query = ListQuery("default", where, "create_time", False, after, 1_000)
            rows = await self.store.list_tasks(query)
            found += rows
            if len(rows) < 1_000:
                return found
            after = rows[-1].created_at, rows[-1].task_id

    async def check(self, schedule_id: bytes, nominals: list[int]) -> Mapping[Outcome, int]:
        """Each of these has exactly one outcome and at most one task, and nothing else has any."""
        rows = await self.ledger(schedule_id)
        assert [row.nominal_at for row in rows] == nominals
        tasks = [task for task in await self.tasks(schedule_id) if task.terminal]
        # One that was taken back before its time may be made again.
        made = Counter(t.nominal_at for t in tasks if t.status is not Status.CANCELLED)
        assert max(made.values(), default=0) <= 1, "two tasks for one nominal time"
        fired = {row.nominal_at for row in rows if row.outcome is Outcome.FIRED}
        ran = {task.nominal_at for task in tasks if task.status is Status.SUCCEEDED}
        assert ran == fired
        assert all((task.started_at or 0) >= task.due_at for task in tasks if task.started_at)
        return Counter(row.outcome for row in rows)


@asynccontextmanager
async def sqlite_site(
    folder: Path, start: int, _request: pytest.FixtureRequest
) -> AsyncIterator[Site]:
    clock = VirtualClock(start)
    store = SqliteStore(str(folder / "tasks.db"), clock)
    await store.open()
    try:
        yield Site(store, clock, clock.advance)
    finally:
        await store.close()


@asynccontextmanager
async def postgres_site(
    _folder: Path, start: int, request: pytest.FixtureRequest
) -> AsyncIterator[Site]:
    databases: Databases = request.getfixturevalue("databases")
    async with databases.migrated() as url:
        store = PostgresStore(url, ready_index=True)
        await store.open()
        clock = VirtualClock(start)
        store.clock_ms = start

        def tick(ms: int) -> None:
            clock.advance(ms)
            store.clock_ms = clock.now()

        try:
            yield Site(store, clock, tick)
        finally:
            await store.close()


Open = Callable[[int], AbstractAsyncContextManager[Site]]
SITES = {"sqlite": sqlite_site, "postgres": postgres_site}


@pytest.fixture(params=sorted(SITES))
def open_site(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Makes a site over each store; its clock begins where the test says."""
    return lambda start: SITES[request.param](tmp_path, start, request)


@pytest.fixture
def open_sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """The same over SQLite alone."""
    return lambda start: sqlite_site(tmp_path, start, request)
