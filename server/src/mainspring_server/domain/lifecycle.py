"""Everything that decides a task's state lives in this file.

`TRANSITIONS` is the whole machine: (state, event) -> the states it may lead to and what it does to
the attempt count. Pairs that are not listed are illegal. The SQL of the stores and the diagram in
the docs are tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from .checks import first_check, next_check
from .errors import FailedPrecondition
from .leases import Failure
from .task import (
    Attempt,
    AttemptOutcome,
    OutcomeBy,
    Status,
    Task,
)

LOST_GRANT_MARGIN = 10
"""Grants that no worker ever acknowledged may exceed max_attempts by this many."""


class Event(Enum):
    """What can happen to a task."""

    RELEASE = "release"  # the last predecessor is done
    MAKE_READY = "make_ready"  # due, or triggered by hand
    CLAIM = "claim"
    HAND_BACK = "hand_back"  # by a draining worker, or a frame never written
    SUCCEED = "succeed"
    FAIL = "fail"
    SNOOZE = "snooze"
    LEASE_EXPIRED = "lease_expired"  # acknowledged, then silent
    GRANT_LOST = "grant_lost"  # the first lease lapsed without acknowledgement
    RUN_TIMEOUT = "run_timeout"
    QUEUE_TIMEOUT = "queue_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    RESCHEDULE = "reschedule"
    CANCEL = "cancel"


class Transition(NamedTuple):
    """Where an event may lead; `attempt` is what it adds to the attempt count."""

    to: frozenset[Status]
    attempt: int = 0


def _to(*states: Status, attempt: int = 0) -> Transition:
    return Transition(frozenset(states), attempt)


TRANSITIONS: dict[tuple[Status, Event], Transition] = {
    (Status.CREATED, Event.RELEASE): _to(Status.PENDING, Status.READY),
    (Status.CREATED, Event.CANCEL): _to(Status.CANCELLED),
    (Status.PENDING, Event.MAKE_READY): _to(Status.READY),
    (Status.PENDING, Event.QUEUE_TIMEOUT): _to(Status.FAILED),
    (Status.PENDING, Event.TOTAL_TIMEOUT): _to(Status.FAILED),
    (Status.PENDING, Event.RESCHEDULE): _to(Status.PENDING),
    (Status.PENDING, Event.CANCEL): _to(Status.CANCELLED),
    (Status.READY, Event.CLAIM): _to(Status.RUNNING, attempt=1),
    (Status.READY, Event.QUEUE_TIMEOUT): _to(Status.FAILED),
    (Status.READY, Event.TOTAL_TIMEOUT): _to(Status.FAILED),
    (Status.READY, Event.RESCHEDULE): _to(Status.PENDING),
    (Status.READY, Event.CANCEL): _to(Status.CANCELLED),
    (Status.RUNNING, Event.HAND_BACK): _to(Status.READY, attempt=-1),
    (Status.RUNNING, Event.SUCCEED): _to(Status.SUCCEEDED),
    (Status.RUNNING, Event.FAIL): _to(Status.PENDING, Status.FAILED),
    (Status.RUNNING, Event.SNOOZE): _to(Status.PENDING, attempt=-1),
    (Status.RUNNING, Event.LEASE_EXPIRED): _to(Status.PENDING, Status.FAILED),
    (Status.RUNNING, Event.GRANT_LOST): _to(Status.PENDING, Status.FAILED, attempt=-1),
    (Status.RUNNING, Event.RUN_TIMEOUT): _to(Status.PENDING, Status.FAILED),
    (Status.RUNNING, Event.TOTAL_TIMEOUT): _to(Status.FAILED),
    (Status.RUNNING, Event.CANCEL): _to(Status.CANCELLED),
}


class Guard(Enum):
    """What a conditional write must find true again, on the store's clock, besides the version."""

    NONE = 0
    LEASE_EXPIRED = 1  # lease_expires_at <= now: a late beat revives the lease
    DEADLINE_PASSED = 2  # deadline_at <= now


