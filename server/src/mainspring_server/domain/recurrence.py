"""What a visit to a schedule decides: which nominal times came to what, and which instance is next.

Pure: a `View` in, a `Plan` out. Every operation first settles the nominal times up to now under the
state as it was, so none is lost between a pause and a late materialiser; then it changes the state.
No outcome is written before its nominal time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from . import lifecycle
from .calendar import Calendar, parse
from .instances import Mint, Slot, make
from .schedule import (
    CatchUp,
    LedgerRow,
    Outcome,
    Overlap,
    Plan,
    Schedule,
    Source,
    View,
)
from .task import Status, Task

PAGE = 1_000
"""Nominal times settled in one visit at most; the rest at the next, which follows at once."""

ON_TIME_MS = 2_000
"""A nominal time that passed so recently is late, not missed: the catch-up policy is not asked."""

SPREAD_MS = 1_000
"""Between instances that are caught up together."""

PAUSED_RECHECK_MS = 3_600_000

WAITING = (Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.BUFFER_ALL)
"""The policies under which an instance waits for older ones."""


@dataclass(slots=True)
class Visit:
    """One visit under way: the plan so far, and what is live after it."""

    view: View
    schedule: Schedule
    calendar: Calendar
    mint: Mint
    plan: Plan
    live: dict[bytes, Task | None]  # None: inserted by this visit
    open: dict[tuple[int, Source, int], tuple[LedgerRow, Task | None]]
    released: set[bytes] = field(default_factory=set)

    @property
    def now(self) -> int:
        """The store's time of this visit."""
        return self.view.now

    def close(self, row: LedgerRow, outcome: Outcome, reason: str | None = None) -> None:
        """The row's outcome is known."""
        self.open.pop((row.nominal_at, row.source, row.sequence), None)
        self.plan.record.append(
            replace(row, outcome=outcome, outcome_at=self.now, reason=reason or row.reason)
        )
        if outcome is Outcome.FIRED and row.source is Source.CRON:
            self.schedule.runs += 1

    def cancel(self, task: Task, reason: str) -> None:
        """A live task is cancelled in this transaction."""
        if task.task_id in self.live:
            del self.live[task.task_id]
            if task.task_id in self.released:  # by this very visit: this comes instead
                self.plan.changes = [c for c in self.plan.changes if c.task_id != task.task_id]
            self.plan.changes.append(lifecycle.cancel(task, reason, self.now))

    def note(self, nominal_at: int, outcome: Outcome, reason: str) -> None:
        """A nominal time that makes no instance."""
        self.plan.record.append(
            LedgerRow(
                self.schedule.schedule_id,
                nominal_at,
                Source.CRON,
                0,
                None,
                self.calendar.due_at(nominal_at),
                outcome,
                self.now,
                reason,
            )
        )


def begin(view: View, mint: Mint) -> Visit:
    """A visit on a copy of the schedule: the view stays as it was."""
    schedule = replace(view.schedule)
    return Visit(
        view,
        schedule,
        parse(schedule.spec),
        mint,
        Plan(schedule=schedule),
        {task.task_id: task for task in view.live},
        {(r.nominal_at, r.source, r.sequence): (r, t) for r, t in view.open},
    )


def visit(view: View, mint: Mint) -> Plan:
    """The materialiser's own visit: settle, then make the next instance."""
    now = begin(view, mint)
    settle(now)
    return finish(now)


def settle(visit: Visit) -> None:
    """Give every nominal time up to now its outcome, under the state as it stands."""
    for row, task in sorted(visit.open.values(), key=lambda pair: pair[0].due_at):
        _settle_row(visit, row, task)
    if visit.schedule.live:
        _settle_passed(visit)


def finish(visit: Visit) -> Plan:
    """Make the next instance if there is to be one, and say when to come back."""
    schedule = visit.schedule
    if visit.view.failed and schedule.policy.pause_on_failure and schedule.paused_at is None:
        pause_at(visit, "an instance failed")
    if schedule.live and schedule.paused_at is None and schedule.settled_at >= visit.now:
        _make_next(visit)
    schedule.next_nominal_at = min(
        (row.nominal_at for row, _ in visit.open.values() if row.source is Source.CRON),
        default=None,
    )
    schedule.next_check_at = _next_check(visit)
    return visit.plan


# --- Rows that are open ------------------------------------------------------------------------


def _settle_row(visit: Visit, row: LedgerRow, task: Task | None) -> None:
    now = visit.now
    if task is not None and task.status is Status.CANCELLED:
        fired = (task.completed_at or now) >= row.due_at
        if row.nominal_at <= now:
            reason = None if fired else task.status_reason
            visit.close(row, Outcome.FIRED if fired else Outcome.CANCELLED, reason)
        return
    if row.due_at > now:
        return
    if task is not None and task.status is Status.CREATED and row.source is not Source.BACKFILL:
        _settle_waiting(visit, row, task)
        return
    if visit.schedule.policy.overlap is Overlap.CANCEL_OTHER:
        for other in _older(visit, row):
            visit.cancel(other, "a newer instance of its schedule took its place")
    visit.close(row, Outcome.FIRED)


