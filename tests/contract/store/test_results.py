"""succeed and apply: the conditional writes that end an attempt or a task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring_server.domain import lifecycle
from mainspring_server.domain.leases import Beat, Failure, Success
from mainspring_server.domain.lifecycle import TRANSITIONS, Change, Event, Guard
from mainspring_server.domain.task import (
    TERMINAL,
    AttemptOutcome,
    OutcomeBy,
    Status,
    Timeouts,
)
from mainspring_server.store.port import Store


async def test_success_is_written_whole(store: Store, kit: Any) -> None:
    grant = await kit.running()
    now = await store.now()
    assert await store.succeed([Success(grant.task_id, grant.token, b"out\0come")]) == [True]
    stored = await kit.stored(grant.task_id)
    assert (stored.status, stored.version, stored.attempts) == (Status.SUCCEEDED, 3, 1)
    assert (stored.outcome, stored.outcome_token) == (b"out\0come", grant.token)
    assert stored.outcome_by is OutcomeBy.WORKER_SUCCEEDED
    assert stored.completed_at is not None
    assert stored.completed_at >= now
    assert stored.next_check_at is None
    assert await store.attempts(grant.task_id, 0, 10) == []


async def test_success_without_outcome(store: Store, kit: Any) -> None:
    with_one, without = await kit.running(), await kit.running()
    results = [
        Success(with_one.task_id, with_one.token, b""),
        Success(without.task_id, without.token, None),
    ]
    assert await store.succeed(results) == [True, True]
    assert (await kit.stored(with_one.task_id)).outcome == b""
    assert (await kit.stored(without.task_id)).outcome is None
    assert await store.succeed([]) == []


async def test_stale_successes_change_nothing_and_harm_no_other(store: Store, kit: Any) -> None:
    good, other = await kit.running(), await kit.running()
    ready = await kit.inserted()
    done = await kit.running()
    await store.succeed([Success(done.task_id, done.token, b"first")])
    before = [await kit.stored(item.task_id) for item in (other, ready, done)]
    answers = await store.succeed(
        [
            Success(other.task_id, other.token - 1, b"x"),
            Success(other.task_id, other.token + 1, b"x"),
            Success(ready.task_id, 1, b"x"),
            Success(good.task_id, good.token, b"good"),
            Success(good.task_id, good.token, b"again"),
            Success(done.task_id, done.token, b"again"),
            Success(done.task_id, done.token + 1, b"again"),
            Success(kit.uuid7(await store.now()), 1, b"x"),
        ]
    )
    assert answers == [False, False, False, True, False, False, False, False]
    assert [await kit.stored(item.task_id) for item in (other, ready, done)] == before
    assert (await kit.stored(good.task_id)).outcome == b"good"


async def test_concurrent_successes_apply_once(store: Store, kit: Any) -> None:
    grant = await kit.running()
    answers = await asyncio.gather(
        *(store.succeed([Success(grant.task_id, grant.token, bytes([n]))]) for n in range(10))
    )
    assert sum(answer[0] for answer in answers) == 1


async def test_late_success_on_an_expired_lease_is_applied(
    store: Store, kit: Any, advance: Any
) -> None:
    """Nobody reaped it, so the token is still the newest."""
    grant = await kit.running()
    advance(60_000)
    assert await store.succeed([Success(grant.task_id, grant.token, None)]) == [True]


async def test_failure_goes_back_to_pending_with_its_attempt(store: Store, kit: Any) -> None:
    grant = await kit.running("w7")
    task = await kit.stored(grant.task_id)
    now = await store.now()
    failure = Failure(grant.task_id, grant.token, "boom", "ValueError")
    change = lifecycle.fail(task, failure, now, 0.5)
    assert await store.apply([change]) == [True]
    stored = await kit.stored(grant.task_id)
    assert (stored.status, stored.version, stored.attempts) == (Status.PENDING, 3, 1)
    assert (stored.due_at, stored.next_check_at) == (change.due_at, change.next_check_at)
    assert (stored.outcome_by, stored.outcome_token) == (OutcomeBy.WORKER_FAILED, grant.token)
    assert (stored.error_type, stored.error_message) == ("ValueError", "boom")
    assert (stored.lease_expires_at, stored.lease_acked, stored.worker_id) == (
        None,
        False,
        grant.worker_id,
    )
    assert (stored.ready_at, stored.completed_at) == (None, None)
    (attempt,) = await store.attempts(grant.task_id, 0, 10)
    assert attempt == change.attempt
    assert (attempt.worker_id, attempt.outcome) == ("w7", AttemptOutcome.FAILED)


async def test_stale_change_changes_nothing_and_leaves_no_attempt(store: Store, kit: Any) -> None:
    first, second = await kit.running(), await kit.running()
    now = await store.now()
    changes = []
    for grant in (first, second):
        failure = Failure(grant.task_id, grant.token, "boom", "ValueError", retryable=False)
        changes.append(lifecycle.fail(await kit.stored(grant.task_id), failure, now, 0.0))
    await store.succeed([Success(first.task_id, first.token, None)])
    before = await kit.stored(first.task_id)
    assert await store.apply([*changes, changes[1]]) == [False, True, False]
    assert await kit.stored(first.task_id) == before
    assert await store.attempts(first.task_id, 0, 10) == []
    assert len(await store.attempts(second.task_id, 0, 10)) == 1
    assert await store.apply([]) == []


async def test_expiry_loses_against_a_beat(store: Store, kit: Any, advance: Any) -> None:
    grants = [await kit.running(acked=True) for _ in range(2)]
    advance(5_000)
    now = await store.now()
    changes = [
        lifecycle.expire_lease(await kit.stored(grant.task_id), now, 0.0) for grant in grants
    ]
    assert [change.guard for change in changes] == [Guard.LEASE_EXPIRED] * 2
    await store.extend([Beat(grants[0].task_id, grants[0].token, 60_000)])
    assert await store.apply(changes) == [False, True]
    assert (await kit.stored(grants[0].task_id)).status is Status.RUNNING
    assert await store.attempts(grants[0].task_id, 0, 10) == []
    (lost,) = await store.attempts(grants[1].task_id, 0, 10)
    assert lost.outcome is AttemptOutcome.LOST


async def test_expiry_before_its_time_is_refused_by_the_store(
    store: Store, kit: Any, advance: Any
) -> None:
    """The store's clock decides, whatever the caller believed."""
    grant = await kit.running()
    task = await kit.stored(grant.task_id)
    change = lifecycle.expire_lease(task, grant.lease_expires_at + 1, 0.0)
    assert await store.apply([change]) == [False]
    advance(5_000)
    assert await store.apply([change]) == [True]
    stored = await kit.stored(grant.task_id)
    assert (stored.status, stored.attempts, stored.lost_grants) == (Status.PENDING, 0, 1)


