"""list_tasks, count_tasks, attempts, lane_counts, purge."""

from __future__ import annotations

import operator
from typing import Any as Anything

import pytest

from mainspring_server.domain import lifecycle
from mainspring_server.domain.leases import Failure, Success
from mainspring_server.domain.task import (
    IdempotencyKey,
    InsertState,
    Payload,
    PayloadKind,
    Status,
    Task,
    Waits,
)
from mainspring_server.store.port import (
    All,
    Any,
    Field,
    Filter,
    LaneCounts,
    ListQuery,
    Not,
    Store,
)

COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ATTRIBUTES = {"create_time": "created_at", "due_time": "due_at", "complete_time": "completed_at"}
LABELS = {
    '{"a.b/c": "x", "size": "9"}': {"a.b/c": "x", "size": "9"},
    '{"a": "x"}': {"a": "x"},
    None: {},
}


def matches(where: Filter, task: Task) -> bool:
    """The meaning of a filter, in Python."""
    if isinstance(where, Not):
        return not matches(where.item, task)
    if isinstance(where, All):
        return all(matches(item, task) for item in where.items)
    if isinstance(where, Any):
        return any(matches(item, task) for item in where.items)
    if where.name.startswith("labels."):
        value = LABELS[task.labels].get(where.name.removeprefix("labels."))
    else:
        value = getattr(task, ATTRIBUTES.get(where.name, where.name))
    return value is not None and COMPARE[where.op](value, where.value)


def query(where: Filter, **fields: Anything) -> ListQuery:
    values = {"order": "create_time", "descending": False, "after": None, "limit": 1_000}
    return ListQuery("default", where, **(values | fields))


@pytest.fixture
async def tasks(store: Store, kit: Anything, advance: Anything) -> list[Task]:
    """Some of everything, and a task of another namespace that must never show."""
    now = await store.now()
    one, two = kit.uuid7(now), kit.uuid7(now)
    variety: list[dict[str, Anything]] = [
        {"priority": 0, "labels": '{"a.b/c": "x", "size": "9"}', "schedule_id": one},
        {"priority": 5, "labels": '{"a": "x"}', "retry_of": one},
        {"priority": 9, "task_type": "type-b", "queue": "queue-b", "schedule_id": two},
        {"priority": 5, "due_in": 5_000},
        {"priority": 3, "due_in": 9_000, "task_type": "type-c"},
        {"priority": 3, "status": Status.CREATED, "retry_of": two},
    ]
    ids = []
    for fields in variety:
        ids.append((await kit.inserted(**fields)).task_id)
        advance(1)
    done, failed, running = [await kit.running(worker) for worker in ("w1", "w2", "w3")]
    await store.succeed([Success(done.task_id, done.token, None)])
    failure = Failure(failed.task_id, failed.token, "boom", "E", retryable=False)
    change = lifecycle.fail(await kit.stored(failed.task_id), failure, await store.now(), 0.0)
    assert await store.apply([change]) == [True]
    await kit.inserted(namespace="other")
    ids += [done.task_id, failed.task_id, running.task_id]
    return [await kit.stored(task_id) for task_id in ids]


async def listed(store: Store, where: Filter) -> list[bytes]:
    return [task.task_id for task in await store.list_tasks(query(where))]


def expected(tasks: list[Task], where: Filter) -> list[bytes]:
    found = [task for task in tasks if matches(where, task)]
    return [task.task_id for task in sorted(found, key=lambda t: (t.created_at, t.task_id))]