@dataclass(slots=True)
class Change:
    """One conditional write: `WHERE task_id AND version`; all values are absolute.

    It always sets status, version + 1, due_at, attempts, lost_grants, next_check_at and ready_at,
    and ends the lease (`worker_id` stays: who held the last one). Outcome fields are written when
    `outcome_by` is set, `deadline_at` only where it is not None; `attempt`, when set, is inserted
    into the history of attempts in the same transaction.
    """

    task_id: bytes
    version: int
    event: Event
    status: Status
    due_at: int
    attempts: int
    lost_grants: int
    next_check_at: int | None
    ready_at: int | None = None
    completed_at: int | None = None
    deadline_at: int | None = None
    outcome_by: OutcomeBy | None = None
    outcome_token: int | None = None
    error_type: str | None = None
    error_message: str | None = None
    status_reason: str | None = None
    attempt: Attempt | None = None
    guard: Guard = Guard.NONE


def transition(status: Status, event: Event) -> Transition:
    """The entry of the table, or FailedPrecondition for a pair that is not in it."""
    found = TRANSITIONS.get((status, event))
    if found is None:
        raise FailedPrecondition(
            "STATUS_CONFLICT",
            f"a task that is {status.name} does not {event.value.replace('_', ' ')}",
            metadata={"status": status.name, "event": event.value},
        )
    return found


def _change(task: Task, event: Event, status: Status, due_at: int, now: int) -> Change:
    rule = transition(task.status, event)
    if status not in rule.to:
        raise FailedPrecondition(
            "STATUS_CONFLICT",
            f"{event.value} does not lead from {task.status.name} to {status.name}",
        )
    done = status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)
    return Change(
        task_id=task.task_id,
        version=task.version,
        event=event,
        status=status,
        due_at=due_at,
        attempts=task.attempts + rule.attempt,
        lost_grants=task.lost_grants,
        next_check_at=None if done else next_check(status, due_at, now, task.deadline_at),
        ready_at=now if status is Status.READY else None,
        completed_at=now if done else None,
    )


def _ended_attempt(task: Task, outcome: AttemptOutcome, now: int, message: str | None) -> Attempt:
    return Attempt(
        task_id=task.task_id,
        attempt=task.attempts,
        token=task.version,
        worker_id=task.worker_id or "",
        outcome=outcome,
        started_at=task.started_at or now,
        ended_at=now,
        error_message=message,
    )


def _retry_or_fail(
    task: Task, event: Event, now: int, delay_ms: int | None, *, attempts_left: bool
) -> Change:
    """PENDING again with a backoff while attempts remain and the deadline allows it, else FAILED."""
    if attempts_left and delay_ms is not None:
        return _change(task, event, Status.PENDING, now + delay_ms, now)
    return _change(task, event, Status.FAILED, task.due_at, now)


def fail(task: Task, failure: Failure, now: int, fraction: float) -> Change:
    """A worker reports a failure; `fraction` in [0, 1) is the jitter."""
    delay = failure.retry_delay_ms
    if delay is None:
        delay = task.retry.delay_ms(task.attempts, fraction)
    left = failure.retryable and task.attempts < task.retry.max_attempts
    change = _retry_or_fail(task, Event.FAIL, now, delay, attempts_left=left)
    change.outcome_by = OutcomeBy.WORKER_FAILED
    change.outcome_token = failure.token
    change.error_type = failure.error_type
    change.error_message = failure.message
    if change.status is Status.FAILED:
        change.status_reason = (
            "the attempts are used up" if failure.retryable else "the error is not retryable"
        )
    change.attempt = _ended_attempt(task, AttemptOutcome.FAILED, now, failure.message)
    change.attempt.error_type = failure.error_type
    return change


def snooze(task: Task, token: int, delay_ms: int, now: int) -> Change:
    """The handler wants to be called again later; no attempt is used."""
    change = _change(task, Event.SNOOZE, Status.PENDING, now + delay_ms, now)
    change.outcome_by = OutcomeBy.WORKER_SNOOZED
    change.outcome_token = token
    return change


def hand_back(task: Task, now: int) -> Change:
    """A lease given back unstarted: READY again at once, the attempt taken back."""
    change = _change(task, Event.HAND_BACK, Status.READY, task.due_at, now)
    change.outcome_by = OutcomeBy.HANDED_BACK
    change.outcome_token = task.version
    return change


