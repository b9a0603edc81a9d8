"""The state machine: the table as a whole, and what each event makes of a task."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring_server.domain import lifecycle
from mainspring_server.domain.errors import FailedPrecondition
from mainspring_server.domain.leases import Failure
from mainspring_server.domain.lifecycle import TRANSITIONS, Event, Guard
from mainspring_server.domain.retry import RetryPolicy
from mainspring_server.domain.task import (
    TERMINAL,
    AttemptOutcome,
    OutcomeBy,
    Status,
    Task,
    Timeouts,
)

NOW = 1_700_000_000_000
ID = bytes(range(16))


def make(status: Status, **given: object) -> Task:
    task = Task(
        task_id=ID,
        namespace="default",
        task_type="t",
        queue="t",
        priority=5,
        status=status,
        version=3,
        due_at=NOW - 10,
        created_at=NOW - 100,
        retry=RetryPolicy(),
        timeouts=Timeouts(),
    )
    for name, value in given.items():
        setattr(task, name, value)
    return task


def running(**given: object) -> Task:
    defaults: dict[str, object] = {
        "attempts": 1,
        "worker_id": "w",
        "started_at": NOW - 50,
        "lease_expires_at": NOW - 1,
        "lease_acked": True,
    }
    return make(Status.RUNNING, **(defaults | given))


def failure(**given: object) -> Failure:
    defaults: dict[str, object] = {"message": "boom", "error_type": "ValueError"}
    return Failure(ID, 3, **(defaults | given))  # type: ignore[arg-type]


def test_terminal_is_final() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] in TERMINAL]


def test_every_state_but_created_is_reached_and_every_live_state_can_be_cancelled() -> None:
    reached = set(itertools.chain.from_iterable(rule.to for rule in TRANSITIONS.values()))
    assert reached == set(Status) - {Status.CREATED}
    for status in set(Status) - TERMINAL:
        assert TRANSITIONS[status, Event.CANCEL].to == {Status.CANCELLED}


def test_only_a_claim_counts_an_attempt() -> None:
    assert {event for (_, event), rule in TRANSITIONS.items() if rule.attempt > 0} == {Event.CLAIM}


@pytest.mark.parametrize(("status", "event"), list(itertools.product(Status, Event)))
def test_pairs_that_are_not_listed_are_refused(status: Status, event: Event) -> None:
    if (status, event) in TRANSITIONS:
        assert lifecycle.transition(status, event).to
    else:
        with pytest.raises(FailedPrecondition) as caught:
            lifecycle.transition(status, event)
        assert caught.value.reason == "STATUS_CONFLICT"


def test_a_failure_with_attempts_left_waits_for_its_backoff() -> None:
    change = lifecycle.fail(running(), failure(), NOW, 0.5)
    assert (change.status, change.due_at) == (Status.PENDING, NOW + 500)
    assert change.next_check_at == NOW + 500 + 2_000
    assert change.attempt is not None
    assert change.attempt.outcome is AttemptOutcome.FAILED
    assert (change.outcome_by, change.outcome_token) == (OutcomeBy.WORKER_FAILED, 3)


def test_the_last_attempt_fails_for_good() -> None:
    change = lifecycle.fail(running(attempts=4), failure(), NOW, 0.5)
    assert (change.status, change.completed_at, change.next_check_at) == (Status.FAILED, NOW, None)


def test_an_error_that_is_not_retryable_fails_at_once() -> None:
    change = lifecycle.fail(running(), failure(retryable=False), NOW, 0.5)
    assert (change.status, change.status_reason) == (Status.FAILED, "the error is not retryable")


def test_the_handler_chooses_the_delay() -> None:
    change = lifecycle.fail(running(), failure(retry_delay_ms=7_000), NOW, 0.5)
    assert change.due_at == NOW + 7_000


def test_snooze_and_hand_back_take_the_attempt_back() -> None:
    snoozed = lifecycle.snooze(running(), 3, 9_000, NOW)
    assert (snoozed.status, snoozed.due_at, snoozed.attempts) == (Status.PENDING, NOW + 9_000, 0)
    back = lifecycle.hand_back(running(), NOW)
    assert (back.status, back.attempts, back.ready_at) == (Status.READY, 0, NOW)
    assert back.next_check_at == NOW + 2_000


def test_an_expired_lease_is_a_lost_attempt_only_if_it_was_acknowledged() -> None:
    lost = lifecycle.expire_lease(running(), NOW, 0.0)
    assert (lost.status, lost.attempts, lost.guard) == (Status.PENDING, 1, Guard.LEASE_EXPIRED)
    assert lost.attempt is not None
    assert lost.attempt.outcome is AttemptOutcome.LOST
    grant = lifecycle.expire_lease(running(lease_acked=False), NOW, 0.0)
    assert (grant.status, grant.attempts, grant.lost_grants) == (Status.PENDING, 0, 1)
    assert grant.attempt is None


def test_lost_grants_have_a_limit_of_their_own() -> None:
    policy = RetryPolicy(max_attempts=2)
    last = running(lease_acked=False, lost_grants=11, retry=policy)
    assert lifecycle.expire_lease(last, NOW, 0.0).status is Status.FAILED
    before = running(lease_acked=False, lost_grants=10, retry=policy)
    assert lifecycle.expire_lease(before, NOW, 0.0).status is Status.PENDING


def test_a_crash_loop_uses_its_attempts_up() -> None:
    change = lifecycle.expire_lease(running(attempts=4), NOW, 0.0)
    assert (change.status, change.status_reason) == (Status.FAILED, "the attempts are used up")


def test_timeouts() -> None:
    timed = running(timeouts=Timeouts(run_ms=10, total_ms=20), deadline_at=NOW)
    retried = lifecycle.time_out_run(timed, NOW, 0.0)
    assert retried.status is Status.PENDING
    assert retried.attempt is not None
    assert retried.attempt.outcome is AttemptOutcome.TIMED_OUT
    total = lifecycle.time_out_waiting(timed, Event.TOTAL_TIMEOUT, NOW)
    assert (total.status, total.guard) == (Status.FAILED, Guard.DEADLINE_PASSED)
    waiting = make(Status.READY, timeouts=Timeouts(queue_ms=5))
    assert lifecycle.time_out_waiting(waiting, Event.QUEUE_TIMEOUT, NOW).status is Status.FAILED


def test_cancel_keeps_the_running_attempt_in_the_history() -> None:
    change = lifecycle.cancel(running(), "changed my mind", NOW)
    assert (change.status, change.status_reason) == (Status.CANCELLED, "changed my mind")
    assert change.attempt is not None
    assert change.attempt.outcome is AttemptOutcome.CANCELLED
    assert lifecycle.cancel(make(Status.PENDING), "", NOW).attempt is None


def test_a_deadline_bounds_the_next_check() -> None:
    change = lifecycle.fail(running(deadline_at=NOW + 100), failure(), NOW, 0.9)
    assert change.next_check_at == NOW + 100


@given(st.data())
def test_random_events_never_leave_the_machine(data: st.DataObject) -> None:
    """A walk of random events: versions and states stay legal, attempts stay within the maximum."""
    status, attempts = data.draw(st.sampled_from([Status.CREATED, Status.PENDING, Status.READY])), 0
    for _ in range(30):
        legal = [event for state, event in TRANSITIONS if state is status]
        if not legal:
            assert status in TERMINAL
            break
        event = data.draw(st.sampled_from(legal))
        rule = TRANSITIONS[status, event]
        attempts += rule.attempt
        assert attempts >= 0
        status = data.draw(st.sampled_from(sorted(rule.to)))


@given(
    attempt=st.integers(1, 2_000),
    fraction=st.floats(0, 1, exclude_max=True),
    initial=st.integers(0, 10**7),
    multiplier=st.floats(1, 100),
    cap=st.integers(0, 10**9),
)
def test_backoff_stays_between_zero_and_the_cap(
    attempt: int, fraction: float, initial: int, multiplier: float, cap: int
) -> None:
    policy = RetryPolicy(5, initial, multiplier, cap)
    assert 0 <= policy.delay_ms(attempt, fraction) <= policy.ceiling_ms(attempt) <= cap
