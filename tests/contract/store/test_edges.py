"""Dependencies, sentence by sentence of the protocol Edges."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring_server.domain import lifecycle
from mainspring_server.domain.checks import GRACE_MS
from mainspring_server.domain.errors import AlreadyExists, NotFound
from mainspring_server.domain.leases import Failure, Success
from mainspring_server.domain.task import (
    HANDED_BYTES,
    Edge,
    IdempotencyKey,
    InsertState,
    NewTask,
    Rule,
    Status,
    Waits,
    Written,
)
from mainspring_server.store.port import Field, ListQuery, Store

SUCCEEDED, FAILED, CANCELLED = Status.SUCCEEDED, Status.FAILED, Status.CANCELLED


class Graphs:
    """Short ways to a graph in the state that a test is about."""

    def __init__(self, store: Store, kit: Any) -> None:
        self.store = store
        self.kit = kit

    async def child(self, *predecessors: bytes, **fields: Any) -> NewTask:
        """A task that waits for these, not inserted yet; `rule` and `delay_ms` are its Waits'."""
        terms = {name: fields.pop(name) for name in ("rule", "delay_ms") if name in fields}
        waits = Waits(predecessors, **terms)
        task: NewTask = await self.kit.new(status=Status.CREATED, waits=waits, **fields)
        return task

    async def waiting_for(self, *predecessors: bytes, **fields: Any) -> NewTask:
        """The same, inserted."""
        task = await self.child(*predecessors, **fields)
        (answer,) = await self.store.insert_graph([task])
        assert answer.state is InsertState.INSERTED
        return task

    async def end(
        self, task_id: bytes, how: Status = SUCCEEDED, outcome: bytes | None = None
    ) -> Any:
        """Run a READY task to its end; what the store answered."""
        row = await self.kit.stored(task_id)
        now = await self.store.now()
        if how is CANCELLED:
            return (await self.store.apply([lifecycle.cancel(row, "", now)]))[0]
        (grant,) = await self.store.claim(
            [self.kit.ref_of(row)], self.kit.want(("w1", 1), lanes=(row.lane,))
        )
        if how is SUCCEEDED:
            return (await self.store.succeed([Success(task_id, grant.token, outcome)]))[0]
        failure = Failure(task_id, grant.token, "boom", "E", retryable=False)
        change = lifecycle.fail(await self.kit.stored(task_id), failure, now, 0.0)
        return (await self.store.apply([change]))[0]


@pytest.fixture
def graphs(store: Store, kit: Any) -> Graphs:
    return Graphs(store, kit)


# --- insert_graph -----------------------------------------------------------------------------


async def test_a_graph_is_stored_whole(store: Store, kit: Any, graphs: Graphs) -> None:
    outside = await kit.inserted()
    graph_id = kit.uuid7(await store.now())
    first = await kit.new(graph_id=graph_id, local_ref="first", labels='{"a":"b"}')
    second = await graphs.child(
        first.task_id,
        outside.task_id,
        first.task_id,
        rule=Rule.ANY_FAILED,
        delay_ms=7,
        graph_id=graph_id,
        local_ref="second",
    )
    answers = await store.insert_graph([first, second])
    assert [(a.state, a.task_id, a.status) for a in answers] == [
        (InsertState.INSERTED, first.task_id, Status.READY),
        (InsertState.INSERTED, second.task_id, Status.CREATED),
    ]
    stored = await kit.stored(second.task_id)
    assert (stored.rule, stored.delay_after_ms) == (Rule.ANY_FAILED, 7)
    assert (stored.graph_id, stored.local_ref, stored.version) == (graph_id, "second", 1)
    assert not stored.has_dependents
    parent = await kit.stored(first.task_id)
    assert (parent.rule, parent.has_dependents, parent.local_ref) == (None, True, "first")
    assert parent.ready_at is not None
    assert (await kit.stored(outside.task_id)).has_dependents
    assert (await kit.stored(outside.task_id)).version == 1
    pairs = sorted([first.task_id, outside.task_id])
    assert await store.edges([second.task_id]) == [Edge(second.task_id, p, None) for p in pairs]


