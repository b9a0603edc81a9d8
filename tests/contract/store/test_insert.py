"""TaskStore.insert and load."""

from __future__ import annotations

import asyncio
from typing import Any

from mainspring_server.domain.leases import Success
from mainspring_server.domain.retry import DEFAULT_RETRY, RetryPolicy
from mainspring_server.domain.task import (
    IdempotencyKey,
    Inserted,
    InsertState,
    Payload,
    PayloadKind,
    Status,
    Timeouts,
)
from mainspring_server.store.port import Store

DAY = 86_400_000


def key(now: int, digest: bytes = b"k", request: bytes = b"r") -> IdempotencyKey:
    return IdempotencyKey(digest.ljust(16, b"."), request.ljust(32, b"."), now + DAY)


async def test_now_is_the_clock_that_the_test_moves(store: Store, advance: Any) -> None:
    before = await store.now()
    advance(1_234)
    assert 1_234 <= await store.now() - before < 61_234


async def test_ready_task_is_stored_whole(store: Store, kit: Any) -> None:
    now = await store.now()
    task = await kit.inserted(priority=7)
    stored = await kit.stored(task.task_id)
    assert (stored.namespace, stored.task_type, stored.queue) == ("default", "work", "work")
    assert (stored.status, stored.version, stored.attempts) == (Status.READY, 1, 0)
    assert (stored.priority, stored.due_at, stored.created_at) == (7, task.due_at, task.created_at)
    assert stored.ready_at == stored.published_at
    assert stored.ready_at is not None
    assert stored.ready_at >= now
    assert stored.next_check_at == task.next_check_at
    assert (stored.retry, stored.timeouts) == (DEFAULT_RETRY, Timeouts())
    assert (stored.worker_id, stored.lease_expires_at, stored.lease_acked) == (None, None, False)
    assert (stored.outcome, stored.outcome_by, stored.completed_at) == (None, None, None)
    assert (stored.lost_grants, stored.payload) == (0, None)


async def test_waiting_task_is_not_published(kit: Any) -> None:
    pending = await kit.stored((await kit.inserted(due_in=5_000)).task_id)
    created = await kit.stored((await kit.inserted(status=Status.CREATED)).task_id)
    assert (pending.status, created.status) == (Status.PENDING, Status.CREATED)
    assert pending.ready_at is pending.published_at is created.ready_at is None


async def test_every_field_comes_back(store: Store, kit: Any) -> None:
    now = await store.now()
    fields: dict[str, Any] = {
        "task_type": "type",
        "queue": "queue",
        "namespace": "other",
        "labels": '{"a": "b"}',
        "retry": RetryPolicy(9, 10, 1.5, 99),
        "timeouts": Timeouts(11, 12, 13),
        "trace_context": "00-ab-cd-01",
        "retry_of": kit.uuid7(now),
        "schedule_id": kit.uuid7(now),
        "nominal_at": now - 1,
        "deadline_at": now + DAY,
    }
    for due_in in (0, 1_000):
        stored = await kit.stored((await kit.inserted(due_in, **fields)).task_id)
        assert {name: getattr(stored, name) for name in fields} == fields


async def test_payload_comes_back_when_asked_for(store: Store, kit: Any) -> None:
    payloads = [
        Payload(PayloadKind.JSON, b'{"a": "\\u0000"}', None),
        Payload(PayloadKind.DATA, bytes(range(256)), '{"type": "bin"}'),
        Payload(PayloadKind.DATA, b"", None),
        Payload(PayloadKind.DATA, bytes(1 << 20), None),
        Payload(PayloadKind.NONE, b"", None),
    ]
    tasks = [await kit.new(payload=payload) for payload in payloads]
    await store.insert(tasks)
    ids = [task.task_id for task in tasks]
    loaded = await store.load(ids, payload=True)
    assert [task.payload for task in loaded if task] == payloads
    assert [task.payload for task in await store.load(ids) if task] == [None] * 5


async def test_load_answers_in_order_and_by_namespace(store: Store, kit: Any) -> None:
    tasks = await kit.many(300)
    (foreign,) = await kit.many(1, namespace="other")
    unknown = kit.uuid7(await store.now())
    ids = [task.task_id for task in reversed(tasks)]
    found = await store.load([*ids, unknown, foreign.task_id, ids[0]], namespace="default")
    assert [task and task.task_id for task in found] == [*ids, None, None, ids[0]]
    (seen,) = await store.load([foreign.task_id])
    assert seen is not None
    assert await store.load([]) == []


