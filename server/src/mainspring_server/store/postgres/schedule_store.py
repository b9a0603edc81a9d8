"""The PostgreSQL adapter of the ScheduleStore port, on connections of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...domain.schedule import LedgerRow, Outcome, Schedule
from ...domain.task import IdempotencyKey, Inserted
from ..schedules import Decide, ScheduleKey, Visited, holder_of
from . import ledger, schedules, visits
from .insert import KEY_HOLDER
from .pool import Door


class PostgresSchedules:
    """See ScheduleStore.

    A batch of visits holds its connection while it decides; `visits` are therefore apart from those
    of heartbeats and results. `clock` stops the time for tests.
    """

    def __init__(self, visits: Door, query: Door, clock: Callable[[], int | None]) -> None:
        self._visits = visits
        self._query = query
        self._clock = clock

    async def insert_schedules(self, new: Sequence[ScheduleKey]) -> list[Inserted]:
        """See ScheduleStore."""
        return await schedules.insert_schedules(self._visits, self._clock(), new)

    async def load_schedules(
        self, ids: Sequence[bytes], *, namespace: str | None = None
    ) -> list[Schedule | None]:
        """See ScheduleStore."""
        return await schedules.load_schedules(self._visits, ids, namespace)

    async def other_zones(self, tz_version: str, limit: int) -> list[bytes]:
        """See ScheduleStore."""
        return [row[0] for row in await self._query.rows(schedules.OTHER_ZONES, tz_version, limit)]

    async def key_holder(self, key: IdempotencyKey) -> bytes | None:
        """See ScheduleStore."""
        rows = await self._visits.rows(KEY_HOLDER, self._clock(), key.digest)
        return holder_of(key, *rows[0]) if rows else None

    async def due_schedules(self, shards: Sequence[int], limit: int) -> list[bytes]:
        """See ScheduleStore."""
        return await schedules.due_schedules(self._visits, self._clock(), shards, limit)

    async def next_schedule_check(self, shards: Sequence[int]) -> int | None:
        """See ScheduleStore."""
        return await schedules.next_schedule_check(self._visits, shards)

    async def visit(self, ids: Sequence[bytes], decide: Decide) -> list[Visited | None]:
        """See ScheduleStore."""
        return await visits.visit(self._visits, self._clock(), ids, decide)

    async def defer_schedules(self, ids: Sequence[bytes], next_check_at: int) -> None:
        """See ScheduleStore."""
        await schedules.defer_schedules(self._visits, ids, next_check_at)

    async def ledger(
        self, schedule_id: bytes, before: tuple[int, int, int] | None, limit: int
    ) -> list[LedgerRow]:
        """See ScheduleStore."""
        return await ledger.ledger(self._visits, schedule_id, before, limit)

    async def ledger_counts(self, schedule_id: bytes) -> Mapping[Outcome, int]:
        """See ScheduleStore."""
        return await ledger.ledger_counts(self._query, schedule_id)

    async def purge_ledger(self, before: int, limit: int) -> int:
        """See ScheduleStore."""
        gone = await ledger.purge(self._visits, before, limit)
        return gone + await schedules.purge(self._visits, before, limit)
