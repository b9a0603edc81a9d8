"""extend and acknowledge."""

from __future__ import annotations

from typing import Any

from mainspring_server.domain import lifecycle
from mainspring_server.domain.leases import Beat, BeatAnswer, BeatState, LeaseRef, Success
from mainspring_server.domain.task import Status
from mainspring_server.store.port import Store

LOST = BeatAnswer(BeatState.LOST, 0)


async def test_beat_extends_and_acknowledges(store: Store, kit: Any, advance: Any) -> None:
    grant = await kit.running()
    before = await kit.stored(grant.task_id)
    advance(1_000)
    now = await store.now()
    beat = Beat(grant.task_id, grant.token, 60_000, 0.25, "a quarter", b"point")
    (answer,) = await store.extend([beat])
    assert answer.state is BeatState.EXTENDED
    assert 59_000 < answer.remaining_ms <= 60_000
    stored = await kit.stored(grant.task_id)
    assert stored.lease_expires_at is not None
    assert stored.lease_expires_at >= now + 60_000
    assert stored.lease_acked is True
    assert (stored.progress, stored.progress_message) == (0.25, "a quarter")
    assert stored.checkpoint == b"point"
    assert (stored.version, stored.next_check_at) == (before.version, before.next_check_at)


async def test_beat_leaves_what_it_does_not_carry(store: Store, kit: Any) -> None:
    grant = await kit.running()
    await store.extend([Beat(grant.task_id, grant.token, 5_000, 0.5, "half", b"point")])
    await store.extend([Beat(grant.task_id, grant.token, 5_000)])
    await store.extend([Beat(grant.task_id, grant.token, 5_000, progress=0.75)])
    stored = await kit.stored(grant.task_id)
    assert (stored.progress, stored.progress_message) == (0.75, "half")
    assert stored.checkpoint == b"point"


async def test_beat_never_shortens(store: Store, kit: Any) -> None:
    grant = await kit.running(lease_ms=60_000)
    (answer,) = await store.extend([Beat(grant.task_id, grant.token, 5_000)])
    assert 5_000 < answer.remaining_ms <= 60_000
    assert (await kit.stored(grant.task_id)).lease_expires_at == grant.lease_expires_at


async def test_late_beat_revives_an_expired_lease(store: Store, kit: Any, advance: Any) -> None:
    grant = await kit.running()
    advance(100_000)
    (answer,) = await store.extend([Beat(grant.task_id, grant.token, 60_000)])
    assert answer.state is BeatState.EXTENDED
    assert 59_000 < answer.remaining_ms <= 60_000
    now = await store.now()
    expiry = lifecycle.expire_lease(await kit.stored(grant.task_id), now, 0.0)
    assert await store.apply([expiry]) == [False]


async def test_lost_leases(store: Store, kit: Any, hand_back: Any) -> None:
    taken = await kit.running()
    await hand_back(taken.task_id)
    done = await kit.running()
    await store.succeed([Success(done.task_id, done.token, None)])
    ready = await kit.inserted()
    good = await kit.running()
    answers = await store.extend(
        [
            Beat(taken.task_id, taken.token, 60_000, 0.9, "late", b"late"),
            Beat(done.task_id, done.token, 60_000),
            Beat(ready.task_id, 1, 60_000),
            Beat(good.task_id, good.token - 1, 60_000),
            Beat(good.task_id, good.token, 60_000),
            Beat(kit.uuid7(await store.now()), 2, 60_000),
        ]
    )
    assert [answer == LOST for answer in answers] == [True, True, True, True, False, True]
    stored = await kit.stored(taken.task_id)
    assert (stored.checkpoint, stored.lease_expires_at) == (None, None)
    assert await store.extend([]) == []


async def test_cancelled_lease_is_told_so(store: Store, kit: Any) -> None:
    grant = await kit.running()
    now = await store.now()
    cancel = lifecycle.cancel(await kit.stored(grant.task_id), "enough", now)
    assert await store.apply([cancel]) == [True]
    answers = await store.extend(
        [Beat(grant.task_id, grant.token, 60_000), Beat(grant.task_id, grant.token - 1, 60_000)]
    )
    assert answers == [BeatAnswer(BeatState.CANCEL_REQUESTED, 0), LOST]
    assert (await kit.stored(grant.task_id)).status is Status.CANCELLED


async def test_many_beats_of_one_batch(store: Store, kit: Any, refs: Any) -> None:
    tasks = await kit.many(300)
    grants = await store.claim(refs(tasks), kit.want(("w1", 300)))
    beats = [Beat(grant.task_id, grant.token + n % 2, 60_000) for n, grant in enumerate(grants)]
    states = [answer.state for answer in await store.extend(beats)]
    assert states == [BeatState.EXTENDED, BeatState.LOST] * 150


async def test_acknowledge_marks_without_extending(store: Store, kit: Any) -> None:
    grant, other = await kit.running(), await kit.running()
    await store.acknowledge(
        [LeaseRef(grant.task_id, grant.token), LeaseRef(other.task_id, other.token - 1)]
    )
    stored = await kit.stored(grant.task_id)
    assert (stored.lease_acked, stored.lease_expires_at) == (True, grant.lease_expires_at)
    assert (await kit.stored(other.task_id)).lease_acked is False
    await store.acknowledge([])