async def test_an_edge_to_what_has_ended_has_its_outcome_at_once(
    store: Store, kit: Any, graphs: Graphs
) -> None:
    ends = {how: (await kit.inserted()).task_id for how in (SUCCEEDED, FAILED, CANCELLED)}
    for how, task_id in ends.items():
        assert await graphs.end(task_id, how) is Written.APPLIED
    live = (await kit.inserted()).task_id
    child = await graphs.waiting_for(live, *ends.values())
    assert (await kit.stored(child.task_id)).status is Status.CREATED
    found = {edge.predecessor: edge.outcome for edge in await store.edges([child.task_id])}
    assert found == {live: None} | {task_id: how for how, task_id in ends.items()}


async def test_unknown_and_foreign_predecessors_refuse_all_of_it(
    store: Store, kit: Any, graphs: Graphs
) -> None:
    known = await kit.inserted()
    foreign = await kit.inserted(namespace="other")
    unknown = kit.uuid7(await store.now())
    for bad in (foreign.task_id, unknown):
        plain = await kit.new()
        with pytest.raises(NotFound) as caught:
            await store.insert_graph([plain, await graphs.child(known.task_id, bad)])
        assert caught.value.reason == "PREDECESSOR_NOT_FOUND"
        assert bytes.fromhex(caught.value.metadata["task_id"].replace("-", "")) == bad
        assert await store.load([plain.task_id]) == [None]
    assert not (await kit.stored(known.task_id)).has_dependents
    assert not (await kit.stored(foreign.task_id)).has_dependents
    # Each namespace of a batch has its own.
    own = await graphs.child(known.task_id)
    theirs = await graphs.child(foreign.task_id, namespace="other")
    assert len(await store.insert_graph([own, theirs])) == 2


async def test_keys_answer_the_first_graph(store: Store, kit: Any, graphs: Graphs) -> None:
    now = await store.now()

    def key(name: bytes, hash_: bytes = b"h") -> IdempotencyKey:
        return IdempotencyKey(name.ljust(16), hash_.ljust(32), now + 60_000)

    first = await kit.new(idempotency=key(b"a"))
    second = await graphs.child(first.task_id, idempotency=key(b"b"))
    await store.insert_graph([first, second])

    again = await kit.new(idempotency=key(b"a"))
    child = await graphs.child(again.task_id, idempotency=key(b"b"))
    answers = await store.insert_graph([again, child])
    assert [(a.state, a.task_id) for a in answers] == [
        (InsertState.EXISTING, first.task_id),
        (InsertState.EXISTING, second.task_id),
    ]
    unkeyed = await graphs.child(again.task_id)
    new_key = await graphs.child(again.task_id, idempotency=key(b"c"))
    other = await graphs.child(again.task_id, idempotency=key(b"b", b"x"))
    for batch in ([again, unkeyed], [again, new_key], [again, other], [child, again, child]):
        with pytest.raises(AlreadyExists) as caught:
            await store.insert_graph(batch)
        assert caught.value.reason == "IDEMPOTENCY_KEY_REUSED"
    assert await store.load([again.task_id, child.task_id, new_key.task_id]) == [None] * 3
    # The key that came with a refused graph is still free.
    (answer,) = await store.insert_graph([await kit.new(idempotency=key(b"c"))])
    assert answer.state is InsertState.INSERTED


async def test_a_key_that_expired_or_whose_task_is_gone_is_free(
    store: Store, kit: Any, graphs: Graphs, advance: Any
) -> None:
    now = await store.now()
    for expires in (now + 10, now + 10**9):
        name = IdempotencyKey(b"k" * 16, b"h" * 32, expires)
        task = await kit.new(idempotency=name)
        (answer,) = await store.insert_graph([task])
        assert (answer.state, answer.task_id) == (InsertState.INSERTED, task.task_id)
        advance(20)
    await graphs.end(task.task_id)
    advance(1_000)
    assert await store.purge(await store.now(), 100) == 1
    renewed = await kit.new(idempotency=IdempotencyKey(b"k" * 16, b"h" * 32, expires))
    assert (await store.insert_graph([renewed]))[0].state is InsertState.INSERTED
    assert (await store.insert_graph([renewed]))[0].state is InsertState.EXISTING