async def test_repeated_call_answers_inserted_and_adds_nothing(store: Store, kit: Any) -> None:
    payload = Payload(PayloadKind.DATA, b"first", None)
    tasks = [await kit.new(payload=payload) for _ in range(3)]
    first = await store.insert(tasks)
    late = await kit.new()
    again = await store.insert([tasks[1], late, *tasks, late])
    states = [answer.state for answer in [*first, *again]]
    assert states == [InsertState.INSERTED] * 9
    assert [answer.task_id for answer in again] == [
        task.task_id for task in (tasks[1], late, *tasks, late)
    ]
    count = await store.count_tasks("default", kit.everything, None)
    assert count == [(None, 4)]
    (kept,) = await store.load([tasks[0].task_id], payload=True)
    assert kept is not None
    assert kept.payload == payload


async def test_insert_of_nothing(store: Store) -> None:
    assert await store.insert([]) == []


async def test_known_key_answers_the_first_task_as_it_stands(store: Store, kit: Any) -> None:
    now = await store.now()
    first = await kit.inserted(idempotency=key(now))
    (grant,) = await store.claim_lanes([kit.want()], 1)
    await store.succeed([Success(grant.task_id, grant.token, None)])
    second = await kit.new(due_in=999, idempotency=key(now))
    answers = await store.insert([second])
    assert answers == [
        Inserted(InsertState.EXISTING, first.task_id, Status.SUCCEEDED, first.due_at)
    ]
    assert await store.load([second.task_id]) == [None]


async def test_key_of_another_request_conflicts(store: Store, kit: Any) -> None:
    now = await store.now()
    first = await kit.inserted(idempotency=key(now))
    other = await kit.new(idempotency=key(now, request=b"another"))
    (answer,) = await store.insert([other])
    assert (answer.state, answer.task_id) == (InsertState.CONFLICT, first.task_id)
    assert await store.load([other.task_id]) == [None]


async def test_keys_within_one_batch_come_one_after_the_other(store: Store, kit: Any) -> None:
    now = await store.now()
    batch = [
        await kit.new(idempotency=key(now, b"z")),
        await kit.new(idempotency=key(now, b"a")),
        await kit.new(idempotency=key(now, b"z")),
        await kit.new(idempotency=key(now, b"z", b"another")),
        await kit.new(),
    ]
    answers = await store.insert(batch)
    inserted, existing, conflict = InsertState.INSERTED, InsertState.EXISTING, InsertState.CONFLICT
    assert [answer.state for answer in answers] == [
        inserted, inserted, existing, conflict, inserted,
    ]  # fmt: skip
    assert answers[2].task_id == answers[3].task_id == batch[0].task_id
    assert (answers[2].status, answers[2].due_at) == (Status.READY, batch[0].due_at)
    loaded = await store.load([task.task_id for task in batch])
    assert [task is not None for task in loaded] == [True, True, False, False, True]


async def test_repeated_call_with_a_key_answers_inserted(store: Store, kit: Any) -> None:
    task = await kit.inserted(idempotency=key(await store.now()))
    (answer,) = await store.insert([task])
    assert (answer.state, answer.task_id) == (InsertState.INSERTED, task.task_id)


async def test_expired_key_is_taken_over(store: Store, kit: Any, advance: Any) -> None:
    first = await kit.inserted(idempotency=key(await store.now()))
    advance(DAY)
    now = await store.now()
    second = await kit.inserted(idempotency=key(now, request=b"another"))
    third = await kit.new(idempotency=key(now, request=b"another"))
    (answer,) = await store.insert([third])
    assert (answer.state, answer.task_id) == (InsertState.EXISTING, second.task_id)
    assert first.task_id != second.task_id


async def test_concurrent_inserts_of_one_key_make_one_task(store: Store, kit: Any) -> None:
    now = await store.now()
    batches = [
        [await kit.new(idempotency=key(now, bytes([n]))) for n in order]
        for order in ([1, 2, 3], [3, 2, 1], [2, 3, 1], [1, 3, 2])
    ]
    answers = await asyncio.gather(*(store.insert(batch) for batch in batches))
    states = [answer.state for batch in answers for answer in batch]
    assert states.count(InsertState.INSERTED) == 3
    assert states.count(InsertState.EXISTING) == 9
    assert len({answer.task_id for batch in answers for answer in batch}) == 3
    assert await store.count_tasks("default", kit.everything, None) == [(None, 3)]