async def test_every_field_and_operator(store: Store, tasks: list[Task]) -> None:
    values: dict[str, list[Anything]] = {
        "status": [3, 5],
        "task_type": ["type-b", "work"],
        "queue": ["queue-b"],
        "priority": [3, 5],
        "schedule_id": [tasks[0].schedule_id],
        "retry_of": [tasks[1].retry_of],
        "worker_id": ["w1", "w3"],
        "attempts": [0, 1],
        "create_time": [tasks[2].created_at],
        "due_time": [tasks[3].due_at],
        "complete_time": [tasks[6].completed_at],
        "labels.a.b/c": ["x"],
        "labels.a": ["x", "y"],
        "labels.size": ["9", "10"],
        "labels.none": ["x"],
    }
    for name, compared in values.items():
        for op in COMPARE:
            for value in compared:
                where = Field(name, op, value)
                assert await listed(store, where) == expected(tasks, where), where
                assert await listed(store, Not(where)) == expected(tasks, Not(where)), where


async def test_nesting(store: Store, tasks: list[Task]) -> None:
    ready, urgent = Field("status", "=", 3), Field("priority", "<=", 3)
    scheduled = Field("schedule_id", "!=", b"\0" * 16)
    wheres: list[Filter] = [
        All(()),
        Any(()),
        Not(All(())),
        Not(Any(())),
        All((ready, urgent)),
        Any((ready, urgent)),
        Not(Any((ready, scheduled))),
        Not(All((ready, Not(scheduled)))),
        Not(Not(scheduled)),
        All((Any((ready, Not(urgent))), Not(All((urgent, scheduled))))),
        Any((All((ready,)), Any(()), Not(Any((urgent, Not(ready)))))),
    ]
    for where in wheres:
        assert await listed(store, where) == expected(tasks, where), where


async def test_long_filter(store: Store, tasks: list[Task]) -> None:
    where = Any(tuple(Field("priority", "=", 1_000 + n) for n in range(1_500)))
    assert await listed(store, where) == []
    assert await listed(store, Not(where)) == expected(tasks, Not(where))


@pytest.mark.parametrize("value", ["x' OR 1 --", '"', "%", "\\", "\u2028"])
async def test_values_are_only_values(store: Store, tasks: list[Task], value: str) -> None:
    assert await listed(store, Field("labels.a", "=", value)) == []
    assert await listed(store, Field("task_type", "=", value)) == []


@pytest.mark.parametrize("order", ["create_time", "due_time"])
@pytest.mark.parametrize("descending", [False, True])
async def test_pages_are_stable_over_equal_keys(
    store: Store, kit: Anything, advance: Anything, order: str, descending: bool
) -> None:
    for _ in range(3):
        await kit.many(5, due_in=1_000)
        await kit.many(4, due_in=999)
        advance(1)
    attribute = ATTRIBUTES[order]
    found: list[tuple[int, bytes]] = []
    after = None
    while page := await store.list_tasks(
        query(All(()), order=order, descending=descending, after=after, limit=4)
    ):
        assert len(page) <= 4
        found += [(getattr(task, attribute), task.task_id) for task in page]
        after = found[-1]
        await kit.inserted(namespace="other")
    assert len(found) == 27
    assert found == sorted(found, reverse=descending)


async def test_count(store: Store, tasks: list[Task]) -> None:
    assert await store.count_tasks("default", All(()), None) == [(None, 9)]
    assert await store.count_tasks("other", All(()), None) == [(None, 1)]
    assert await store.count_tasks("none", All(()), None) == [(None, 0)]
    assert await store.count_tasks("none", All(()), "status") == []
    for group_by in ("status", "task_type", "queue"):
        where = Field("priority", ">", 2)
        counts: dict[Anything, int] = {}
        for task in tasks:
            if matches(where, task):
                group = getattr(task, group_by)
                counts[group] = counts.get(group, 0) + 1
        assert dict(await store.count_tasks("default", where, group_by)) == counts


async def test_attempts_by_page(store: Store, kit: Anything, advance: Anything) -> None:
    grant = await kit.running()
    for n in range(5):
        failure = Failure(grant.task_id, grant.token, f"boom {n}", "E", retry_delay_ms=0)
        task = await kit.stored(grant.task_id)
        task.retry = task.retry.__class__(max_attempts=9)
        assert await store.apply([lifecycle.fail(task, failure, await store.now(), 0.0)]) == [True]
        await store.make_ready([grant.task_id])
        (grant,) = await store.claim_lanes([kit.want()], 1)
        advance(10)
    pages = [await store.attempts(grant.task_id, after, 2) for after in (0, 2, 4, 5)]
    assert [[attempt.error_message for attempt in page] for page in pages] == [
        ["boom 0", "boom 1"],
        ["boom 2", "boom 3"],
        ["boom 4"],
        [],
    ]
    assert [attempt.attempt for page in pages for attempt in page] == [1, 2, 3, 4, 5]


