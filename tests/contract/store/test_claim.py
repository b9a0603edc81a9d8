"""claim and claim_lanes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from mainspring_server.domain.leases import Beat
from mainspring_server.domain.task import (
    Payload,
    PayloadKind,
    RetryPolicy,
    Status,
    Timeouts,
)
from mainspring_server.store.port import Store

A, B = "default/a", "default/b"


async def test_claim_grants_and_writes_the_lease(store: Store, kit: Any, refs: Any) -> None:
    payload = Payload(PayloadKind.DATA, b"\0body", '{"k": "v"}')
    task = await kit.inserted(
        payload=payload,
        retry=RetryPolicy(max_attempts=7),
        trace_context="trace",
        timeouts=Timeouts(run_ms=900_000),
        schedule_id=bytes(16),
        nominal_at=1_700_000_000_000,
    )
    now = await store.now()
    (grant,) = await store.claim(refs([task]), kit.want(("w9", 1), lease_ms=5_000))
    assert (grant.task_id, grant.token, grant.worker_id) == (task.task_id, 2, "w9")
    assert (grant.lane, grant.task_type) == ("default/work", "work")
    assert (grant.attempt, grant.max_attempts, grant.due_at) == (1, 7, task.due_at)
    assert (grant.payload_kind, grant.payload, grant.payload_metadata) == payload
    assert (grant.checkpoint, grant.trace_context) == (None, "trace")
    assert (grant.run_timeout_ms, grant.nominal_at) == (900_000, 1_700_000_000_000)
    assert grant.lease_expires_at >= now + 5_000
    stored = await kit.stored(task.task_id)
    assert (stored.status, stored.version, stored.attempts) == (Status.RUNNING, 2, 1)
    assert (stored.worker_id, stored.lease_acked) == ("w9", False)
    assert stored.lease_expires_at == grant.lease_expires_at
    assert stored.started_at == grant.lease_expires_at - 5_000
    assert stored.next_check_at == task.next_check_at


async def test_claim_without_payload(store: Store, kit: Any, refs: Any) -> None:
    (grant,) = await store.claim(refs([await kit.inserted()]), kit.want())
    assert (grant.payload_kind, grant.payload, grant.payload_metadata) == (0, b"", None)


async def test_poll_counts_as_acknowledged(kit: Any) -> None:
    grant = await kit.running(acked=True, lease_ms=60_000)
    assert (await kit.stored(grant.task_id)).lease_acked is True


async def test_run_timeout_moves_the_check_forward_only(store: Store, kit: Any) -> None:
    short = await kit.running(timeouts=Timeouts(run_ms=100))
    long = await kit.running(timeouts=Timeouts(run_ms=100_000))
    stored = await kit.stored(short.task_id)
    assert stored.next_check_at == stored.run_deadline
    later = await kit.stored(long.task_id)
    assert later.next_check_at < later.run_deadline


async def test_claim_refuses_what_does_not_hold(
    store: Store, kit: Any, refs: Any, advance: Any
) -> None:
    wrong = await kit.inserted()
    early = await kit.inserted(due_in=10_000)
    await store.make_ready([early.task_id], lead_ms=10_000)
    pending = await kit.inserted(due_in=10_000)
    running = await kit.running()
    good = await kit.inserted()
    unknown = await kit.new()
    given = [
        refs([wrong])[0]._replace(version=2),
        refs([early])[0]._replace(version=2),
        *refs([pending]),
        *[ref._replace(version=2) for ref in refs([pending])],
        refs([good])[0]._replace(task_id=running.task_id, version=2),
        *refs([unknown, good]),
    ]
    grants = await store.claim(given, kit.want(("w1", len(given))))
    assert [grant.task_id for grant in grants] == [good.task_id]
    advance(10_000)
    (due,) = await store.claim([given[1]], kit.want())
    assert (due.task_id, due.token) == (early.task_id, 3)
    assert await store.claim([], kit.want()) == []


async def test_claim_fills_the_seats_in_order(store: Store, kit: Any, refs: Any) -> None:
    tasks = await kit.many(6)
    grants = await store.claim(refs(tasks), kit.want(("w1", 2), ("w2", 3), ("w3", 1)))
    assert Counter(grant.worker_id for grant in grants) == {"w1": 2, "w2": 3, "w3": 1}
    assert {grant.task_id for grant in grants} == {task.task_id for task in tasks}
    for grant in grants:
        assert (await kit.stored(grant.task_id)).worker_id == grant.worker_id


async def test_repeated_claim_grants_nothing(store: Store, kit: Any, refs: Any) -> None:
    tasks = await kit.many(3)
    assert len(await store.claim(refs(tasks), kit.want(("w1", 3)))) == 3
    assert await store.claim(refs(tasks), kit.want(("w2", 3))) == []


async def test_progress_is_cleared_and_checkpoint_kept(
    store: Store, kit: Any, hand_back: Any
) -> None:
    grant = await kit.running()
    await store.extend([Beat(grant.task_id, grant.token, 5_000, 0.5, "half", b"point")])
    await hand_back(grant.task_id)
    (again,) = await store.claim_lanes([kit.want()], 1)
    assert (again.task_id, again.checkpoint, again.attempt) == (grant.task_id, b"point", 1)
    stored = await kit.stored(grant.task_id)
    assert (stored.progress, stored.progress_message) == (None, None)
    assert stored.checkpoint == b"point"


async def test_lanes_by_priority_then_due(store: Store, kit: Any, advance: Any) -> None:
    late = await kit.inserted(priority=3)
    advance(10)
    tasks = [await kit.inserted(priority=priority) for priority in (9, 3, 0, 5)]
    grants = await store.claim_lanes([kit.want(("w1", 9))], 1)
    expected = [tasks[2], late, tasks[1], tasks[3], tasks[0]]
    assert [grant.task_id for grant in grants] == [task.task_id for task in expected]


async def test_lanes_take_no_more_than_seats(store: Store, kit: Any) -> None:
    await kit.many(10)
    grants = await store.claim_lanes([kit.want(("w1", 2), ("w2", 1))], 1)
    assert [grant.worker_id for grant in grants] == ["w1", "w1", "w2"]
    assert len(await store.claim_lanes([kit.want(("w3", 100))], 2)) == 7
    assert await store.claim_lanes([kit.want(("w3", 100))], 3) == []


async def test_lanes_are_merged(store: Store, kit: Any, advance: Any) -> None:
    tasks = []
    for queue, priority in (("a", 5), ("b", 5), ("a", 5), ("b", 2), ("a", 9), ("b", 5)):
        tasks.append(await kit.inserted(queue=queue, priority=priority))
        advance(1)
    await kit.inserted(queue="c", priority=0)
    await kit.inserted(queue="a", namespace="other", priority=0)
    grants = await store.claim_lanes([kit.want(("w1", 5), lanes=(A, B, A))], 1)
    expected = [tasks[n] for n in (3, 0, 1, 2, 5)]
    assert [grant.task_id for grant in grants] == [task.task_id for task in expected]
    assert [grant.lane for grant in grants] == [B, A, B, A, B]


async def test_several_wants_never_share_a_task(store: Store, kit: Any) -> None:
    await kit.many(3, queue="a")
    await kit.many(3, queue="b")
    grants = await store.claim_lanes(
        [
            kit.want(("w1", 2), lanes=(A,)),
            kit.want(("w2", 4), lanes=(A, B), lease_ms=60_000, acked=True),
            kit.want(("w3", 4), lanes=("default/none",)),
            kit.want(("w4", 0), lanes=(A, B)),
        ],
        1,
    )
    assert len({grant.task_id for grant in grants}) == 6
    assert Counter(grant.worker_id for grant in grants) == {"w1": 2, "w2": 4}
    for grant in grants:
        stored = await kit.stored(grant.task_id)
        assert stored.lease_acked is (grant.worker_id == "w2")
        lease = 60_000 if grant.worker_id == "w2" else 5_000
        assert grant.lease_expires_at - stored.started_at == lease
    assert await store.claim_lanes([], 1) == []


async def test_lanes_wait_for_the_due_time(store: Store, kit: Any, advance: Any) -> None:
    ahead = await kit.many(3, due_in=10_000, priority=1)
    await store.make_ready([task.task_id for task in ahead], lead_ms=10_000)
    urgent = await kit.inserted(priority=1)
    usual = await kit.inserted(priority=5)
    grants = await store.claim_lanes([kit.want(("w1", 9))], 1)
    assert [grant.task_id for grant in grants] == [urgent.task_id, usual.task_id]
    advance(9_000)
    assert await store.claim_lanes([kit.want(("w1", 9))], 2) == []
    advance(1_000)
    assert len(await store.claim_lanes([kit.want(("w1", 9))], 3)) == 3


async def test_starvation_guard(store: Store, kit: Any) -> None:
    async def priorities(turn: int, room: int) -> list[int]:
        grants = await store.claim_lanes([kit.want(("w1", room))], turn)
        return [by_id[grant.task_id] for grant in grants]

    by_id = {}
    for priority in (0, 0, 0, 5, 5, 8, 8, 8):
        by_id[(await kit.inserted(priority=priority)).task_id] = priority
    assert await priorities(7, 1) == [0]
    assert await priorities(8, 1) == [5]
    assert await priorities(32, 1) == [8]
    assert await priorities(9, 1) == [0]
    assert sorted(await priorities(32, 3)) == [0, 8, 8]
    assert await priorities(33, 9) == [5]


async def test_ten_claimers_never_get_the_same_task(store: Store, kit: Any) -> None:
    tasks = await kit.many(200, queue="a") + await kit.many(200, queue="b")

    async def claimer(worker_id: str) -> list[Any]:
        mine = []
        turn = 0
        while granted := await store.claim_lanes([kit.want((worker_id, 7), lanes=(A, B))], turn):
            mine += granted
            turn += 1
        return mine

    claimed = await asyncio.gather(*(claimer(f"w{n}") for n in range(10)))
    grants = [grant for mine in claimed for grant in mine]
    # One that skipped rows locked by others may have stopped early: what is left is still there.
    grants += await store.claim_lanes([kit.want(("last", 400), lanes=(A, B))], 1)
    assert len(grants) == 400
    assert {grant.task_id for grant in grants} == {task.task_id for task in tasks}
    assert {grant.token for grant in grants} == {2}


async def test_concurrent_claims_by_reference_grant_once(store: Store, kit: Any, refs: Any) -> None:
    given = refs(await kit.many(100))
    answers = await asyncio.gather(
        *(store.claim(given, kit.want((f"w{n}", 100))) for n in range(10))
    )
    grants = [grant for answer in answers for grant in answer]
    assert len(grants) == len({grant.task_id for grant in grants}) == 100
