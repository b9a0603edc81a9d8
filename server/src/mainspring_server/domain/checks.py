"""When the sweeper has to look at a row again, and what it finds there.

`next_check_at` is a lower bound in every deployment: a transition to PENDING sets it to due +
grace, READY at Submit and a hand-back to a moment from now, the end clears it. PENDING -> READY ->
RUNNING leave it alone (so that these updates stay HOT in PostgreSQL), except where a queue or run
timeout is nearer. Where the sweeper finds a healthy row it moves the bound.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from .task import Status, Task

GRACE_MS = 2_000
READY_RECHECK_MS = 5_000
BACKLOG_RECHECK_MS = 30_000
CREATED_RECHECK_MS = 60_000


class Finding(Enum):
    """What is to be done about a row whose check is due."""

    HEALTHY = "healthy"  # move next_check_at to `at`
    OVERDUE = "overdue"  # PENDING and due: the trigger lost it
    UNCLAIMED = "unclaimed"  # READY: ask the ready queue whether the record is lost
    LEASE_EXPIRED = "lease_expired"
    RUN_TIMEOUT = "run_timeout"
    QUEUE_TIMEOUT = "queue_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    WAITING = "waiting"  # CREATED: evaluate its rule again
    FINISHED = "finished"  # terminal, but its dependents were not told


class Verdict(NamedTuple):
    """A finding; `at` is the next check if the row is healthy."""

    finding: Finding
    at: int


def earliest(*times: int | None) -> int | None:
    """The smallest of the times that exist."""
    known = [time for time in times if time is not None]
    return min(known) if known else None


def next_check(status: Status, due_at: int, now: int, deadline: int | None) -> int:
    """The check that a transition into a non-terminal status sets; never past the deadline."""
    if status is Status.PENDING:
        at = due_at + GRACE_MS
    elif status is Status.CREATED:
        at = now + CREATED_RECHECK_MS
    else:
        at = now + GRACE_MS
    return at if deadline is None else min(at, deadline)


def first_check(
    status: Status, due_at: int, now: int, deadline: int | None, queue_timeout_ms: int | None
) -> int:
    """The check that Submit sets."""
    if status is not Status.READY:
        return next_check(status, due_at, now, deadline)
    waits = None if queue_timeout_ms is None else now + queue_timeout_ms
    return earliest(now + READY_RECHECK_MS, waits, deadline) or now


def examine(task: Task, now: int, *, backlog: bool = False) -> Verdict:
    """What a row needs at `now`; `backlog` is true where its lane has a long queue."""
    if task.terminal:
        return Verdict(Finding.FINISHED, now)
    if task.deadline_at is not None and task.deadline_at <= now and task.status != Status.CREATED:
        return Verdict(Finding.TOTAL_TIMEOUT, now)
    if task.status is Status.PENDING:
        return _examine_pending(task, now)
    if task.status is Status.READY:
        return _examine_ready(task, now, backlog)
    if task.status is Status.RUNNING:
        return _examine_running(task, now)
    return Verdict(Finding.WAITING, now + CREATED_RECHECK_MS)


def _examine_pending(task: Task, now: int) -> Verdict:
    if task.due_at <= now:
        return Verdict(Finding.OVERDUE, now)
    at = earliest(task.due_at + GRACE_MS, task.deadline_at)
    return Verdict(Finding.HEALTHY, at if at is not None else task.due_at + GRACE_MS)


def _examine_ready(task: Task, now: int, backlog: bool) -> Verdict:
    if task.queue_deadline is not None and task.queue_deadline <= now:
        return Verdict(Finding.QUEUE_TIMEOUT, now)
    step = BACKLOG_RECHECK_MS if backlog else READY_RECHECK_MS
    at = earliest(now + step, task.queue_deadline, task.deadline_at)
    return Verdict(Finding.UNCLAIMED, at if at is not None else now + step)


def _examine_running(task: Task, now: int) -> Verdict:
    if task.run_deadline is not None and task.run_deadline <= now:
        return Verdict(Finding.RUN_TIMEOUT, now)
    lease_end = task.lease_expires_at if task.lease_expires_at is not None else now
    if lease_end <= now:
        return Verdict(Finding.LEASE_EXPIRED, now)
    at = earliest(lease_end, task.run_deadline, task.deadline_at)
    return Verdict(Finding.HEALTHY, at if at is not None else lease_end)