# --- Ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [SUCCEEDED, FAILED, CANCELLED])
async def test_the_end_of_a_predecessor_is_told_and_keeps_its_check(
    store: Store, kit: Any, graphs: Graphs, how: Status
) -> None:
    task, plain = await kit.inserted(), await kit.inserted()
    await graphs.waiting_for(task.task_id)
    now = await store.now()
    assert await graphs.end(task.task_id, how) is Written.TELL
    assert await graphs.end(plain.task_id, how) is Written.APPLIED
    assert (await kit.stored(task.task_id)).next_check_at == now + GRACE_MS
    assert (await kit.stored(plain.task_id)).next_check_at is None
    overdue = await store.overdue(range(64), now + GRACE_MS, None, 100)
    assert task.task_id in [row.task_id for row in overdue]


async def test_an_end_with_dependents_that_is_stale_is_not_told(
    store: Store, kit: Any, graphs: Graphs
) -> None:
    grant = await kit.running()
    await graphs.waiting_for(grant.task_id)
    stale = Success(grant.task_id, grant.token + 1, None)
    good = Success(grant.task_id, grant.token, None)
    answers = await store.succeed([stale, good, good])
    assert answers == [Written.STALE, Written.TELL, Written.STALE]


async def test_a_change_that_is_no_end_keeps_its_own_check(
    store: Store, kit: Any, graphs: Graphs
) -> None:
    grant = await kit.running()
    await graphs.waiting_for(grant.task_id)
    change = lifecycle.fail(
        await kit.stored(grant.task_id),
        Failure(grant.task_id, grant.token, "boom", "E"),
        await store.now(),
        0.5,
    )
    assert await store.apply([change]) == [Written.APPLIED]
    assert (await kit.stored(grant.task_id)).next_check_at == change.next_check_at


async def test_told_clears_the_check_of_what_has_ended_and_no_version(
    store: Store, kit: Any, graphs: Graphs
) -> None:
    ended, live = await kit.inserted(), await kit.inserted()
    await graphs.waiting_for(ended.task_id, live.task_id)
    await graphs.end(ended.task_id)
    before = await kit.stored(ended.task_id)
    check = (await kit.stored(live.task_id)).next_check_at
    await store.told([live.task_id, ended.task_id, kit.uuid7(await store.now())])
    after = await kit.stored(ended.task_id)
    assert (after.next_check_at, after.version) == (None, before.version)
    assert (await kit.stored(live.task_id)).next_check_at == check
    # A sweeper that read the row before does not bring the check back.
    await store.defer([(ended.task_id, before.version, check or 0)])
    assert (await kit.stored(ended.task_id)).next_check_at is None


# --- resolve and waiting ----------------------------------------------------------------------


def counts(row: Any) -> tuple[int, ...]:
    return (row.waiting, row.succeeded, row.failed, row.cancelled)


async def test_resolve_marks_and_counts(store: Store, kit: Any, graphs: Graphs) -> None:
    one, two, three, four = [(await kit.inserted()).task_id for _ in range(4)]
    child = await graphs.waiting_for(one, two, three, four)
    assert [counts(row) for row in await store.resolve([one], None, 10)] == [(4, 0, 0, 0)]
    await graphs.end(one)
    await graphs.end(two, CANCELLED)
    # Only what it is asked about is marked.
    (row,) = await store.resolve([one], None, 10)
    assert (counts(row), row.culprit) == ((3, 1, 0, 0), None)
    assert row.task == await kit.stored(child.task_id)
    (row,) = await store.resolve([two, one], None, 10)
    assert (counts(row), row.culprit) == ((2, 1, 0, 1), two)
    await graphs.end(three, FAILED)
    (row,) = await store.resolve([three], None, 10)
    assert (counts(row), row.culprit) == ((1, 1, 1, 1), three)
    await graphs.end(four, FAILED)
    (row,) = await store.waiting([child.task_id])
    assert (counts(row), row.culprit) == ((0, 1, 2, 1), min(three, four))
    for _ in range(3):
        assert [counts(r) for r in await store.resolve([one, four], None, 10)] == [(0, 1, 2, 1)]


