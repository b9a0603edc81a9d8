"""What a store must do for schedules; the same rules as in port.py: batches, one transaction a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..domain.schedule import LedgerRow, Outcome, Plan, Schedule, View
from ..domain.task import IdempotencyKey, Inserted, Written

Decide = Callable[[View], Plan]
"""Pure: may be called again with a fresh view."""


class Visited(NamedTuple):
    """A plan that was applied, and what its changes and inserts came to (for the effects)."""

    plan: Plan
    before: View
    written: Sequence[Written]
    inserted: Sequence[Inserted]


@dataclass(frozen=True, slots=True)
class ScheduleKey:
    """A schedule to be inserted with its idempotency key, if one was sent."""

    schedule: Schedule
    idempotency: IdempotencyKey | None = None


class ScheduleStore(Protocol):
    """Schedules and their ledger."""

    async def insert_schedules(self, schedules: Sequence[ScheduleKey]) -> list[Inserted]:
        """Store new schedules. Keys as in TaskStore.insert: task ids and schedule ids share them.

        An Inserted carries the schedule's id, status PENDING and next_check_at as its due time.
        """

    async def load_schedules(
        self, ids: Sequence[bytes], *, namespace: str | None = None
    ) -> list[Schedule | None]:
        """As they stand; None where unknown or of another namespace."""

    async def due_schedules(self, shards: Sequence[int], limit: int) -> list[bytes]:
        """Schedules with next_check_at <= now (by the store's clock), soonest first."""

    async def visit(self, ids: Sequence[bytes], decide: Decide) -> list[Visited | None]:
        """Lock each schedule, decide, apply, in one transaction for all; None where it is unknown.

        Schedules are locked in id order, before any task. A batch that one schedule breaks is the
        caller's to split. The tasks that a plan inserts or changes are locked in id order after
        all schedules.
        """

    async def ledger(
        self, schedule_id: bytes, before: tuple[int, int, int] | None, limit: int
    ) -> list[LedgerRow]:
        """Newest first, below the key (nominal_at, source, sequence)."""

    async def ledger_counts(self, schedule_id: bytes) -> Mapping[Outcome, int]:
        """How many nominal times came to what."""

    async def purge_ledger(self, before: int, limit: int) -> int:
        """Delete rows with an outcome older than this, and ended schedules without rows."""
