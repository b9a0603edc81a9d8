"""What a slow, silent or lossy worker may cost: bounded frames, bounded memory, no slot for ever."""

from __future__ import annotations

import asyncio

import pytest

from mainspring_server.dispatch.session import (
    FRAME_BYTES,
    FRAME_ITEMS,
    WAITING_BYTES,
    WAITING_FRAMES,
    DrainFrame,
    GrantFrame,
    ReplyFrame,
    Session,
    WorkerInfo,
)
from mainspring_server.domain.leases import Grant, LeaseRef

MIB = 1_024 * 1_024


def grants(count: int, size: int = 0, *, first: int = 0) -> list[Grant]:
    made = Grant(b"", 2, "w", "default/q", "t", 1, 4, 0, 5_000, 0, bytes(size), *[None] * 4, ())
    return [made._replace(task_id=n.to_bytes(16, "big")) for n in range(first, first + count)]


@pytest.fixture
def session() -> Session:
    info = WorkerInfo("w", "default", ("q",), ())
    return Session("s", info, 0, 5_000, credits=10_000)


def frames(session: Session) -> list[int]:
    return [len(frame.grants) for frame in session.outbox if isinstance(frame, GrantFrame)]


def test_grants_of_large_payloads_go_in_frames_that_clients_take(session: Session) -> None:
    session.granted(grants(7, MIB), 1, 0)
    assert frames(session) == [2, 2, 2, 1]
    assert all(
        sum(len(g.payload) for g in frame.grants) <= FRAME_BYTES
        for frame in session.outbox
        if isinstance(frame, GrantFrame)
    )
    assert len(session.unwritten()) == 7


def test_one_grant_larger_than_a_frame_goes_alone(session: Session) -> None:
    session.granted(grants(3, FRAME_BYTES + 1), 1, 0)
    assert frames(session) == [1, 1, 1]


def test_a_frame_of_grants_can_be_acknowledged_by_one_frame(session: Session) -> None:
    session.granted(grants(2 * FRAME_ITEMS + 1), 1, 0)
    assert frames(session) == [FRAME_ITEMS, FRAME_ITEMS, 1]


async def test_a_reader_that_is_behind_gets_no_more_grants(session: Session) -> None:
    session.granted(grants(WAITING_BYTES // MIB + 1, MIB), 1, 0)
    assert session.credit() == 0
    while session.outbox:
        await session.next_frame()
    assert session.credit() == 10_000 - len(session.held)
    assert session.waiting_bytes == 0


async def test_a_worker_that_reads_nothing_is_not_read_either(session: Session) -> None:
    for _ in range(WAITING_FRAMES + 1):
        session.send(ReplyFrame())
    reading = asyncio.ensure_future(session.writable())
    await asyncio.sleep(0)
    assert not reading.done()
    await session.next_frame()
    await asyncio.wait_for(reading, 5)


async def test_a_closed_session_holds_up_no_reader(session: Session) -> None:
    for _ in range(WAITING_FRAMES + 1):
        session.send(DrainFrame("", 0))
    reading = asyncio.ensure_future(session.writable())
    await asyncio.sleep(0)
    session.close()
    await asyncio.wait_for(reading, 5)


def test_a_lease_that_ended_without_a_word_holds_no_slot(session: Session) -> None:
    session.granted(grants(2), 1, now=0)
    beating, silent = (LeaseRef(n.to_bytes(16, "big"), 2) for n in range(2))
    session.acknowledge([beating, silent])
    session.to_extend(0, 60_000)
    session.extended(beating, 90_000)
    session.extended(silent, 60_000)
    assert session.expire(59_999) == 0
    assert session.expire(60_000) == 1
    assert list(session.held) == [beating.task_id]
    assert session.credit() == 10_000 - 1


def test_an_acknowledged_grant_that_is_not_yet_stored_is_kept(session: Session) -> None:
    session.granted(grants(1), 1, now=0)
    session.acknowledge([LeaseRef((0).to_bytes(16, "big"), 2)])
    assert session.expire(100_000) == 0