async def test_deadline_guard(store: Store, kit: Any, advance: Any) -> None:
    now = await store.now()
    timeouts = Timeouts(total_ms=3_000)
    task = await kit.inserted(due_in=1_000, deadline_at=now + 3_000, timeouts=timeouts)
    endless = await kit.inserted(due_in=1_000)
    late = now + 3_000
    change, never = [
        lifecycle.time_out_waiting(await kit.stored(item.task_id), Event.TOTAL_TIMEOUT, late)
        for item in (task, endless)
    ]
    assert await store.apply([change, never]) == [False, False]
    advance(3_000)
    assert await store.apply([change, never]) == [True, False]
    stored = await kit.stored(task.task_id)
    assert (stored.status, stored.error_type) == (Status.FAILED, "TotalTimeout")
    assert stored.completed_at == late
    assert stored.next_check_at is None


async def test_hand_back_is_published_at_once(store: Store, kit: Any, advance: Any) -> None:
    grant = await kit.running()
    advance(2_000)
    now = await store.now()
    change = lifecycle.hand_back(await kit.stored(grant.task_id), now)
    assert await store.apply([change]) == [True]
    stored = await kit.stored(grant.task_id)
    assert (stored.status, stored.version, stored.attempts) == (Status.READY, 3, 0)
    assert stored.ready_at == change.ready_at
    assert stored.published_at is not None
    assert stored.published_at >= now
    (again,) = await store.claim_lanes([kit.want(("w2", 1))], 1)
    assert (again.task_id, again.token, again.attempt) == (grant.task_id, 4, 1)


async def test_outcome_stays_where_the_change_has_none(store: Store, kit: Any) -> None:
    grant = await kit.running()
    now = await store.now()
    failure = Failure(grant.task_id, grant.token, "boom", "ValueError")
    await store.apply([lifecycle.fail(await kit.stored(grant.task_id), failure, now, 0.0)])
    change = lifecycle.reschedule(await kit.stored(grant.task_id), now + 9_000, now)
    assert await store.apply([change]) == [True]
    stored = await kit.stored(grant.task_id)
    assert (stored.due_at, stored.version) == (now + 9_000, 4)
    assert (stored.error_message, stored.outcome_token) == ("boom", grant.token)
    assert stored.outcome_by is OutcomeBy.WORKER_FAILED


async def test_retried_task_goes_round_again(store: Store, kit: Any, advance: Any) -> None:
    grant = await kit.running()
    now = await store.now()
    failure = Failure(grant.task_id, grant.token, "boom", "E", retry_delay_ms=1_000)
    await store.apply([lifecycle.fail(await kit.stored(grant.task_id), failure, now, 0.0)])
    advance(1_000)
    (answer,) = await store.make_ready([grant.task_id])
    assert answer.ref is not None
    (again,) = await store.claim([answer.ref], kit.want())
    assert (again.attempt, again.token) == (2, 5)


LEGAL = [
    (source, event, target)
    for (source, event), rule in TRANSITIONS.items()
    for target in sorted(rule.to)
]


@pytest.mark.parametrize(
    ("source", "event", "target"),
    LEGAL,
    ids=[f"{source.name}-{event.value}-{target.name}" for source, event, target in LEGAL],
)
async def test_every_legal_transition(
    store: Store, kit: Any, source: Status, event: Event, target: Status
) -> None:
    """Whatever method serves an event in operation, the general write applies each pair."""
    if source is Status.RUNNING:
        task_id = (await kit.running()).task_id
    else:
        later = 60_000 if source is Status.PENDING else 0
        task_id = (await kit.inserted(later, status=source)).task_id
    task = await kit.stored(task_id)
    assert task.status is source
    now = await store.now()
    over = target in TERMINAL
    change = Change(
        task_id=task_id,
        version=task.version,
        event=event,
        status=target,
        due_at=now + 1,
        attempts=task.attempts + TRANSITIONS[source, event].attempt,
        lost_grants=task.lost_grants + 1,
        next_check_at=None if over else now + 2,
        ready_at=now if target is Status.READY else None,
        completed_at=now if over else None,
    )
    assert await store.apply([change]) == [True]
    stored = await kit.stored(task_id)
    assert (stored.status, stored.version) == (target, task.version + 1)
    assert (stored.due_at, stored.attempts) == (now + 1, change.attempts)
    assert (stored.lost_grants, stored.next_check_at) == (1, change.next_check_at)
    assert (stored.ready_at, stored.completed_at) == (change.ready_at, change.completed_at)
    assert (stored.lease_expires_at, stored.lease_acked) == (None, False)
    assert await store.apply([change]) == [False]
