"""Schedules and their ledger: each sentence of the port, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from mainspring_server.domain import lifecycle, recurrence, schedule_changes
from mainspring_server.domain.calendar import CalendarSpec, DstGap, DstOverlap
from mainspring_server.domain.errors import FailedPrecondition, MainspringError
from mainspring_server.domain.instances import Slot, make
from mainspring_server.domain.leases import Success
from mainspring_server.domain.retry import RetryPolicy
from mainspring_server.domain.schedule import (
    CatchUp,
    LedgerRow,
    Outcome,
    Overlap,
    Plan,
    Policy,
    Schedule,
    Source,
    TemplateTask,
    View,
)
from mainspring_server.domain.task import (
    IdempotencyKey,
    Inserted,
    InsertState,
    Payload,
    PayloadKind,
    Rule,
    Status,
    Timeouts,
    Waits,
    Written,
)
from mainspring_server.ids import mint
from mainspring_server.store.port import Store
from mainspring_server.store.schedules import ScheduleKey, ScheduleStore

MINUTE = 60_000
DAY = 86_400_000
PLAIN = TemplateTask("work", "work", 5)
EVERY = range(64)


@pytest.fixture
def schedules(store: Store) -> ScheduleStore:
    return store.schedules


def scheduled(now: int, expression: str = "* * * * *", **fields: Any) -> Schedule:
    """A schedule as it is submitted: its first visit is due at once."""
    schedule_id = fields.pop("schedule_id", None) or mint(now, 1)[0]
    spec = CalendarSpec(expression, schedule_id=schedule_id, exact=True, start_at=now)
    values: dict[str, Any] = {
        "namespace": "default",
        "spec": spec,
        "policy": Policy(overlap=Overlap.ALLOW_ALL),
        "template": (PLAIN,),
        "created_at": now,
        "settled_at": now,
        "next_check_at": now,
    }
    return Schedule(schedule_id, **(values | fields))


def visiting(view: View) -> Plan:
    return recurrence.visit(view, partial(mint, view.now))


async def submitted(store: Store, count: int = 1, **fields: Any) -> list[Schedule]:
    now = await store.now()
    made = [scheduled(now, **fields) for _ in range(count)]
    answers = await store.schedules.insert_schedules([ScheduleKey(one) for one in made])
    assert [answer.task_id for answer in answers] == [one.schedule_id for one in made]
    return made


def key(now: int, digest: bytes = b"k", request: bytes = b"r") -> IdempotencyKey:
    return IdempotencyKey(digest.ljust(16, b"\0"), request.ljust(32, b"\0"), now + DAY)


# --- Keys --------------------------------------------------------------------------------------


async def test_the_holder_of_a_key(
    store: Store, schedules: ScheduleStore, advance: Callable[[int], None]
) -> None:
    now = await store.now()
    assert await schedules.key_holder(key(now)) is None
    one = scheduled(now)
    await schedules.insert_schedules([ScheduleKey(one, key(now))])
    assert await schedules.key_holder(key(now)) == one.schedule_id
    with pytest.raises(MainspringError) as refused:
        await schedules.key_holder(key(now, request=b"another"))
    assert refused.value.reason == "IDEMPOTENCY_KEY_REUSED"
    advance(DAY)
    assert await schedules.key_holder(key(now)) is None


# --- insert and load ---------------------------------------------------------------------------


async def test_every_field_is_stored(store: Store, schedules: ScheduleStore) -> None:
    now = await store.now()
    schedule_id = mint(now, 1)[0]
    spec = CalendarSpec(
        "*/5 8-17 * * MON-FRI", "Europe/Paris", schedule_id, DstGap.SKIP, DstOverlap.BOTH,
        ("2026-12-25", "0 12 * * *"), now, now + DAY, now, 7, 1_500, exact=False,
    )  # fmt: skip
    template = (
        TemplateTask(
            "a.b", "q", 0, Payload(PayloadKind.DATA, bytes(range(256)), '{"k": "v"}'), '{"l": "1"}',
            RetryPolicy(9, 1, 1.5, 7), Timeouts(1, None, 3), "00-ab", 5, "first",
        ),
        TemplateTask("c", "c", 9, predecessors=(0,), rule=Rule.ANY_FAILED, delay_after_ms=8),
    )  # fmt: skip
    policy = Policy(Overlap.BUFFER_ONE, CatchUp.ALL, 1, 2, 3, pause_on_failure=True)
    whole = Schedule(
        schedule_id, "other", spec, policy, template, now, now + 1, now + 2, 3, now + 4, 5,
        now + 6, "tea", now + 7, now + 8, "done", "2026a", '{"x": "y"}',
    )  # fmt: skip
    await schedules.insert_schedules([ScheduleKey(whole)])
    assert await schedules.load_schedules([schedule_id]) == [whole]


async def test_load_answers_in_order_and_by_namespace(
    store: Store, schedules: ScheduleStore
) -> None:
    made = await submitted(store, 300)
    (foreign,) = await submitted(store, namespace="other")
    unknown = mint(await store.now(), 1)[0]
    ids = [one.schedule_id for one in reversed(made)]
    found = await schedules.load_schedules(
        [*ids, unknown, foreign.schedule_id, ids[0]], namespace="default"
    )
    assert [one and one.schedule_id for one in found] == [*ids, None, None, ids[0]]
    assert await schedules.load_schedules([]) == []
    assert await schedules.insert_schedules([]) == []


async def test_an_inserted_schedule_is_pending_and_due_at_its_check(
    store: Store, schedules: ScheduleStore
) -> None:
    now = await store.now()
    schedule = scheduled(now, next_check_at=now + 5)
    expected = Inserted(InsertState.INSERTED, schedule.schedule_id, Status.PENDING, now + 5)
    assert await schedules.insert_schedules([ScheduleKey(schedule)]) == [expected]
    # A repeated call answers the same and changes nothing.
    assert await schedules.insert_schedules([ScheduleKey(schedule)]) == [expected]


async def test_keys_are_shared_with_tasks(store: Store, schedules: ScheduleStore, kit: Any) -> None:
    now = await store.now()
    task = await kit.inserted(idempotency=key(now, b"task"))
    held = ScheduleKey(scheduled(now), key(now, b"task", b"another"))
    (answer,) = await schedules.insert_schedules([held])
    assert (answer.state, answer.task_id) == (InsertState.CONFLICT, task.task_id)
    assert await schedules.load_schedules([held.schedule.schedule_id]) == [None]

    first = ScheduleKey(scheduled(now), key(now))
    again = ScheduleKey(scheduled(now), key(now))
    await schedules.insert_schedules([first])
    (answer,) = await schedules.insert_schedules([again])
    assert (answer.state, answer.task_id) == (InsertState.EXISTING, first.schedule.schedule_id)
    assert (answer.status, answer.due_at) == (Status.PENDING, now)
    (refused,) = await store.insert([await kit.new(idempotency=key(now, request=b"another"))])
    assert (refused.state, refused.task_id) == (InsertState.CONFLICT, first.schedule.schedule_id)


async def test_keys_within_one_batch_come_one_after_the_other(
    store: Store, schedules: ScheduleStore
) -> None:
    now = await store.now()
    batch = [
        ScheduleKey(scheduled(now), key(now, b"z")),
        ScheduleKey(scheduled(now), key(now, b"a")),
        ScheduleKey(scheduled(now), key(now, b"z")),
        ScheduleKey(scheduled(now), key(now, b"z", b"another")),
        ScheduleKey(scheduled(now)),
    ]
    answers = await schedules.insert_schedules(batch)
    inserted, existing, conflict = InsertState.INSERTED, InsertState.EXISTING, InsertState.CONFLICT
    assert [answer.state for answer in answers] == [
        inserted, inserted, existing, conflict, inserted,
    ]  # fmt: skip
    assert answers[2].task_id == answers[3].task_id == batch[0].schedule.schedule_id
    stored = await schedules.load_schedules([one.schedule.schedule_id for one in batch])
    assert [one is not None for one in stored] == [True, True, False, False, True]


async def test_an_expired_key_is_taken_over(
    store: Store, schedules: ScheduleStore, advance: Callable[[int], None]
) -> None:
    now = await store.now()
    await schedules.insert_schedules([ScheduleKey(scheduled(now), key(now))])
    advance(DAY)
    now = await store.now()
    second = ScheduleKey(scheduled(now), key(now, request=b"another"))
    (answer,) = await schedules.insert_schedules([second])
    assert (answer.state, answer.task_id) == (InsertState.INSERTED, second.schedule.schedule_id)


async def test_a_schedule_is_no_predecessor(store: Store, kit: Any) -> None:
    (schedule,) = await submitted(store)
    (foreign,) = await submitted(store, namespace="other")
    for wanted, reason in (
        (schedule.schedule_id, "PREDECESSOR_IS_SCHEDULE"),
        (foreign.schedule_id, "PREDECESSOR_NOT_FOUND"),
    ):
        task = await kit.new(status=Status.CREATED, waits=Waits((wanted,)))
        with pytest.raises(MainspringError) as caught:
            await store.insert_graph([task])
        assert caught.value.reason == reason
        assert await store.load([task.task_id]) == [None]


# --- what is due -------------------------------------------------------------------------------


async def test_due_schedules_come_soonest_first(
    store: Store, schedules: ScheduleStore, advance: Callable[[int], None]
) -> None:
    now = await store.now()
    made = [scheduled(now, next_check_at=now + n) for n in (30, 10, 20, 1_000)]
    await schedules.insert_schedules([ScheduleKey(one) for one in made])
    ended = scheduled(now, next_check_at=None, ended_at=now)
    await schedules.insert_schedules([ScheduleKey(ended)])
    assert await schedules.due_schedules(EVERY, 10) == []
    assert await schedules.next_schedule_check(EVERY) == now + 10
    advance(30)
    expected = [made[1].schedule_id, made[2].schedule_id, made[0].schedule_id]
    assert await schedules.due_schedules(EVERY, 10) == expected
    assert await schedules.due_schedules(EVERY, 2) == expected[:2]
    shard = made[2].schedule_id[15] % 64
    assert made[2].schedule_id in await schedules.due_schedules([shard], 10)
    others = [number for number in EVERY if number != shard]
    assert made[2].schedule_id not in await schedules.due_schedules(others, 10)
    assert await schedules.next_schedule_check([shard]) is not None
    assert await schedules.due_schedules([], 10) == []
    assert await schedules.next_schedule_check([]) is None


async def test_a_deferred_schedule_is_due_later(store: Store, schedules: ScheduleStore) -> None:
    made = await submitted(store, 2)
    now = await store.now()
    ended = scheduled(now, next_check_at=None, ended_at=now)
    await schedules.insert_schedules([ScheduleKey(ended)])
    await schedules.defer_schedules([made[0].schedule_id, ended.schedule_id], now + MINUTE)
    assert await schedules.due_schedules(EVERY, 10) == [made[1].schedule_id]
    first, last = await schedules.load_schedules([made[0].schedule_id, ended.schedule_id])
    assert first is not None
    assert last is not None
    assert (first.next_check_at, last.next_check_at) == (now + MINUTE, None)


# --- visits ------------------------------------------------------------------------------------


async def test_a_visit_makes_the_next_instance_and_its_row(
    store: Store, schedules: ScheduleStore, advance: Callable[[int], None]
) -> None:
    payload = Payload(PayloadKind.JSON, b'{"n": 1}', None)
    (schedule,) = await submitted(store, template=(replace(PLAIN, payload=payload),))
    (visited,) = await schedules.visit([schedule.schedule_id], visiting)
    assert visited is not None
    (answer,) = visited.inserted
    assert (answer.state, answer.status) == (InsertState.INSERTED, Status.PENDING)
    (task,) = await store.load([answer.task_id], payload=True)
    assert task is not None
    nominal = recurrence.parse(schedule.spec).next_after(schedule.settled_at)
    assert (task.schedule_id, task.nominal_at, task.due_at) == (
        schedule.schedule_id,
        nominal,
        nominal,
    )
    assert (task.payload, task.version, task.status) == (payload, 1, Status.PENDING)
    (row,) = await schedules.ledger(schedule.schedule_id, None, 10)
    assert row == LedgerRow(
        schedule.schedule_id, nominal, Source.CRON, 0, task.task_id, nominal, Outcome.OPEN
    )
    assert await schedules.load_schedules([schedule.schedule_id]) == [visited.plan.schedule]
    # The next one sees it, settles it, and makes another.
    advance(2 * MINUTE)
    (visited,) = await schedules.visit([schedule.schedule_id], visiting)
    assert visited is not None
    assert [one.task_id for one in visited.before.live] == [task.task_id]
    assert [(r.nominal_at, t and t.task_id) for r, t in visited.before.open] == [
        (nominal, task.task_id)
    ]
    rows = await schedules.ledger(schedule.schedule_id, None, 10)
    assert next(row.outcome for row in rows) is Outcome.OPEN
    assert Outcome.OPEN not in [row.outcome for row in rows][1:]


async def test_unknown_and_repeated_ids(store: Store, schedules: ScheduleStore) -> None:
    made = await submitted(store, 2)
    unknown = mint(await store.now(), 1)[0]
    seen: list[bytes] = []

    def decide(view: View) -> Plan:
        seen.append(view.schedule.schedule_id)
        return visiting(view)

    first, second = (one.schedule_id for one in made)
    answers = await schedules.visit([second, unknown, first, second], decide)
    assert answers[1] is None
    assert answers[0] == answers[3]
    assert [one and one.before.schedule.schedule_id for one in answers] == [
        second, None, first, second,
    ]  # fmt: skip
    assert seen == sorted([first, second])
    assert await schedules.visit([], decide) == []
    assert await schedules.visit([unknown], decide) == [None]


async def test_a_visit_that_raises_changes_nothing(
    store: Store, schedules: ScheduleStore, kit: Any
) -> None:
    made = await submitted(store, 3)
    last = max(one.schedule_id for one in made)

    def decide(view: View) -> Plan:
        if view.schedule.schedule_id == last:
            raise LookupError("the third one breaks")
        return visiting(view)

    ids = [one.schedule_id for one in made]
    with pytest.raises(LookupError):
        await schedules.visit(ids, decide)
    assert await schedules.load_schedules(ids) == made
    assert await store.count_tasks("default", kit.everything, None) == [(None, 0)]
    assert await schedules.ledger(ids[0], None, 10) == []
    assert len(await schedules.visit(ids, visiting)) == 3


async def test_a_plan_without_a_schedule_leaves_everything(
    store: Store, schedules: ScheduleStore
) -> None:
    (schedule,) = await submitted(store)
    (visited,) = await schedules.visit([schedule.schedule_id], lambda _: Plan(answer="seen"))
    assert visited is not None
    assert visited.plan.answer == "seen"
    assert await schedules.load_schedules([schedule.schedule_id]) == [schedule]


async def test_an_outcome_is_written_once(store: Store, schedules: ScheduleStore) -> None:
    (schedule,) = await submitted(store)
    now = await store.now()
    row = LedgerRow(schedule.schedule_id, now, Source.CRON, 0, None, now, Outcome.OPEN)
    ended = replace(row, outcome=Outcome.MISSED, outcome_at=now, reason="late")
    ids = [schedule.schedule_id]
    await schedules.visit(ids, lambda view: Plan(replace(view.schedule), record=[row]))
    await schedules.visit(ids, lambda view: Plan(replace(view.schedule), record=[row, ended]))
    assert await schedules.ledger(schedule.schedule_id, None, 10) == [ended]
    with pytest.raises(FailedPrecondition):
        await schedules.visit(ids, lambda view: Plan(replace(view.schedule), record=[row]))
    await schedules.visit(ids, lambda view: Plan(replace(view.schedule), forget=[ended]))
    assert await schedules.ledger(schedule.schedule_id, None, 10) == [ended]


async def test_what_is_forgotten_makes_room_in_the_same_visit(
    store: Store, schedules: ScheduleStore
) -> None:
    (schedule,) = await submitted(store)
    now = await store.now()
    row = LedgerRow(schedule.schedule_id, now + 5, Source.CRON, 0, None, now + 5, Outcome.OPEN)
    other = replace(row, due_at=now + 6)
    ids = [schedule.schedule_id]
    await schedules.visit(ids, lambda view: Plan(replace(view.schedule), record=[row]))
    await schedules.visit(
        ids, lambda view: Plan(replace(view.schedule), forget=[row], record=[other])
    )
    assert await schedules.ledger(schedule.schedule_id, None, 10) == [other]
    await schedules.visit(ids, lambda view: Plan(replace(view.schedule), forget=[other]))
    assert await schedules.ledger(schedule.schedule_id, None, 10) == []


async def test_a_changed_definition_is_stored(store: Store, schedules: ScheduleStore) -> None:
    (schedule,) = await submitted(store)
    changed = replace(schedule, template=(replace(PLAIN, task_type="other"),), labels='{"a": "b"}')
    (visited,) = await schedules.visit(
        [schedule.schedule_id],
        lambda view: schedule_changes.update(view, partial(mint, view.now), changed),
    )
    assert visited is not None
    (stored,) = await schedules.load_schedules([schedule.schedule_id])
    assert stored == visited.plan.schedule
    assert stored is not None
    assert (stored.template, stored.labels, stored.version) == (changed.template, '{"a": "b"}', 2)


async def test_the_view_tells_of_failures_once(
    store: Store, schedules: ScheduleStore, kit: Any, advance: Callable[[int], None]
) -> None:
    retry = RetryPolicy(max_attempts=1)
    (schedule,) = await submitted(store, template=(replace(PLAIN, retry=retry),))
    await schedules.visit([schedule.schedule_id], visiting)
    advance(MINUTE)
    (entry,) = await store.due(EVERY, await store.now(), 10)
    await store.make_ready([entry.task_id])
    (grant,) = await store.claim_lanes([kit.want(lanes=("default/work",))], 1)
    row = await kit.stored(grant.task_id)
    failure = lifecycle.Failure(grant.task_id, grant.token, "broken", "Error")
    await store.apply([lifecycle.fail(row, failure, await store.now(), 0.5)])
    views: list[View] = []

    def decide(view: View) -> Plan:
        views.append(view)
        return visiting(view)

    await schedules.visit([schedule.schedule_id], decide)
    await schedules.visit([schedule.schedule_id], decide)
    assert [view.failed for view in views] == [True, False]
    assert grant.task_id not in [task.task_id for view in views for task in view.live]


# --- instances that wait -----------------------------------------------------------------------


async def test_an_instance_waits_for_the_one_before(
    store: Store, schedules: ScheduleStore, kit: Any, advance: Callable[[int], None]
) -> None:
    (schedule,) = await submitted(store, policy=Policy())
    await schedules.visit([schedule.schedule_id], visiting)
    advance(MINUTE)
    (entry,) = await store.due(EVERY, await store.now(), 10)
    await store.make_ready([entry.task_id])
    (grant,) = await store.claim_lanes([kit.want()], 1)
    (visited,) = await schedules.visit([schedule.schedule_id], visiting)
    assert visited is not None
    (new,) = visited.inserted
    assert (new.status, visited.unsettled) == (Status.CREATED, [])
    waiting = await kit.stored(new.task_id)
    assert (waiting.rule, waiting.status) == (Rule.ALL_DONE_IN_TIME, Status.CREATED)
    assert await store.succeed([Success(grant.task_id, grant.token, None)]) == [Written.TELL]
    (told,) = await store.resolve([grant.task_id], None, 10)
    assert (told.task.task_id, told.waiting, told.succeeded) == (new.task_id, 0, 1)


async def test_a_predecessor_that_ended_meanwhile_gives_its_outcome(
    store: Store, schedules: ScheduleStore, kit: Any
) -> None:
    """As a plan may name one that ended between the look and the write, also an older one."""
    (schedule,) = await submitted(store, policy=Policy())
    done, live = await kit.many(2, schedule_id=schedule.schedule_id)
    await store.apply([lifecycle.cancel(await kit.stored(done.task_id), "", await store.now())])

    def decide(view: View) -> Plan:
        slot = Slot(view.now + MINUTE, view.now + MINUTE)
        older = [done.task_id, live.task_id]
        row, tasks = make(view.schedule, slot, older, view.now, partial(mint, view.now))
        return Plan(replace(view.schedule), record=[row], insert=tasks)

    (visited,) = await schedules.visit([schedule.schedule_id], decide)
    assert visited is not None
    (new,) = visited.inserted
    assert visited.unsettled == [new.task_id]
    (counted,) = await store.waiting([new.task_id])
    assert (counted.waiting, counted.cancelled) == (1, 1)
    change = lifecycle.cancel(await kit.stored(live.task_id), "", await store.now())
    assert await store.apply([change]) == [Written.TELL]


async def test_a_graph_waits_within_itself(store: Store, schedules: ScheduleStore) -> None:
    child = replace(PLAIN, predecessors=(0,), local_ref="b")
    (schedule,) = await submitted(store, template=(replace(PLAIN, local_ref="a"), child))
    (visited,) = await schedules.visit([schedule.schedule_id], visiting)
    assert visited is not None
    parent, dependent = await store.load([new.task_id for new in visited.inserted])
    assert parent is not None
    assert dependent is not None
    assert parent.has_dependents
    assert (parent.status, dependent.status) == (Status.PENDING, Status.CREATED)
    assert parent.graph_id == dependent.graph_id
    assert parent.graph_id not in (None, parent.task_id, dependent.task_id)
    (edge,) = await store.edges([dependent.task_id])
    assert (edge.predecessor, edge.outcome) == (parent.task_id, None)


async def test_changes_to_instances_are_applied_with_the_visit(
    store: Store, schedules: ScheduleStore, kit: Any
) -> None:
    (schedule,) = await submitted(store)
    (visited,) = await schedules.visit([schedule.schedule_id], visiting)
    assert visited is not None
    (new,) = visited.inserted
    (paused,) = await schedules.visit(
        [schedule.schedule_id],
        lambda view: schedule_changes.pause(view, partial(mint, view.now), "tea"),
    )
    assert paused is not None
    assert paused.written == [Written.APPLIED]
    assert (await kit.stored(new.task_id)).status is Status.CANCELLED
    assert await schedules.ledger(schedule.schedule_id, None, 10) == []


# --- the ledger --------------------------------------------------------------------------------


async def test_history_and_counts(store: Store, schedules: ScheduleStore) -> None:
    (schedule,) = await submitted(store)
    (other,) = await submitted(store)
    now = await store.now()
    rows = [
        LedgerRow(schedule.schedule_id, now + n // 3, Source(n % 3 + 1), n, None, now, outcome, now)
        for n, outcome in enumerate([Outcome.FIRED] * 7 + [Outcome.SKIPPED] * 3)
    ]
    rows.append(LedgerRow(schedule.schedule_id, now + 9, Source.CRON, 0, None, now, Outcome.OPEN))
    await schedules.visit(
        [schedule.schedule_id, other.schedule_id],
        lambda view: (
            Plan(replace(view.schedule), record=rows)
            if view.schedule.schedule_id == schedule.schedule_id
            else Plan()
        ),
    )
    expected = sorted(rows, key=lambda r: (r.nominal_at, r.source, r.sequence), reverse=True)
    pages: list[LedgerRow] = []
    before = None
    while page := await schedules.ledger(schedule.schedule_id, before, 4):
        pages += page
        before = (page[-1].nominal_at, int(page[-1].source), page[-1].sequence)
    assert pages == expected
    assert await schedules.ledger(other.schedule_id, None, 10) == []
    assert await schedules.ledger_counts(schedule.schedule_id) == {
        Outcome.OPEN: 1, Outcome.FIRED: 7, Outcome.SKIPPED: 3,
    }  # fmt: skip
    assert await schedules.ledger_counts(other.schedule_id) == {}


async def test_retention_of_the_ledger(store: Store, schedules: ScheduleStore) -> None:
    now = await store.now()
    live, ended = scheduled(now), scheduled(now, next_check_at=None, ended_at=now - DAY)
    await schedules.insert_schedules([ScheduleKey(live), ScheduleKey(ended)])

    def decide(view: View) -> Plan:
        schedule_id = view.schedule.schedule_id
        record = [
            LedgerRow(schedule_id, now - n, Source.CRON, 0, None, now, Outcome.FIRED, now - n)
            for n in range(10)
        ]
        opened = LedgerRow(schedule_id, now + 1, Source.CRON, 0, None, now + 1, Outcome.OPEN)
        return Plan(
            replace(view.schedule), record=[*record, opened] if view.schedule.live else record
        )

    await schedules.visit([live.schedule_id, ended.schedule_id], decide)
    assert await schedules.purge_ledger(now - 5, 3) == 3
    assert await schedules.purge_ledger(now - 5, 100) == 5
    assert await schedules.purge_ledger(now - 5, 100) == 0
    assert len(await schedules.ledger(live.schedule_id, None, 100)) == 7
    # An ended schedule goes with its last row, a live one stays.
    while await schedules.purge_ledger(now + 1, 100):
        pass
    stays, gone = await schedules.load_schedules([live.schedule_id, ended.schedule_id])
    assert (stays is not None, gone) == (True, None)
    (row,) = await schedules.ledger(live.schedule_id, None, 100)
    assert row.outcome is Outcome.OPEN


# --- two at once -------------------------------------------------------------------------------


async def test_concurrent_visits_make_one_instance(
    store: Store, schedules: ScheduleStore, kit: Any, advance: Callable[[int], None]
) -> None:
    made = await submitted(store, 20)
    ids = [one.schedule_id for one in made]
    for _ in range(3):
        await asyncio.gather(
            schedules.visit(ids, visiting),
            schedules.visit(ids[::-1], visiting),
            schedules.visit(ids[5:15], visiting),
        )
        advance(MINUTE)
    for schedule_id in ids:
        rows = await schedules.ledger(schedule_id, None, 10)
        assert len({row.nominal_at for row in rows}) == len(rows) == 3
        assert sum(row.outcome is Outcome.OPEN for row in rows) == 1
    assert await store.count_tasks("default", kit.everything, None) == [(None, 60)]
