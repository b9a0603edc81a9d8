"""Finds rows whose next step was lost and takes that step again.

It reaps dead leases, ends timeouts, repairs what the wheel or the ready queue lost, and moves the
check of healthy rows. It reads from a remembered low-water key so that dead index entries are not
walked at every pass, and from the beginning once a minute. Nothing is reaped for one lease length
after its own start or after the store was away: a worker could not have beaten meanwhile.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..clock import Clock
from ..domain.checks import GRACE_MS, Finding, examine
from ..domain.task import ReadyRef, Status, Task
from ..engine import Engine
from ..service import Service
from ..store.port import TaskStore
from ..trigger.ownership import ShardOwner

log = logging.getLogger(__name__)

BEHIND_MS = 30_000
FULL_SCAN_MS = 60_000
BACKLOG_ROWS = 1_000
"""A lane with more unclaimed records than this is rechecked less often."""

_EXPIRIES = frozenset(
    {
        Finding.LEASE_EXPIRED,
        Finding.RUN_TIMEOUT,
        Finding.QUEUE_TIMEOUT,
        Finding.TOTAL_TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """`hold_ms` is one lease length; `page` rows are read at a time, `pages` at most in a pass."""

    interval_ms: int = 1_000
    hold_ms: int = 60_000
    page: int = 1_000
    pages: int = 20


class SweepOwner(ShardOwner):
    """Which shards this node sweeps, by leases of their own."""

    name = "sweep owner"
    node_prefix = "sweep/"
    shard_prefix = "sweep-shard/"


class SweepService(Service):
    """One pass a second over the rows of the open shards whose check is due."""

    name = "sweep"

    def __init__(
        self,
        engine: Engine,
        store: TaskStore,
        clock: Clock,
        settings: SweepSettings,
        watermark: Callable[[], int | None],
    ) -> None:
        super().__init__(clock)
        self._engine = engine
        self._store = store
        self._settings = settings
        self._shards: Sequence[int] = ()
        self._watermark = watermark
        self._low: tuple[int, bytes] | None = None
        self._full_at = 0
        self._met: Counter[str] = Counter()  # READY rows of this pass by lane
        self._met_before: Counter[str] = Counter()
        self._hold_until = 0
        self._started = False
        self.oldest_age_ms = 0
        """Age of the oldest find of the last pass: an alarm when it grows."""

    async def open(self, shards: Sequence[int]) -> None:
        """Sweep these shards from now on."""
        self._shards = shards
        self._full_at = 0
        self.wake.set()

    async def run_once(self) -> int:
        """One pass over what is due for a check."""
        try:
            now = await self._store.now()
        except Exception:
            self._started = False  # the store is away: hold the reaper when it comes back
            raise
        if not self._started:
            self._started = True
            self._hold_until = now + self._settings.hold_ms
        if not self._shards:
            return self.clock.now() + self._settings.interval_ms
        if now >= self._full_at:
            self._low, self._full_at = None, now + FULL_SCAN_MS
        await self._sweep(now)
        return self.clock.now() + self._settings.interval_ms

    def _until(self, now: int) -> int:
        """Out of the way of a trigger that is merely behind, but never for longer than 30 s."""
        mark = self._watermark()
        return now if mark is None else min(now, max(mark, now - BEHIND_MS))

    async def _sweep(self, now: int) -> None:
        shards = self._shards
        self._met, self._met_before = Counter(), self._met
        until = self._until(now)
        after, oldest = self._low, now
        for _ in range(self._settings.pages):
            rows = await self._store.overdue(shards, until, after, self._settings.page)
            if not rows:
                break
            oldest = min(oldest, rows[0].next_check_at or now)
            after = (rows[-1].next_check_at or now, rows[-1].task_id)
            await self._handle(rows, now)
            if len(rows) < self._settings.page:
                break
        self.oldest_age_ms = now - oldest
        # rows below were moved or ended; those that could not be are met again by the full scan
        self._low = after

    async def _handle(self, rows: Sequence[Task], now: int) -> None:
        deep = await self._deep_lanes(rows)
        found: dict[Finding, list[Task]] = {}
        moved: list[tuple[bytes, int, int]] = []
        for row in rows:
            finding, at = examine(row, now, backlog=row.lane in deep)
            if finding is Finding.LEASE_EXPIRED and now < self._hold_until:
                finding, at = Finding.HEALTHY, self._hold_until
            found.setdefault(finding, []).append(row)
            if finding is Finding.OVERDUE:
                moved.append((row.task_id, row.version + 1, now + 1))  # READY: check it next
            elif finding in _EXPIRIES:
                # refused if a late beat revived the lease: then it is met again
                moved.append((row.task_id, row.version, now + self._settings.interval_ms))
            else:
                moved.append((row.task_id, row.version, max(at, now + GRACE_MS // 2)))
        await self._act(found)
        await self._store.defer(moved)

    async def _act(self, found: Mapping[Finding, Sequence[Task]]) -> None:
        """Take the steps that were lost."""
        engine = self._engine
        if overdue := found.get(Finding.OVERDUE):
            await engine.make_ready([row.task_id for row in overdue])
        if unclaimed := found.get(Finding.UNCLAIMED):
            await self._repair(unclaimed)
        expired = [(row, kind) for kind in _EXPIRIES for row in found.get(kind, ())]
        if expired:
            await engine.expire(expired)
        if waiting := found.get(Finding.WAITING):
            await engine.settle(await engine.store.waiting([row.task_id for row in waiting]))
        if ended := found.get(Finding.FINISHED):
            engine.replay([row.task_id for row in ended])

    async def _deep_lanes(self, rows: Sequence[Task]) -> set[str]:
        """Lanes with a long queue, as the ready queue counts or as this sweep itself has met."""
        met = Counter(row.lane for row in rows if row.status is Status.READY)
        if not met:
            return set()
        self._met += met
        depth = await self._engine.queue.backlog(sorted(met))
        counted = {lane for lane, count in depth.items() if count > BACKLOG_ROWS}
        return counted | {
            lane for lane in met if max(self._met[lane], self._met_before[lane]) > BACKLOG_ROWS
        }

    async def _repair(self, rows: Sequence[Task]) -> None:
        """Publish again what the ready queue has lost; the rest is looked at later."""
        refs = [
            ReadyRef(r.task_id, r.version, r.lane, r.priority, r.due_at, r.published_at or 0)
            for r in rows
        ]
        lost = await self._engine.queue.lost(refs)
        again = [row for row, gone in zip(rows, lost, strict=True) if gone]
        if again:
            log.info("%d ready tasks were lost on the way and are published again", len(again))
            await self._engine.republish(again)
