"""The SQLite adapter of the ScheduleStore port, on the connections of its SqliteStore."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ...clock import Clock
from ...domain.schedule import LedgerRow, Outcome, Schedule
from ...domain.task import IdempotencyKey, Inserted
from ..schedules import Decide, ScheduleKey, Visited, holder_of
from . import ledger, schedules, visits
from .insert import holders_of
from .writer import Work

R = TypeVar("R")

VISIT_ITEMS = 10
"""A visit weighs as much as so many plain writes: the loop gets its turn in between."""


class Write(Protocol):
    """One call of the writer."""

    def __call__(self, work: Work[R], items: int = 1) -> Awaitable[R]:
        """What the work answers, once it is durable."""


class LookUp(Protocol):
    """A short read, at once."""

    def __call__(self, read: Callable[[sqlite3.Connection], R]) -> R:
        """What it finds."""


class Scan(Protocol):
    """A read that may take long, in a thread."""

    def __call__(self, read: Callable[[sqlite3.Connection], R]) -> Awaitable[R]:
        """What it finds."""


class SqliteSchedules:
    """See ScheduleStore."""

    def __init__(self, write: Write, look_up: LookUp, scan: Scan, clock: Clock) -> None:
        self._write = write
        self._look_up = look_up
        self._scan = scan
        self._clock = clock

    async def insert_schedules(self, new: Sequence[ScheduleKey]) -> list[Inserted]:
        """See ScheduleStore."""
        return await self._write(lambda db, now: schedules.insert_schedules(db, now, new), len(new))

    async def load_schedules(
        self, ids: Sequence[bytes], *, namespace: str | None = None
    ) -> list[Schedule | None]:
        """See ScheduleStore."""
        return self._look_up(lambda db: schedules.load_schedules(db, ids, namespace))

    async def other_zones(self, tz_version: str, limit: int) -> list[bytes]:
        """See ScheduleStore."""
        return self._look_up(
            lambda db: [row[0] for row in db.execute(schedules.OTHER_ZONES, (tz_version, limit))]
        )

    async def key_holder(self, key: IdempotencyKey) -> bytes | None:
        """See ScheduleStore."""
        now = self._clock.now()
        found = self._look_up(lambda db: holders_of(db, now, [key])).get(key.digest)
        return None if found is None else holder_of(key, *found)

    async def due_schedules(self, shards: Sequence[int], limit: int) -> list[bytes]:
        """See ScheduleStore."""
        now = self._clock.now()
        return self._look_up(lambda db: schedules.due_schedules(db, now, shards, limit))

    async def next_schedule_check(self, shards: Sequence[int]) -> int | None:
        """See ScheduleStore."""
        return self._look_up(lambda db: schedules.next_schedule_check(db, shards))

    async def visit(self, ids: Sequence[bytes], decide: Decide) -> list[Visited | None]:
        """See ScheduleStore."""
        return await self._write(
            lambda db, now: visits.visit(db, now, ids, decide), VISIT_ITEMS * len(ids)
        )

    async def defer_schedules(self, ids: Sequence[bytes], next_check_at: int) -> None:
        """See ScheduleStore."""
        await self._write(lambda db, _: schedules.defer_schedules(db, ids, next_check_at), len(ids))

    async def ledger(
        self, schedule_id: bytes, before: tuple[int, int, int] | None, limit: int
    ) -> list[LedgerRow]:
        """See ScheduleStore."""
        return await self._scan(lambda db: ledger.ledger(db, schedule_id, before, limit))

    async def ledger_counts(self, schedule_id: bytes) -> Mapping[Outcome, int]:
        """See ScheduleStore."""
        return await self._scan(lambda db: ledger.ledger_counts(db, schedule_id))

    async def purge_ledger(self, before: int, limit: int) -> int:
        """See ScheduleStore."""

        def purge(db: sqlite3.Connection, _now: Any) -> int:
            return ledger.purge(db, before, limit) + schedules.purge(db, before, limit)

        return await self._write(purge, limit)