async def test_resolve_pages_through_the_waiting_dependents_in_id_order(
    store: Store, kit: Any, graphs: Graphs
) -> None:
    one, two = [(await kit.inserted()).task_id for _ in range(2)]
    first = [await graphs.child(one) for _ in range(4)]
    both = [await graphs.child(one, two) for _ in range(4)]
    last = [await graphs.child(two) for _ in range(4)]
    await store.insert_graph([*first, *both, *last])
    await graphs.end(one)
    await graphs.end(two)
    gone = sorted(task.task_id for task in (*first, *both, *last))[2::4]
    rows = [await kit.stored(task_id) for task_id in gone]
    now = await store.now()
    assert all(await store.apply([lifecycle.cancel(row, "", now) for row in rows]))
    found: list[bytes] = []
    after = None
    while True:
        page = await store.resolve([two, one, two], after, 2)
        found += [row.task.task_id for row in page]
        if len(page) < 2:
            break
        after = page[-1].task.task_id
    everybody = {task.task_id for task in (*first, *both, *last)}
    assert found == sorted(everybody - set(gone))
    outcomes = {edge.outcome for edge in await store.edges(found)}
    assert outcomes == {SUCCEEDED}


async def test_resolve_knows_only_dependents(store: Store, kit: Any) -> None:
    task = await kit.inserted()
    assert await store.resolve([task.task_id, kit.uuid7(await store.now())], None, 10) == []
    assert await store.resolve([], None, 10) == []
    assert await store.waiting([task.task_id]) == []
    assert await store.waiting([]) == []


async def test_waiting_answers_those_that_are_created(
    store: Store, kit: Any, graphs: Graphs
) -> None:
    parent = (await kit.inserted()).task_id
    waits, gone = await graphs.waiting_for(parent), await graphs.waiting_for(parent)
    await graphs.end(gone.task_id, CANCELLED)
    rows = await store.waiting([gone.task_id, waits.task_id, parent])
    assert [(row.task.task_id, counts(row)) for row in rows] == [(waits.task_id, (1, 0, 0, 0))]


async def test_a_release_sets_due_time_deadline_and_publication(
    store: Store, kit: Any, graphs: Graphs, advance: Any
) -> None:
    parent = (await kit.inserted()).task_id
    child = await graphs.waiting_for(parent)
    advance(5_000)
    now = await store.now()
    change = lifecycle.release(await kit.stored(child.task_id), now)
    change.deadline_at = now + 99
    assert await store.apply([change, change]) == [Written.APPLIED, Written.STALE]
    row = await kit.stored(child.task_id)
    assert (row.status, row.version, row.due_at) == (Status.READY, 2, now)
    assert (row.ready_at, row.published_at, row.deadline_at) == (now, now, now + 99)
    later = lifecycle.reschedule(row, now + 1_000, now)
    assert await store.apply([later]) == [Written.APPLIED]
    assert (await kit.stored(child.task_id)).deadline_at == now + 99


# --- What is handed over, and reads -----------------------------------------------------------


async def test_a_grant_says_whether_there_were_predecessors(
    store: Store, kit: Any, graphs: Graphs
) -> None:
    parent = await kit.inserted()
    child = await graphs.waiting_for(parent.task_id)
    await graphs.end(parent.task_id)
    await store.apply([lifecycle.release(await kit.stored(child.task_id), await store.now())])
    plain = await kit.inserted()
    grants = await store.claim_lanes([kit.want(("w1", 10))], 1)
    assert {grant.task_id: bool(grant.has_predecessors) for grant in grants} == {
        child.task_id: True,
        plain.task_id: False,
    }
    assert [grant.handed for grant in grants] == [(), ()]


async def test_predecessors_hand_over_in_id_order_what_they_ended_with(
    store: Store, kit: Any, graphs: Graphs
) -> None:
    good = await kit.new(local_ref="good", graph_id=kit.uuid7(1))
    bad, live = await kit.new(), await kit.new()
    child = await graphs.child(live.task_id, bad.task_id, good.task_id)
    other = await graphs.child(good.task_id)
    await store.insert_graph([child, good, bad, live, other])
    await graphs.end(good.task_id, SUCCEEDED, b"out\0come")
    await graphs.end(bad.task_id, FAILED)
    handed = await store.predecessors([child.task_id, other.task_id, good.task_id])
    expected = {
        good.task_id: ("good", SUCCEEDED, b"out\0come"),
        bad.task_id: (None, FAILED, None),
    }
    assert [item.task_id for item in handed[child.task_id]] == sorted(expected)
    assert {item.task_id: tuple(item[1:]) for item in handed[child.task_id]} == expected
    assert [item.task_id for item in handed[other.task_id]] == [good.task_id]
    assert good.task_id not in handed
    assert await store.predecessors([]) == {}


