"""The only writer of schedules, beside the engine: every change is a visit, then its effects.

A visit decides under the schedule's lock and stores all in one transaction (see domain/schedule.py).
What it inserted and changed is then passed on as the engine does it: hints, which may be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from .domain import recurrence, schedule_changes
from .domain.calendar import tzdata_version
from .domain.errors import NotFound
from .domain.instances import Mint
from .domain.schedule import LedgerRow, Outcome, Plan, Schedule, View
from .domain.task import Inserted, InsertState, Task
from .engine import Engine
from .ids import mint, text_of
from .store.schedules import ScheduleKey, ScheduleStore, Visited

log = logging.getLogger(__name__)

Operation = Callable[[View, Mint], Plan]
"""A function of domain/schedule_changes.py with its arguments bound; pure, may run again.

What it raises undoes the visit and reaches the caller.
"""


class _Behind:
    """The answer of a visit that had more to settle before it could do what was asked for."""


_BEHIND = _Behind()


class Schedules:
    """Submit, visit, change; and what people read. `changed` is called when a visit may be due."""

    def __init__(self, store: ScheduleStore, engine: Engine) -> None:
        self.store = store
        self._engine = engine
        self.changed: list[Callable[[], None]] = []

    async def submit(self, new: Sequence[ScheduleKey]) -> list[Inserted]:
        """Store schedules durably; the materialiser makes their first instances.

        One whose key is known is answered EXISTING with the first one's id, or CONFLICT.
        """
        answers = await self.store.insert_schedules(new)
        if any(answer.state is InsertState.INSERTED for answer in answers):
            self._wake()
        return answers

    async def visit(self, ids: Sequence[bytes]) -> int:
        """The materialiser's visits, in one transaction; answers how many were due."""
        visited = await self.store.visit(ids, _visit_if_due)
        await self._follow(visited)
        return sum(one is not None and one.plan.schedule is not None for one in visited)

    async def rezone(self, limit: int) -> int:
        """Take schedules over that another tz database computed; how many that were.

        One whose next time moves is reported in the log.
        """
        version = tzdata_version()
        ids = await self.store.other_zones(version, limit)
        if not ids:
            return 0
        visited = await self.store.visit(ids, _rezone)
        await self._follow(visited)
        for one in visited:
            if one is not None and one.plan.answer is not None:
                before, after = one.plan.answer
                log.warning(
                    "tz database %s, was %s: the next time of schedule %s (%s) moves from %s to %s",
                    version,
                    one.before.schedule.tz_version,
                    text_of(one.before.schedule.schedule_id),
                    one.before.schedule.spec.time_zone,
                    _shown(before),
                    _shown(after),
                )
        return len(ids)

    async def change(self, schedule_id: bytes, namespace: str, operation: Operation) -> Visited:
        """Do what a caller asks for, after settling what has passed; the plan holds its answer.

        Raises:
            NotFound: TASK_NOT_FOUND, also for a schedule of another namespace.
        """
        decide = partial(_decide_change, schedule_id, namespace, operation)
        while True:  # each round settles a page more
            (visited,) = await self.store.visit([schedule_id], decide)
            if visited is None:
                raise unknown_schedule(schedule_id)
            await self._follow([visited])
            self._wake()
            if visited.plan.answer is not _BEHIND:
                return visited

    async def load(self, ids: Sequence[bytes], namespace: str) -> list[Schedule | None]:
        """As they stand; None where unknown or of another namespace."""
        return await self.store.load_schedules(ids, namespace=namespace)

    async def history(
        self, schedule_id: bytes, before: tuple[int, int, int] | None, limit: int
    ) -> list[LedgerRow]:
        """A page of the ledger, newest first, below the key (nominal time, source, sequence)."""
        return await self.store.ledger(schedule_id, before, limit)

    async def counts(self, schedule_id: bytes) -> Mapping[Outcome, int]:
        """How many nominal times came to what."""
        return await self.store.ledger_counts(schedule_id)

    def _wake(self) -> None:
        for listener in self.changed:
            listener()

    async def _follow(self, visited: Sequence[Visited | None]) -> None:
        """Pass on what is stored, all schedules of the batch together."""
        done = [one for one in visited if one is not None]
        effects = self._engine.effects
        changes = [change for one in done for change in one.plan.changes]
        written = [state for one in done for state in one.written]
        before: dict[bytes, Task] = {task.task_id: task for one in done for task in one.before.live}
        effects.tell_dependents((change.task_id for change in changes), written)
        await effects.follow(changes, before)
        new = [task for one in done for task in one.plan.insert]
        await effects.added(new, [answer for one in done for answer in one.inserted])
        unsettled = [task_id for one in done for task_id in one.unsettled]
        if unsettled:
            try:
                await self._engine.settle(await self._engine.store.waiting(unsettled))
            except Exception:
                log.warning(
                    "%d instances are settled by the sweeper", len(unsettled), exc_info=True
                )


def unknown_schedule(schedule_id: bytes) -> NotFound:
    """No schedule by that id in the caller's namespace."""
    name = text_of(schedule_id)
    return NotFound("TASK_NOT_FOUND", f"no schedule {name}", metadata={"task_id": name})


def _mint_at(now: int) -> Mint:
    return partial(mint, now)


def _rezone(view: View) -> Plan:
    return schedule_changes.rezone(view, _mint_at(view.now))


def _shown(at: int | None) -> str:
    return "none" if at is None else f"{datetime.fromtimestamp(at / 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _visit_if_due(view: View) -> Plan:
    """Nothing for a schedule that another node has visited meanwhile."""
    check = view.schedule.next_check_at
    if check is None or check > view.now:
        return Plan()
    return recurrence.visit(view, _mint_at(view.now))


def _decide_change(schedule_id: bytes, namespace: str, operation: Operation, view: View) -> Plan:
    if view.schedule.namespace != namespace:
        raise unknown_schedule(schedule_id)
    if view.schedule.live and view.now > view.schedule.settled_at + recurrence.ON_TIME_MS:
        # So far behind that one page may not reach the present, under the state as it was.
        settled = recurrence.visit(view, _mint_at(view.now))
        if settled.schedule is not None and settled.schedule.settled_at < view.now:
            settled.answer = _BEHIND
            return settled
    return operation(view, _mint_at(view.now))