def expire_lease(task: Task, now: int, fraction: float) -> Change:
    """An expired lease: a lost attempt if the worker had acknowledged it, a lost grant if not."""
    if not task.lease_acked:
        return _lose_grant(task, now, fraction)
    message = "the worker stopped beating before it finished"
    delay = task.retry.delay_ms(task.attempts, fraction)
    left = task.attempts < task.retry.max_attempts
    change = _retry_or_fail(task, Event.LEASE_EXPIRED, now, delay, attempts_left=left)
    change.guard = Guard.LEASE_EXPIRED
    change.outcome_by = OutcomeBy.LEASE_EXPIRED
    change.outcome_token = task.version
    change.error_type = "LeaseExpired"
    change.error_message = message
    if change.status is Status.FAILED:
        change.status_reason = "the attempts are used up"
    change.attempt = _ended_attempt(task, AttemptOutcome.LOST, now, message)
    return change


def _lose_grant(task: Task, now: int, fraction: float) -> Change:
    lost = task.lost_grants + 1
    left = lost < task.retry.max_attempts + LOST_GRANT_MARGIN
    delay = task.retry.delay_ms(max(task.attempts, 1), fraction)
    change = _retry_or_fail(task, Event.GRANT_LOST, now, delay, attempts_left=left)
    change.lost_grants = lost
    change.guard = Guard.LEASE_EXPIRED
    change.outcome_by = OutcomeBy.LEASE_EXPIRED
    change.outcome_token = task.version
    if change.status is Status.FAILED:
        change.error_type = "GrantsLost"
        change.error_message = f"{lost} grants were never acknowledged by a worker"
        change.status_reason = "no worker acknowledged the task"
    return change


def time_out_run(task: Task, now: int, fraction: float) -> Change:
    """The attempt ran longer than the run timeout."""
    message = f"the attempt ran longer than its run timeout of {task.timeouts.run_ms} ms"
    delay = task.retry.delay_ms(task.attempts, fraction)
    left = task.attempts < task.retry.max_attempts
    change = _retry_or_fail(task, Event.RUN_TIMEOUT, now, delay, attempts_left=left)
    change.outcome_by = OutcomeBy.TIMED_OUT
    change.outcome_token = task.version
    change.error_type = "RunTimeout"
    change.error_message = message
    if change.status is Status.FAILED:
        change.status_reason = "the attempts are used up"
    change.attempt = _ended_attempt(task, AttemptOutcome.TIMED_OUT, now, message)
    return change


def time_out_waiting(task: Task, event: Event, now: int) -> Change:
    """The queue or total timeout passed: FAILED for good."""
    change = _change(task, event, Status.FAILED, task.due_at, now)
    total = event is Event.TOTAL_TIMEOUT
    limit = task.timeouts.total_ms if total else task.timeouts.queue_ms
    change.error_type = "TotalTimeout" if total else "QueueTimeout"
    change.error_message = (
        f"not finished within its total timeout of {limit} ms"
        if total
        else f"no worker started it within its queue timeout of {limit} ms"
    )
    change.status_reason = "the total timeout passed" if total else "the queue timeout passed"
    change.outcome_by = OutcomeBy.TIMED_OUT
    change.outcome_token = task.version
    if total:
        change.guard = Guard.DEADLINE_PASSED
    if task.status is Status.RUNNING:
        change.attempt = _ended_attempt(task, AttemptOutcome.TIMED_OUT, now, change.error_message)
    return change


def cancel(task: Task, reason: str, now: int) -> Change:
    """Cancel in any state that is not terminal."""
    change = _change(task, Event.CANCEL, Status.CANCELLED, task.due_at, now)
    change.status_reason = reason or "cancelled"
    change.outcome_by = OutcomeBy.CANCELLED
    change.outcome_token = task.version
    if task.status is Status.RUNNING:
        change.attempt = _ended_attempt(task, AttemptOutcome.CANCELLED, now, change.status_reason)
    return change


def release(task: Task, now: int) -> Change:
    """The last predecessor is done and the rule holds: due now, or after the delay."""
    due_at = max(task.due_at, now + task.delay_after_ms)
    status = Status.PENDING if due_at > now else Status.READY
    change = _change(task, Event.RELEASE, status, due_at, now)
    if task.timeouts.total_ms is not None:
        change.deadline_at = due_at + task.timeouts.total_ms
    change.next_check_at = first_check(
        status, due_at, now, change.deadline_at, task.timeouts.queue_ms
    )
    return change


def reschedule(task: Task, due_at: int, now: int) -> Change:
    """Another due time for a task that waits."""
    return _change(task, Event.RESCHEDULE, Status.PENDING, due_at, now)