def _settle_waiting(visit: Visit, row: LedgerRow, task: Task) -> None:
    """Due has passed and it still waits for older instances."""
    older = _older(visit, row)
    overlap = visit.schedule.policy.overlap
    if overlap is Overlap.SKIP:
        if older:
            _drop(visit, row, "an older instance was still running")
        else:
            for root in _roots(visit, task):
                visit.plan.changes.append(lifecycle.release(root, visit.now))
                visit.released.add(root.task_id)
            visit.close(row, Outcome.FIRED)
        return
    waiting = {t.nominal_at for t in older if t.status is Status.CREATED and t.due_at <= visit.now}
    room = 1 if overlap is Overlap.BUFFER_ONE else visit.schedule.policy.max_buffered
    if len(waiting) >= room:
        _drop(visit, row, f"{len(waiting)} older instances were waiting")
    else:
        visit.close(row, Outcome.FIRED)  # it waits its turn, the resolver releases it


def _drop(visit: Visit, row: LedgerRow, reason: str) -> None:
    for task in _instance(visit, row):
        visit.cancel(task, f"skipped: {reason}")
    visit.close(row, Outcome.SKIPPED, reason)


def _instance(visit: Visit, row: LedgerRow) -> list[Task]:
    """The live tasks of one instance: one, or a whole graph."""
    own = [task for task in visit.live.values() if task is not None]
    first = next((task for task in own if task.task_id == row.task_id), None)
    if first is None or first.graph_id is None or row.source is Source.BACKFILL:
        return [first] if first is not None else []
    return [task for task in own if task.graph_id == first.graph_id]


def _roots(visit: Visit, task: Task) -> list[Task]:
    """The tasks of an instance that wait for older instances and not for each other."""
    if task.graph_id is None:
        return [task]
    return [
        other
        for other in visit.live.values()
        if other is not None
        and other.graph_id == task.graph_id
        and other.status is Status.CREATED
        and other.rule is task.rule
        and visit.schedule.template[_position(visit, other)].predecessors == ()
    ]


def _position(visit: Visit, task: Task) -> int:
    refs = [template.local_ref for template in visit.schedule.template]
    return refs.index(task.local_ref) if task.local_ref in refs else 0


def _older(visit: Visit, row: LedgerRow) -> list[Task]:
    """Live tasks of instances that came before this one."""
    own = {task.task_id for task in _instance(visit, row)}
    return [
        task
        for task in visit.live.values()
        if task is not None
        and task.task_id not in own
        and (task.nominal_at or 0, task.task_id) < (row.nominal_at, row.task_id or b"")
    ]


# --- Nominal times that passed without a row ---------------------------------------------------


def _settle_passed(visit: Visit) -> None:
    schedule, now = visit.schedule, visit.now
    if schedule.settled_at >= now:
        return
    passed = visit.calendar.between(schedule.settled_at, now, PAGE)
    known = {row.nominal_at for row, _ in visit.view.open if row.source is Source.CRON}
    missing = [nominal for nominal in passed if nominal not in known]
    held = missing if schedule.paused_at is not None else []
    if not held and schedule.resume_from is not None:
        held = [nominal for nominal in missing if nominal < schedule.resume_from]
    for nominal in held:
        visit.note(nominal, Outcome.PAUSED, schedule.pause_note or "the schedule was paused")
    if len(held) < len(missing):
        _catch_up(visit, missing[len(held) :])
    schedule.settled_at = passed[-1] if len(passed) == PAGE else now


def _catch_up(visit: Visit, missing: list[int]) -> None:
    now, policy = visit.now, visit.schedule.policy
    chosen = _chosen(visit)
    due_at = now
    for nominal in missing:
        if _runs_left(visit) == 0:
            visit.note(nominal, Outcome.MISSED, "the schedule had made its last run")
        elif nominal >= now - ON_TIME_MS or nominal in chosen:
            add(visit, Slot(nominal, max(due_at, visit.calendar.due_at(nominal))))
            due_at += SPREAD_MS if policy.catch_up is CatchUp.ALL else 0
        elif nominal < now - policy.window_ms:
            visit.note(nominal, Outcome.MISSED, "it lay outside the catch-up window")
        elif policy.catch_up is CatchUp.NONE:
            visit.note(nominal, Outcome.MISSED, "nothing is caught up by the schedule's policy")
        else:
            visit.note(nominal, Outcome.COALESCED, "a newer missed time ran in its place")


