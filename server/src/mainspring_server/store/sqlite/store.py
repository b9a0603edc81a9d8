"""The SQLite adapter of the Store port: which connection and thread serves which method."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ...clock import Clock
from ...domain.errors import Unavailable
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
from . import claims, edges, insert, ownership, queries, retention, transitions, waiting
from .connection import FileLock, is_operational, open_reader, open_writer, unavailable
from .schedule_store import SqliteSchedules
from .threads import SerialThread
from .writer import Work, Writer

R = TypeVar("R")


class SqliteStore:
    """One file, exclusively; see the port for what the methods promise.

    Writes go through the Writer. Short reads by key (`load`, `due`, `overdue`, the small tables)
    run at once on a connection of their own; lists and counts, which may scan, on another in a
    thread, so that they hold up neither the writer nor the loop.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock = FileLock(path)
        self._open: _Opened | None = None
        self.schedules = SqliteSchedules(self._write, self._look_up, self._scan, clock)

    async def open(self) -> None:
        """Lock the file, create the schema if it is new, start the threads."""
        self._lock.take()
        db: sqlite3.Connection | None = None
        try:
            db = open_writer(self._path)
            self._open = _Opened(self._path, db, self._clock)
        except (sqlite3.Error, Unavailable) as error:
            if db is not None:
                db.close()
            self._lock.release()
            raise error if isinstance(error, Unavailable) else unavailable(self._path, error)

    async def close(self) -> None:
        """Commit what waits, fold the log into the file, give the file free."""
        opened, self._open = self._open, None
        if opened is not None:
            try:
                await opened.close()
            finally:
                self._lock.release()

    @property
    def _opened(self) -> _Opened:
        if self._open is None:
            raise Unavailable("STORE_UNAVAILABLE", f"the task store {self._path} is not open")
        return self._open

    async def _write(self, work: Work[R], items: int = 1) -> R:
        return await self._opened.writer.run(work, items)

    def _look_up(self, read: Callable[[sqlite3.Connection], R]) -> R:
        return self._guard(read, self._opened.lookups)

    async def _scan(self, read: Callable[[sqlite3.Connection], R]) -> R:
        opened = self._opened
        return await opened.scanner.submit(partial(self._guard, read, opened.scans))

    def _guard(self, read: Callable[[sqlite3.Connection], R], db: sqlite3.Connection) -> R:
        try:
            return read(db)
        except sqlite3.Error as error:
            if is_operational(error):
                raise unavailable(self._path, error)
            raise

    def _span(self, since: int, until: int) -> waiting.Span:
        return since, until, max(since, self._clock.now())

    # --- TaskStore ---

    async def now(self) -> int:
        """See TaskStore."""
        return self._clock.now()

    async def insert(self, tasks: Sequence[NewTask]) -> list[Inserted]:
        """See TaskStore."""
        return await self._write(lambda db, now: insert.insert(db, now, tasks), len(tasks))

    async def load(
        self, ids: Sequence[bytes], *, payload: bool = False, namespace: str | None = None
    ) -> list[Task | None]:
        """See TaskStore."""
        return self._look_up(lambda db: queries.load(db, ids, payload=payload, namespace=namespace))

    async def make_ready(self, ids: Sequence[bytes], lead_ms: int = 0) -> list[ReadyAnswer]:
        """See TaskStore."""
        return await self._write(
            lambda db, now: waiting.make_ready(db, now, ids, lead_ms), len(ids)
        )

    async def claim(self, refs: Sequence[ReadyRef], want: Want) -> list[Grant]:
        """See TaskStore."""
        return await self._write(lambda db, now: claims.claim(db, now, refs, want), len(refs))

    async def claim_lanes(self, wants: Sequence[Want], turn: int) -> list[Grant]:
        """See TaskStore."""
        room = sum(seat.room for want in wants for seat in want.seats)
        return await self._write(lambda db, now: claims.claim_lanes(db, now, wants, turn), room)

    async def succeed(self, results: Sequence[Success]) -> list[Written]:
        """See TaskStore."""
        return await self._write(
            lambda db, now: transitions.succeed(db, now, results), len(results)
        )

    async def apply(self, changes: Sequence[Change]) -> list[Written]:
        """See TaskStore."""
        return await self._write(lambda db, now: transitions.apply(db, now, changes), len(changes))

    async def extend(self, beats: Sequence[Beat]) -> list[BeatAnswer]:
        """See TaskStore."""
        return await self._write(lambda db, now: transitions.extend(db, now, beats), len(beats))

    async def acknowledge(self, leases: Sequence[LeaseRef]) -> None:
        """See TaskStore."""
        await self._write(lambda db, now: transitions.acknowledge(db, now, leases), len(leases))

    async def due(
        self, shards: Sequence[int], until: int, limit: int, since: int = 0
    ) -> list[DueEntry]:
        """See TaskStore."""
        return self._look_up(lambda db: waiting.due(db, shards, self._span(since, until), limit))

    async def due_digest(self, shards: Sequence[int], since: int, until: int) -> list[DueDigest]:
        """See TaskStore."""
        return self._look_up(lambda db: waiting.due_digest(db, shards, self._span(since, until)))

    async def overdue(
        self, shards: Sequence[int], until: int, after: tuple[int, bytes] | None, limit: int
    ) -> list[Task]:
        """See TaskStore."""
        return self._look_up(lambda db: waiting.overdue(db, shards, until, after, limit))

    async def defer(self, checks: Sequence[tuple[bytes, int, int]]) -> None:
        """See TaskStore."""
        await self._write(lambda db, now: waiting.defer(db, now, checks), len(checks))

    async def republish(self, ids: Sequence[tuple[bytes, int]]) -> list[ReadyRef | None]:
        """See TaskStore."""
        return await self._write(lambda db, now: waiting.republish(db, now, ids), len(ids))

    # --- Edges ---

    async def insert_graph(self, tasks: Sequence[NewTask]) -> list[Inserted]:
        """See Edges."""
        return await self._write(lambda db, now: edges.insert_graph(db, now, tasks), len(tasks))

    async def resolve(
        self, predecessors: Sequence[bytes], after: bytes | None, limit: int
    ) -> list[Waiting]:
        """See Edges."""
        return await self._write(lambda db, _: edges.resolve(db, predecessors, after, limit), limit)

    async def waiting(self, ids: Sequence[bytes]) -> list[Waiting]:
        """See Edges."""
        return await self._write(lambda db, _: edges.waiting(db, ids), len(ids))

    async def told(self, ids: Sequence[bytes]) -> None:
        """See Edges."""
        await self._write(lambda db, _: edges.told(db, ids), len(ids))

    async def predecessors(self, ids: Sequence[bytes]) -> dict[bytes, list[Handed]]:
        """See Edges."""
        return self._look_up(lambda db: edges.predecessors(db, ids))

    async def edges(self, downstream: Sequence[bytes]) -> list[Edge]:
        """See Edges."""
        return await self._scan(lambda db: edges.edges(db, downstream))

    async def dependents(self, predecessors: Sequence[bytes], limit: int) -> list[Edge]:
        """See Edges."""
        return await self._scan(lambda db: edges.dependents(db, predecessors, limit))

    # --- TaskQueries ---

    async def list_tasks(self, query: ListQuery) -> list[Task]:
        """See TaskQueries."""
        return await self._scan(lambda db: queries.list_tasks(db, query))

    async def count_tasks(
        self, namespace: str, where: Filter, group_by: str | None
    ) -> list[tuple[str | int | None, int]]:
        """See TaskQueries."""
        return await self._scan(lambda db: queries.count_tasks(db, namespace, where, group_by))

    async def attempts(self, task_id: bytes, after: int, limit: int) -> list[Attempt]:
        """See TaskQueries."""
        return await self._scan(lambda db: queries.attempts(db, task_id, after, limit))

    async def lane_counts(self, namespace: str) -> list[LaneCounts]:
        """See TaskQueries."""
        return await self._scan(lambda db: queries.lane_counts(db, namespace))

    async def purge(self, completed_before: int, limit: int) -> int:
        """See TaskQueries."""
        return await self._write(
            lambda db, now: retention.purge(db, now, completed_before, limit), limit
        )

    # --- QueueStore ---

    async def pause(self, lane: str, reason: str) -> None:
        """See QueueStore."""
        await self._write(lambda db, now: ownership.pause(db, now, lane, reason))

    async def resume(self, lane: str) -> bool:
        """See QueueStore."""
        return await self._write(lambda db, _: ownership.resume(db, lane))

    async def paused(self) -> list[PausedQueue]:
        """See QueueStore."""
        return self._look_up(ownership.paused)

    async def save_workers(self, rows: Sequence[WorkerRow], gone: Sequence[str]) -> None:
        """See QueueStore."""
        await self._write(lambda db, now: ownership.save_workers(db, now, rows, gone), len(rows))

    async def workers(self, namespace: str) -> list[WorkerRow]:
        """See QueueStore."""
        return self._look_up(lambda db: ownership.workers(db, self._clock.now(), namespace))

    # --- ShardLeases ---

    async def acquire(self, names: Sequence[str], owner: str, ttl_ms: int) -> list[ShardLease]:
        """See ShardLeases."""
        return await self._write(
            lambda db, now: ownership.acquire(db, now, names, owner, ttl_ms), len(names)
        )

    async def release(self, leases: Sequence[ShardLease]) -> None:
        """See ShardLeases."""
        await self._write(lambda db, now: ownership.release(db, now, leases), len(leases))

    async def shard_leases(self, *prefixes: str) -> list[ShardLease]:
        """See ShardLeases."""
        return self._look_up(lambda db: ownership.shard_leases(db, self._clock.now(), prefixes))


class _Opened:
    """What exists between open and close."""

    def __init__(self, path: str, db: sqlite3.Connection, clock: Clock) -> None:
        self._db = db
        self.lookups = open_reader(path)
        self.scans = open_reader(path)
        self.writer = Writer(path, db, clock)
        self.scanner = SerialThread("sqlite-scan")

    async def close(self) -> None:
        await self.writer.stop()
        await self.scanner.stop()
        self.lookups.close()
        self.scans.close()
        self._db.close()  # the last one: SQLite folds the log into the file
