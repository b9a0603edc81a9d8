"""What a store must do for schedules; the same rules as in port.py: batches, one transaction a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..domain.errors import AlreadyExists, InvalidArgument, MainspringError, NotFound
from ..domain.schedule import LedgerRow, Outcome, Plan, Schedule, View
from ..domain.task import IdempotencyKey, Inserted, Written
from ..ids import text_of

Decide = Callable[[View], Plan]
"""Pure: may be called again with a fresh view."""


class Visited(NamedTuple):
    """A plan that was applied, and what its changes and inserts came to (for the effects).

    `unsettled`: new tasks some of whose predecessors had ended before the edges were stored. Nobody
    will tell them; the caller settles them (Edges.waiting). The others are told as usual.
    """

    plan: Plan
    before: View
    written: Sequence[Written]
    inserted: Sequence[Inserted]
    unsettled: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class ScheduleKey:
    """A schedule to be inserted with its idempotency key, if one was sent."""

    schedule: Schedule
    idempotency: IdempotencyKey | None = None


class KeyTaken(AlreadyExists):
    """The key of an instance that a plan inserts stands for an earlier one, of the same request."""

    def __init__(self, first: bytes) -> None:
        super().__init__("IDEMPOTENCY_KEY_KNOWN", f"the key stands for {text_of(first)}")
        self.first = first


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

    async def next_schedule_check(self, shards: Sequence[int]) -> int | None:
        """The smallest next_check_at of these shards; None if there is nothing to come."""

    async def other_zones(self, tz_version: str, limit: int) -> list[bytes]:
        """Live schedules whose times were computed with another tz database, in id order."""

    async def visit(self, ids: Sequence[bytes], decide: Decide) -> list[Visited | None]:
        """Lock each schedule, decide, apply, in one transaction for all; None where it is unknown.

        Schedules are locked in id order, before any task. A batch that one schedule breaks is the
        caller's to split. The tasks that a plan inserts or changes are locked in id order after
        all schedules. An id that is given twice is visited once, and answered twice. A ledger row
        that has an outcome is never written again: a plan that tries raises FailedPrecondition.
        A plan whose `schedule` is None leaves the row alone, with what was noted of its instances.
        New tasks may bring idempotency keys: one that is known raises KeyTaken, one that is known
        for another request AlreadyExists IDEMPOTENCY_KEY_REUSED.
        """

    async def key_holder(self, key: IdempotencyKey) -> bytes | None:
        """The task or schedule that a key stands for; None if it is free.

        Raises:
            AlreadyExists: IDEMPOTENCY_KEY_REUSED, it was used for another request.
        """

    async def defer_schedules(self, ids: Sequence[bytes], next_check_at: int) -> None:
        """Move the next visit of live schedules, without looking at what they are made of."""

    async def ledger(
        self, schedule_id: bytes, before: tuple[int, int, int] | None, limit: int
    ) -> list[LedgerRow]:
        """Newest first, below the key (nominal_at, source, sequence)."""

    async def ledger_counts(self, schedule_id: bytes) -> Mapping[Outcome, int]:
        """How many nominal times came to what."""

    async def purge_ledger(self, before: int, limit: int) -> int:
        """Delete rows with an outcome older than this, and ended schedules without rows."""


def holder_of(key: IdempotencyKey, request_hash: bytes, holder: bytes) -> bytes:
    """The holder of a key that is known, if it was made by the same request."""
    if request_hash != key.request_hash:
        name = text_of(holder)
        raise AlreadyExists(
            "IDEMPOTENCY_KEY_REUSED",
            f"the idempotency key was used within 24 h for another request, {name}: use a new one",
            field="idempotency_key",
            metadata={"task_id": name},
        )
    return holder


def refused_predecessor(task_id: bytes, *, schedule: bool) -> MainspringError:
    """Why nothing can depend on this id of the caller's namespace."""
    name = text_of(task_id)
    if schedule:
        return InvalidArgument(
            "PREDECESSOR_IS_SCHEDULE",
            f"{name} is a schedule, which never ends as a task does; name one of its instances",
            metadata={"task_id": name},
        )
    return NotFound(
        "PREDECESSOR_NOT_FOUND", f"no task {name} to depend on", metadata={"task_id": name}
    )