async def test_what_is_handed_over_is_bounded(store: Store, kit: Any, graphs: Graphs) -> None:
    parents = await kit.many(20)
    child = await graphs.waiting_for(*(task.task_id for task in parents))
    for task in parents:
        await graphs.end(task.task_id, SUCCEEDED, bytes(64 * 1_024))
    (items,) = (await store.predecessors([child.task_id])).values()
    assert 0 < sum(len(item.outcome or b"") for item in items) <= HANDED_BYTES
    assert [item.task_id for item in items] == sorted(t.task_id for t in parents)[: len(items)]
    assert len(items) == 15


async def test_dependents_are_read_with_their_edges(store: Store, kit: Any, graphs: Graphs) -> None:
    one, two = [(await kit.inserted()).task_id for _ in range(2)]
    children = sorted([(await graphs.waiting_for(one, two)).task_id for _ in range(3)])
    await graphs.end(two)
    await store.resolve([two], None, 10)
    expected = [Edge(c, p, SUCCEEDED if p == two else None) for c in children for p in (one, two)]
    expected.sort(key=lambda edge: edge[:2])
    assert await store.dependents([one, two], 100) == expected
    assert await store.edges(children[::-1]) == expected
    assert await store.dependents([one], 2) == [Edge(c, one, None) for c in children[:2]]
    assert await store.dependents([], 2) == []


async def test_graphs_are_listed_and_counted(store: Store, kit: Any, graphs: Graphs) -> None:
    graph_id = kit.uuid7(await store.now())
    tasks = [await kit.new(graph_id=graph_id) for _ in range(3)]
    await store.insert_graph(tasks)
    await kit.inserted()
    await graphs.end(tasks[0].task_id)
    where = Field("graph_id", "=", graph_id)
    query = ListQuery("default", where, "create_time", False, None, 10)
    assert {row.task_id for row in await store.list_tasks(query)} == {t.task_id for t in tasks}
    groups = dict(await store.count_tasks("default", where, "status"))
    assert groups == {int(SUCCEEDED): 1, int(Status.READY): 2}


# --- Retention --------------------------------------------------------------------------------


async def test_an_outcome_outlives_its_predecessor(
    store: Store, kit: Any, graphs: Graphs, advance: Any
) -> None:
    """V13: a boolean would have lost its meaning with the row."""
    failed, live = await kit.inserted(), await kit.inserted()
    child = await graphs.waiting_for(failed.task_id, live.task_id, rule=Rule.ALL_DONE)
    await graphs.end(failed.task_id, FAILED)
    advance(1_000)
    assert await store.purge(await store.now(), 100) == 0  # the dependent was not told
    await store.resolve([failed.task_id], None, 10)
    await store.told([failed.task_id])
    assert await store.purge(await store.now(), 100) == 1
    assert await store.load([failed.task_id]) == [None]
    await graphs.end(live.task_id)
    (row,) = await store.resolve([live.task_id], None, 10)
    assert (counts(row), row.culprit) == ((0, 1, 1, 0), failed.task_id)
    handed = (await store.predecessors([child.task_id]))[child.task_id]
    assert {item.task_id: item.status for item in handed} == {
        failed.task_id: FAILED,
        live.task_id: SUCCEEDED,
    }


async def test_edges_go_with_their_dependent(
    store: Store, kit: Any, graphs: Graphs, advance: Any
) -> None:
    parent = await kit.inserted()
    child = await graphs.waiting_for(parent.task_id)
    await graphs.end(child.task_id, CANCELLED)
    advance(1_000)
    assert await store.purge(await store.now(), 100) == 1
    assert await store.edges([child.task_id]) == []
    assert await store.dependents([parent.task_id], 10) == []
