"""What every store does alike in a visit: the view from what was read, what is written of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..domain.errors import FailedPrecondition
from ..domain.schedule import LedgerRow, Plan, Schedule, View
from ..domain.task import TERMINAL, Status, Task
from ..ids import text_of


def taken_outcome(row: LedgerRow) -> FailedPrecondition:
    """A plan wrote to a nominal time whose outcome stands."""
    return FailedPrecondition(
        "STATUS_CONFLICT",
        f"nominal time {row.nominal_at} of schedule {text_of(row.schedule_id)} has its outcome "
        "already",
    )


def split_instances(noted: bytes) -> list[bytes]:
    """The ids that `join_instances` put together."""
    return [noted[start : start + 16] for start in range(0, len(noted), 16)]


def join_instances(view: View, plan: Plan) -> bytes:
    """The ids of the schedule's tasks that are live after the plan, one behind the other."""
    ended = {change.task_id for change in plan.changes if change.status in TERMINAL}
    live = [task.task_id for task in view.live if task.task_id not in ended]
    return b"".join([*live, *(task.task_id for task in plan.insert)])


def view_of(
    schedule: Schedule,
    now: int,
    noted: bytes,
    opened: Sequence[LedgerRow],
    tasks: Mapping[bytes, Task],
) -> View:
    """What a visit sees; `noted` are the tasks that were live after the last one.

    A task that is gone ended long ago; only visits insert a schedule's tasks, so no other is live.
    """
    instances = [tasks[i] for i in split_instances(noted) if i in tasks]
    return View(
        schedule,
        now,
        tuple((row, tasks.get(row.task_id) if row.task_id else None) for row in opened),
        tuple(sorted((t for t in instances if not t.terminal), key=lambda t: t.task_id)),
        any(task.status is Status.FAILED for task in instances),
    )


def latest_rows(plans: Sequence[Plan]) -> list[LedgerRow]:
    """What the plans record, each ledger row once: the last word counts."""
    rows = {
        (row.schedule_id, row.nominal_at, row.source, row.sequence): row
        for plan in plans
        for row in plan.record
    }
    return [rows[key] for key in sorted(rows)]


def changes_definition(before: Schedule, after: Schedule) -> bool:
    """Whether a caller changed what the schedule is made of; a visit by itself never does."""
    return (before.spec, before.policy, before.template) != (
        after.spec,
        after.policy,
        after.template,
    )