def _chosen(visit: Visit) -> frozenset[int]:
    """The missed times that are caught up: the newest ones inside the window."""
    policy = visit.schedule.policy
    most = {CatchUp.NONE: 0, CatchUp.LATEST: 1, CatchUp.ALL: policy.max_catch_up}[policy.catch_up]
    bound = max(visit.schedule.settled_at, visit.now - policy.window_ms - 1)
    found: list[int] = []
    newest: int | None = visit.now + 1
    while len(found) < most and newest is not None:
        newest = visit.calendar.previous_before(newest)
        if newest is None or newest <= bound:
            break
        found.append(newest)
    return frozenset(found)


# --- Making instances --------------------------------------------------------------------------


def _make_next(visit: Visit) -> None:
    waiting = any(row.source is Source.CRON for row, _ in visit.open.values())
    if waiting or _runs_left(visit) == 0:
        return
    # Not before what is settled: the store's clock may have been set back since.
    begin_at = max(visit.now, visit.schedule.settled_at)
    if visit.schedule.resume_from is not None:
        begin_at = max(begin_at, visit.schedule.resume_from - 1)
    nominal = visit.calendar.next_after(begin_at)
    if nominal is not None:
        add(visit, Slot(nominal, visit.calendar.due_at(nominal)))


def _runs_left(visit: Visit) -> int | None:
    made = visit.schedule.runs + sum(r.source is Source.CRON for r, _ in visit.open.values())
    return visit.calendar.runs_left(made)


def add(visit: Visit, slot: Slot, overlap: Overlap | None = None) -> LedgerRow:
    """Insert an instance under the overlap policy; one that is due at once is settled at once."""
    policy = overlap or visit.schedule.policy.overlap
    older = before(visit, slot.nominal_at) if policy in WAITING else []
    due = slot.due_at <= visit.now
    if due and older and _refused(visit, policy):
        row = _row(visit, slot)
        visit.close(row, Outcome.SKIPPED, "an older instance was still running")
        return replace(row, outcome=Outcome.SKIPPED, outcome_at=visit.now)
    if due and policy is Overlap.CANCEL_OTHER:
        for task_id in before(visit, slot.nominal_at):
            task = visit.live[task_id]
            if task is not None:
                visit.cancel(task, "a newer instance of its schedule took its place")
    row, tasks = make(visit.schedule, slot, older, visit.now, visit.mint)
    visit.plan.insert += tasks
    visit.live.update((task.task_id, None) for task in tasks)
    visit.open[row.nominal_at, row.source, row.sequence] = (row, None)
    if due:
        visit.close(row, Outcome.FIRED)
    else:
        visit.plan.record.append(row)
    return row


def before(visit: Visit, nominal_at: int) -> list[bytes]:
    """What is live of instances up to a nominal time; the one that is made ahead is newer."""
    return sorted(
        task_id
        for task_id, task in visit.live.items()
        if task is None or (task.nominal_at or 0) <= nominal_at
    )


def _refused(visit: Visit, policy: Overlap) -> bool:
    """Something is live and the instance is due now: is there room to wait?"""
    if policy is Overlap.SKIP:
        return True
    waiting = sum(
        task is None or (task.status is Status.CREATED and task.due_at <= visit.now)
        for task in visit.live.values()
    )
    room = 1 if policy is Overlap.BUFFER_ONE else visit.schedule.policy.max_buffered
    return waiting >= room


def _row(visit: Visit, slot: Slot) -> LedgerRow:
    return LedgerRow(
        visit.schedule.schedule_id,
        slot.nominal_at,
        slot.source,
        slot.sequence,
        None,
        slot.due_at,
        Outcome.OPEN,
    )


def _next_check(visit: Visit) -> int | None:
    """The due time of the next open row; a schedule with nothing left to come has ended."""
    schedule, now = visit.schedule, visit.now
    dues = [max(row.due_at, row.nominal_at, now + 1) for row, _ in visit.open.values()]
    if schedule.live and schedule.settled_at < now:
        return now  # a long gap is settled page by page
    if schedule.live and schedule.paused_at is not None:
        dues.append(now + PAUSED_RECHECK_MS)
    if dues:
        return min(dues)
    if schedule.live:
        schedule.ended_at = now
        schedule.end_reason = "it has made its last run"
    return None


# --- Pausing ---------------------------------------------------------------------------------


def pause_at(visit: Visit, note: str) -> None:
    """Stop making instances; the one that is not yet due goes, with its row."""
    visit.schedule.paused_at, visit.schedule.pause_note = visit.now, note or None
    withdraw(visit, "the schedule was paused")


def withdraw(visit: Visit, reason: str) -> None:
    """Take back what is open and whose nominal time has not come."""
    for row, _ in list(visit.open.values()):
        if row.source is Source.CRON and row.nominal_at > visit.now:
            for task in _instance(visit, row):
                visit.cancel(task, reason)
            del visit.open[row.nominal_at, row.source, row.sequence]
            visit.plan.forget.append(row)
