"""Making the instances of a schedule: the tasks of one nominal time, waiting for older ones or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .checks import first_check
from .schedule import LedgerRow, Outcome, Overlap, Schedule, Source, TemplateTask
from .task import NewTask, Rule, Status, Waits

Mint = Callable[[int], list[bytes]]
"""So many new task ids, in any order."""


class Slot(NamedTuple):
    """Where an instance belongs: its nominal time, when it is due, who asked, which of equals."""

    nominal_at: int
    due_at: int
    source: Source = Source.CRON
    sequence: int = 0
    group: bytes | None = None  # a backfill's id


def make(
    schedule: Schedule, slot: Slot, older: Sequence[bytes], now: int, mint: Mint
) -> tuple[LedgerRow, list[NewTask]]:
    """The ledger row, OPEN, and the tasks of one instance.

    `older` are live tasks of the schedule that its roots must wait for; empty under policies that
    do not wait.
    """
    count = len(schedule.template)
    ids = sorted(mint(count))  # what predecessors hand over comes in the order of their ids
    # An id of its own: that of a task would name the task alone to Cancel.
    graph_id = slot.group or (mint(1)[0] if count > 1 else None)
    tasks = [
        _task(schedule, slot, template, ids, number, now)
        for number, template in enumerate(schedule.template)
    ]
    for task, template in zip(tasks, schedule.template, strict=True):
        task.graph_id = graph_id
        if template.predecessors:
            predecessors = tuple(ids[n] for n in template.predecessors)
            task.waits = Waits(predecessors, template.rule, template.delay_after_ms)
        elif older:
            task.waits = Waits(tuple(older), _waiting_rule(schedule.policy.overlap))
        _settle_status(task, now)
    row = LedgerRow(
        schedule.schedule_id,
        slot.nominal_at,
        slot.source,
        slot.sequence,
        ids[0],
        slot.due_at,
        Outcome.OPEN,
    )
    return row, tasks


def _waiting_rule(overlap: Overlap) -> Rule:
    return Rule.ALL_DONE_IN_TIME if overlap is Overlap.SKIP else Rule.ALL_DONE


def _task(
    schedule: Schedule,
    slot: Slot,
    template: TemplateTask,
    ids: Sequence[bytes],
    number: int,
    now: int,
) -> NewTask:
    return NewTask(
        task_id=ids[number],
        namespace=schedule.namespace,
        task_type=template.task_type,
        queue=template.queue,
        priority=template.priority,
        status=Status.PENDING,
        due_at=slot.due_at + template.delay_ms,
        created_at=now,
        payload=template.payload,
        labels=template.labels,
        retry=template.retry,
        timeouts=template.timeouts,
        trace_context=template.trace_context,
        schedule_id=schedule.schedule_id,
        nominal_at=slot.nominal_at,
        local_ref=template.local_ref,
    )


def _settle_status(task: NewTask, now: int) -> None:
    """CREATED while it waits, READY when due, else PENDING; the deadline counts from the due time."""
    if task.waits is not None:
        task.status = Status.CREATED
    elif task.due_at <= now:
        task.status, task.due_at = Status.READY, now
    total = task.timeouts.total_ms
    if total is not None and task.status is not Status.CREATED:
        task.deadline_at = task.due_at + total
    task.next_check_at = first_check(
        task.status, task.due_at, now, task.deadline_at, task.timeouts.queue_ms
    )
