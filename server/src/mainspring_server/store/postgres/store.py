"""The adapter: the port's methods, each to its module and its own connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import asyncpg

from ...domain.errors import InvalidArgument
from ...domain.leases import Beat, BeatAnswer, Grant, LeaseRef, Success, Want
from ...domain.lifecycle import Change
from ...domain.task import (
    Attempt,
    Edge,
    Handed,
    Inserted,
    NewTask,
    ReadyAnswer,
    ReadyRef,
    Task,
    Waiting,
    Written,
)
from ..port import (
    DueDigest,
    DueEntry,
    Filter,
    LaneCounts,
    ListQuery,
    PausedQueue,
    ShardLease,
    WorkerRow,
)
from . import claims, edges, fleet, insert, queries, retention, transitions
from .migrate import check_schema
from .partitions import (
    AHEAD_MS,
    DEFAULT_PERIOD_DAYS,
    ensure_partitions,
    id_ms,
    retire_partitions,
)
from .pool import Door
from .ready_index import create_ready_index, has_ready_index
from .rows import CLOCK
from .schedule_store import PostgresSchedules

SUBMIT_CONNECTIONS = 2
WORK_CONNECTIONS = 3
QUERY_CONNECTIONS = 2
VISIT_CONNECTIONS = 2


class PostgresStore:
    """The store on PostgreSQL.

    `ready_index` is for the Postgres-only rung: `open` makes the two indexes by which it claims
    and finds what is due (see ready_index.py). `purge_rows` deletes finished tasks one by one as
    soon as their retention ends, instead of with their whole period. `clock_ms` stops
    the clock at a moment; only tests do that, and move it.
    """

    def __init__(
        self,
        dsn: str,
        *,
        ready_index: bool = False,
        period_days: int = DEFAULT_PERIOD_DAYS,
        purge_rows: bool = False,
        clock_ms: int | None = None,
    ) -> None:
        self.clock_ms = clock_ms
        self._wants_index = ready_index
        self._indexed = False
        self._period_days = period_days
        self._purge_rows = purge_rows
        # A flood of Submit waits for its own connections, never in front of a heartbeat.
        self._submit = Door(dsn, SUBMIT_CONNECTIONS, 10_000)
        self._work = Door(dsn, WORK_CONNECTIONS, 5_000)
        self._query = Door(dsn, QUERY_CONNECTIONS, 10_000, pinned=False)
        self._visits = Door(dsn, VISIT_CONNECTIONS, 10_000)
        self._doors = (self._submit, self._work, self._query, self._visits)
        self._scan = claims.LaneScan(self._work)
        self.schedules = PostgresSchedules(self._visits, self._query, lambda: self.clock_ms)

    @property
    def statements(self) -> int:
        """SQL statements so far, BEGIN and COMMIT included."""
        return sum(door.statements for door in self._doors)

    async def open(self) -> None:
        """Connect, check that all migrations are applied, make partitions that are missing."""
        try:
            for door in self._doors:
                await door.open()
            await check_schema(self._query)
            await self._ensure_partitions()
            if self._wants_index:
                await create_ready_index(self._submit)
            self._indexed = await has_ready_index(self._query)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Finish what runs, then disconnect."""
        for door in self._doors:
            await door.close()

    async def _ensure_partitions(self, moments: Sequence[int] = ()) -> list[str]:
        now = await self.now()
        return await ensure_partitions(self._query, now, self._period_days, moments=moments)

    async def retire_partitions(self, older_than: int) -> list[str]:
        """Drop the periods that ended by `older_than`; what lives in them is carried over."""
        return await retire_partitions(self._query, older_than)

    # --- TaskStore

    async def now(self) -> int:
        """PostgreSQL's clock in ms."""
        if self.clock_ms is not None:
            return self.clock_ms
        return int((await self._work.rows(f"SELECT {CLOCK}"))[0][0])

    async def insert(self, tasks: Sequence[NewTask]) -> list[Inserted]:
        """See the port. Ids from before the newest period or up to four weeks ahead find one."""
        return await self._placed(tasks, insert.insert)

    async def _placed(
        self,
        tasks: Sequence[NewTask],
        store: Callable[[Door, int | None, Sequence[NewTask]], Awaitable[list[Inserted]]],
    ) -> list[Inserted]:
        try:
            return await store(self._submit, self.clock_ms, tasks)
        except asyncpg.CheckViolationError as error:
            if not insert.no_partition(error):
                raise InvalidArgument("FIELD_INVALID", "the store refuses a value of this task")
        # The partitions were not made ahead (nobody purged for weeks): make them now.
        moments = sorted({id_ms(task.task_id) for task in tasks})
        if moments[-1] > await self.now() + 2 * AHEAD_MS:
            raise InvalidArgument("TASK_ID_INVALID", "the time in a task id lies in the far future")
        await self._ensure_partitions(moments)
        return await store(self._submit, self.clock_ms, tasks)

    async def load(
        self, ids: Sequence[bytes], *, payload: bool = False, namespace: str | None = None
    ) -> list[Task | None]:
        """See the port."""
        return await queries.load(self._work, ids, namespace, payload=payload)

    async def make_ready(self, ids: Sequence[bytes], lead_ms: int = 0) -> list[ReadyAnswer]:
        """See the port."""
        return await transitions.make_ready(self._work, self.clock_ms, ids, lead_ms)

    async def claim(self, refs: Sequence[ReadyRef], want: Want) -> list[Grant]:
        """See the port."""
        return await claims.claim(self._work, self.clock_ms, refs, want)

    async def claim_lanes(self, wants: Sequence[Want], turn: int) -> list[Grant]:
        """See the port. Without the ready index it scans, from where the last call stopped."""
        if self._indexed:
            return await claims.claim_lanes(self._work, self.clock_ms, wants, turn)
        return await self._scan.claim(self.clock_ms, wants, turn)

    async def succeed(self, results: Sequence[Success]) -> list[Written]:
        """See the port."""
        return await transitions.succeed(self._work, self.clock_ms, results)

    async def apply(self, changes: Sequence[Change]) -> list[Written]:
        """See the port."""
        return await transitions.apply(self._work, self.clock_ms, changes)

    async def extend(self, beats: Sequence[Beat]) -> list[BeatAnswer]:
        """See the port."""
        return await transitions.extend(self._work, self.clock_ms, beats)

    async def acknowledge(self, leases: Sequence[LeaseRef]) -> None:
        """See the port."""
        await transitions.acknowledge(self._work, leases)

    async def due(
        self, shards: Sequence[int], until: int, limit: int, since: int = 0
    ) -> list[DueEntry]:
        """See the port."""
        span = queries.DueSpan(shards, until, since)
        return await queries.due(self._work, self.clock_ms, span, limit, indexed=self._indexed)

    async def due_digest(self, shards: Sequence[int], since: int, until: int) -> list[DueDigest]:
        """See the port."""
        span = queries.DueSpan(shards, until, since)
        return await queries.due_digest(self._work, self.clock_ms, span)

    async def overdue(
        self, shards: Sequence[int], until: int, after: tuple[int, bytes] | None, limit: int
    ) -> list[Task]:
        """See the port."""
        return await queries.overdue(self._work, shards, until, after, limit)

    async def defer(self, checks: Sequence[tuple[bytes, int, int]]) -> None:
        """See the port."""
        await transitions.defer(self._work, checks)

    async def republish(self, ids: Sequence[tuple[bytes, int]]) -> list[ReadyRef | None]:
        """See the port."""
        return await transitions.republish(self._work, self.clock_ms, ids)

    # --- Edges

    async def insert_graph(self, tasks: Sequence[NewTask]) -> list[Inserted]:
        """See the port."""
        return await self._placed(tasks, edges.insert_graph)

    async def resolve(
        self, predecessors: Sequence[bytes], after: bytes | None, limit: int
    ) -> list[Waiting]:
        """See the port."""
        return await edges.resolve(self._work, predecessors, after, limit)

    async def waiting(self, ids: Sequence[bytes]) -> list[Waiting]:
        """See the port."""
        return await edges.waiting(self._work, ids)

    async def told(self, ids: Sequence[bytes]) -> None:
        """See the port."""
        await edges.told(self._work, ids)

    async def predecessors(self, ids: Sequence[bytes]) -> dict[bytes, list[Handed]]:
        """See the port."""
        return await edges.predecessors(self._work, ids)

    async def edges(self, downstream: Sequence[bytes]) -> list[Edge]:
        """See the port."""
        return await edges.edges(self._query, downstream)

    async def dependents(self, predecessors: Sequence[bytes], limit: int) -> list[Edge]:
        """See the port."""
        return await edges.dependents(self._query, predecessors, limit)

    # --- TaskQueries

    async def list_tasks(self, query: ListQuery) -> list[Task]:
        """See the port."""
        return await queries.list_tasks(self._query, query)

    async def count_tasks(
        self, namespace: str, where: Filter, group_by: str | None
    ) -> list[tuple[str | int | None, int]]:
        """See the port."""
        return await queries.count_tasks(self._query, namespace, where, group_by)

    async def attempts(self, task_id: bytes, after: int, limit: int) -> list[Attempt]:
        """See the port."""
        return await queries.attempts(self._query, task_id, after, limit)

    async def lane_counts(self, namespace: str) -> list[LaneCounts]:
        """See the port."""
        return await queries.lane_counts(self._query, namespace)

    async def purge(self, completed_before: int, limit: int) -> int:
        """See the port. It also makes partitions ahead and drops those that are past retention."""
        await self._ensure_partitions()
        return await retention.purge(
            self._query,
            self.clock_ms,
            completed_before,
            limit,
            every_row=self._purge_rows,
        )

    # --- QueueStore

    async def pause(self, lane: str, reason: str) -> None:
        """See the port."""
        await fleet.pause(self._query, self.clock_ms, lane, reason)

    async def resume(self, lane: str) -> bool:
        """See the port."""
        return await fleet.resume(self._query, lane)

    async def paused(self) -> list[PausedQueue]:
        """See the port."""
        return await fleet.paused(self._query)

    async def save_workers(self, rows: Sequence[WorkerRow], gone: Sequence[str]) -> None:
        """See the port."""
        await fleet.save_workers(self._query, self.clock_ms, rows, gone)

    async def workers(self, namespace: str) -> list[WorkerRow]:
        """See the port."""
        return await fleet.workers(self._query, self.clock_ms, namespace)

    # --- ShardLeases

    async def acquire(self, names: Sequence[str], owner: str, ttl_ms: int) -> list[ShardLease]:
        """See the port."""
        return await fleet.acquire(self._work, self.clock_ms, names, owner, ttl_ms)

    async def release(self, leases: Sequence[ShardLease]) -> None:
        """See the port."""
        await fleet.release(self._work, self.clock_ms, leases)

    async def shard_leases(self, *prefixes: str) -> list[ShardLease]:
        """See the port."""
        return await fleet.shard_leases(self._work, self.clock_ms, prefixes)