async def test_lane_counts(store: Store, kit: Anything, advance: Anything) -> None:
    old = await kit.inserted(queue="a")
    advance(5)
    await kit.many(2, queue="a")
    await kit.many(3, due_in=1_000, queue="b")
    ahead = await kit.inserted(due_in=4_000, queue="c")
    await store.make_ready([ahead.task_id], lead_ms=4_000)
    await kit.running(queue="b")
    done = await kit.running(queue="d")
    await store.succeed([Success(done.task_id, done.token, None)])
    await kit.inserted(queue="a", namespace="other")
    oldest = (await kit.stored(old.task_id)).ready_at
    assert await store.lane_counts("default") == [
        LaneCounts("default/a", 0, 3, 0, max(oldest, old.due_at)),
        LaneCounts("default/b", 3, 0, 1, None),
        LaneCounts("default/c", 0, 1, 0, ahead.due_at),
    ]
    assert await store.lane_counts("none") == []


async def test_purge_deletes_what_is_over(store: Store, kit: Anything, advance: Anything) -> None:
    body = Payload(PayloadKind.DATA, b"body", None)
    over = []
    for _ in range(5):
        grant = await kit.running(payload=body)
        await store.succeed([Success(grant.task_id, grant.token, None)])
        over.append(grant.task_id)
    alive = [await kit.inserted(), await kit.inserted(due_in=99_000_000), await kit.running()]
    unresolved = await kit.running()
    child = await kit.new(status=Status.CREATED, waits=Waits((unresolved.task_id,)))
    await store.insert_graph([child])
    await store.succeed([Success(unresolved.task_id, unresolved.token, None)])
    bound = await store.now() + 1_000
    advance(100_000)
    late = await kit.running()
    await store.succeed([Success(late.task_id, late.token, None)])
    assert await store.purge(bound, 3) == 3
    assert await store.purge(bound, 3) == 2
    assert await store.purge(bound, 3) == 0
    assert await store.load(over, payload=True) == [None] * 5
    for kept in (*alive, unresolved, child, late):
        assert (await kit.stored(kept.task_id)).task_id == kept.task_id


async def test_purge_takes_attempts_along(store: Store, kit: Anything, advance: Anything) -> None:
    grant = await kit.running()
    failure = Failure(grant.task_id, grant.token, "boom", "E", retryable=False)
    change = lifecycle.fail(await kit.stored(grant.task_id), failure, await store.now(), 0.0)
    await store.apply([change])
    assert len(await store.attempts(grant.task_id, 0, 9)) == 1
    advance(10_000)
    assert await store.purge(await store.now(), 100) == 1
    assert await store.attempts(grant.task_id, 0, 9) == []


async def test_purge_leaves_a_fresh_key_alone(
    store: Store, kit: Anything, advance: Anything
) -> None:
    now = await store.now()
    key = IdempotencyKey(b"d" * 16, b"h" * 32, now + 10_000)
    first = await kit.inserted(due_in=60_000, idempotency=key)
    advance(9_000)
    await store.purge(await store.now(), 100)
    (answer,) = await store.insert([await kit.new(idempotency=key)])
    assert (answer.state, answer.task_id) == (InsertState.EXISTING, first.task_id)
    advance(1_000)
    await store.purge(await store.now(), 100)
    later = key._replace(request_hash=b"i" * 32, expires_at=now + 99_000)
    (answer,) = await store.insert([await kit.new(idempotency=later)])
    assert answer.state is InsertState.INSERTED
