"""Credit becomes claims, claims become frames; nothing is claimed without credit or lost on the way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import pytest

from mainspring_server.clock import VirtualClock
from mainspring_server.dispatch.dispatcher import Dispatcher
from mainspring_server.dispatch.session import (
    DrainFrame,
    GrantFrame,
    NoticeFrame,
    Session,
    WorkerInfo,
)
from mainspring_server.domain.leases import Grant, LeaseRef, Want
from mainspring_server.effects import Effects


class Queue:
    """Lanes of numbered tasks, as a ready queue offers them."""

    def __init__(self) -> None:
        self.listener: Callable[[str], None] = lambda lane: None
        self.lanes: dict[str, deque[int]] = {}
        self.served: dict[str, int] = {}

    def notify(self, listener: Callable[[str], None]) -> None:
        self.listener = listener

    def serve(self, lanes: Mapping[str, int]) -> None:
        self.served = dict(lanes)

    def put(self, lane: str, *numbers: int) -> None:
        self.lanes.setdefault(lane, deque()).extend(numbers)
        self.listener(lane)


class Engine:
    """What the dispatcher needs of the engine."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.effects = Effects(None, None, VirtualClock())  # type: ignore[arg-type]
        self.claims: list[Sequence[Want]] = []
        self.returned: list[LeaseRef] = []
        self.acknowledged: list[LeaseRef] = []
        self.during: Callable[[], None] = lambda: None
        self.error: Exception | None = None

    async def claim(self, wants: Sequence[Want]) -> list[Grant]:
        self.claims.append(wants)
        await asyncio.sleep(0)
        self.during()
        if self.error is not None:
            raise self.error
        grants = []
        for want in wants:
            for seat in want.seats:
                for _ in range(seat.room):
                    lane = next((name for name in want.lanes if self.queue.lanes.get(name)), None)
                    if lane is not None:
                        number = self.queue.lanes[lane].popleft()
                        grants.append(grant(number, seat.worker_id, lane))
        return grants

    async def hand_back(self, leases: Sequence[LeaseRef]) -> set[LeaseRef]:
        self.returned += leases
        return set(leases)

    async def acknowledge(self, leases: Sequence[LeaseRef]) -> None:
        self.acknowledged += leases


def task_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def grant(number: int, worker: str, lane: str) -> Grant:
    return Grant(
        task_id(number), 2, worker, lane, "t", 1, 4, 0, 5_000, 0, b"", None, None, None, None
    )


def session(worker: str, credit: int = 10, *queues: str, namespace: str = "default") -> Session:
    info = WorkerInfo(worker, namespace, queues or ("q",), ())
    return Session(f"s-{worker}", info, 0, 5_000, credits=credit)


def taken(*sessions: Session) -> list[int]:
    return sorted(
        int.from_bytes(g.task_id, "big")
        for s in sessions
        for frame in s.outbox
        if isinstance(frame, GrantFrame)
        for g in frame.grants
    )


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def dispatcher(engine: Engine) -> Dispatcher:
    return Dispatcher(engine, VirtualClock(), batch=100, recheck_ms=1_000)  # type: ignore[arg-type]


async def passes(dispatcher: Dispatcher, count: int = 10) -> None:
    for _ in range(count):
        await dispatcher.run_once()


async def test_a_worker_gets_no_more_than_its_credit(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    worker = session("w", 3)
    dispatcher.register(worker)
    engine.queue.put("default/q", 1, 2, 3, 4, 5)
    await passes(dispatcher)
    assert taken(worker) == [1, 2, 3]
    worker.release([LeaseRef(task_id(2), 2)])
    dispatcher.credit_changed(worker)
    await passes(dispatcher)
    assert taken(worker) == [1, 2, 3, 4]


async def test_without_credit_or_work_nothing_is_claimed(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    idle = session("w", 0)
    dispatcher.register(idle)
    engine.queue.put("default/q", 1)
    await passes(dispatcher)
    assert engine.claims == []
    idle.credits = 5
    engine.queue.lanes.clear()
    await passes(dispatcher)
    assert len(engine.claims) == 1  # it looked once and remembers that the lane is empty


async def test_a_notice_during_a_claim_is_not_lost(engine: Engine, dispatcher: Dispatcher) -> None:
    worker = session("w", 10)
    dispatcher.register(worker)

    def arrive() -> None:
        engine.during = lambda: None
        engine.queue.listener("default/q")

    engine.during = arrive
    await dispatcher.run_once()
    engine.queue.lanes["default/q"] = deque([7])
    await dispatcher.run_once()
    assert taken(worker) == [7]


async def test_workers_share_a_small_batch(engine: Engine, dispatcher: Dispatcher) -> None:
    first, second = session("a", 10), session("b", 10)
    dispatcher.register(first)
    dispatcher.register(second)
    engine.queue.put("default/q", 1, 2, 3, 4)
    await passes(dispatcher)
    assert len(taken(first)) == len(taken(second)) == 2


async def test_one_claim_serves_many_workers(engine: Engine, dispatcher: Dispatcher) -> None:
    workers = [session(f"w{n}", 4) for n in range(10)]
    for worker in workers:
        dispatcher.register(worker)
    engine.queue.put("default/q", *range(40))
    await dispatcher.run_once()
    assert len(engine.claims) == 1
    assert taken(*workers) == list(range(40))


async def test_a_paused_lane_rests_until_it_is_resumed(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    worker = session("w", 10, "q", "other")
    dispatcher.register(worker)
    dispatcher.pause(["default/q"])
    engine.queue.put("default/q", 1)
    engine.queue.put("default/other", 2)
    await passes(dispatcher)
    assert taken(worker) == [2]
    dispatcher.pause([])
    await passes(dispatcher)
    assert taken(worker) == [1, 2]


async def test_grants_of_a_stream_that_broke_meanwhile_go_back(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    worker = session("w", 10)
    dispatcher.register(worker)
    engine.queue.put("default/q", 1, 2)
    engine.during = worker.close
    await dispatcher.run_once()
    assert sorted(engine.returned) == [LeaseRef(task_id(1), 2), LeaseRef(task_id(2), 2)]


async def test_frames_never_written_go_back_and_started_tasks_are_noted(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    worker = session("w", 1)
    dispatcher.register(worker)
    engine.queue.put("default/q", 1, 2)
    await dispatcher.run_once()
    await worker.next_frame()
    worker.acknowledge([LeaseRef(task_id(1), 2)])
    worker.credits = 2
    await passes(dispatcher)
    await dispatcher.unregister(worker)
    assert engine.returned == [LeaseRef(task_id(2), 2)]
    assert engine.acknowledged == [LeaseRef(task_id(1), 2)]
    assert await worker.next_frame() is None


async def test_a_claim_that_fails_is_tried_again(engine: Engine, dispatcher: Dispatcher) -> None:
    worker = session("w", 10)
    dispatcher.register(worker)
    engine.queue.put("default/q", 1)
    engine.error = RuntimeError("away")
    with pytest.raises(RuntimeError):
        await dispatcher.run_once()
    engine.error = None
    await dispatcher.run_once()
    assert taken(worker) == [1]


async def test_a_newer_stream_of_a_worker_ends_the_older(dispatcher: Dispatcher) -> None:
    old, new = session("w"), session("w")
    new.session_id = "s-new"
    other = session("w", 10, "q", namespace="elsewhere")
    other.session_id = "s-elsewhere"
    for each in (old, other, new):
        dispatcher.register(each)
    assert old.closed
    assert not other.closed
    assert not new.closed


async def test_two_namespaces_may_use_one_worker_id(engine: Engine, dispatcher: Dispatcher) -> None:
    here, there = session("w", 5), session("w", 5, "q", namespace="elsewhere")
    there.session_id = "s-there"
    dispatcher.register(here)
    dispatcher.register(there)
    engine.queue.put("default/q", 1)
    engine.queue.put("elsewhere/q", 2)
    await passes(dispatcher)
    assert (taken(here), taken(there)) == ([1], [2])


async def test_cancelled_tasks_are_named_to_the_worker_that_runs_them(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    first, second = session("a", 1), session("b", 1)
    dispatcher.register(first)
    engine.queue.put("default/q", 1)
    await passes(dispatcher)
    dispatcher.register(second)
    engine.effects.cancelled[0]([(LeaseRef(task_id(1), 2), "no longer needed")])
    notices = [frame for frame in first.outbox if isinstance(frame, NoticeFrame)]
    assert [n.leases for n in notices] == [[(LeaseRef(task_id(1), 2), "no longer needed")]]
    assert not second.outbox


async def test_draining_hands_out_nothing_more_and_tells_everybody(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    worker = session("w", 10)
    dispatcher.register(worker)
    dispatcher.drain("going", 5_000)
    engine.queue.put("default/q", 1)
    await passes(dispatcher)
    assert list(worker.outbox) == [DrainFrame("going", 5_000)]


async def test_l4_a_stream_that_never_acknowledges_gets_no_more_until_it_speaks(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    worker = session("w", 2)
    dispatcher.register(worker)
    engine.queue.put("default/q", 1, 2, 3)
    await passes(dispatcher)
    now = dispatcher.clock.now()
    assert worker.lapse(now) == 2
    await passes(dispatcher)
    assert taken(worker) == [1, 2]
    worker.heard(1_000, now)
    await passes(dispatcher)
    assert taken(worker) == [1, 2, 3]


def test_the_echo_is_never_ahead_of_the_workers_clock() -> None:
    worker = session("w")
    assert worker.echo(50) is None
    worker.heard(1_000, 400)  # written at 1,000 of its clock, read at 400 of ours
    assert worker.echo(450) == 1_050


async def test_a_poll_ends_no_stream(dispatcher: Dispatcher) -> None:
    stream, poll = session("w"), session("w")
    poll.session_id, poll.acked = "s-poll", True
    dispatcher.register(stream)
    dispatcher.register(poll)
    assert not stream.closed


async def test_a_cancelled_task_holds_no_slot_any_more(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    worker = session("w", 1)
    dispatcher.register(worker)
    engine.queue.put("default/q", 1, 2)
    await passes(dispatcher)
    assert taken(worker) == [1]
    ref = LeaseRef(task_id(1), 2)
    worker.acknowledge([ref])
    for listener in engine.effects.cancelled:
        listener([(ref, "no longer wanted")])
    await passes(dispatcher)
    assert taken(worker) == [1, 2]


async def test_who_connects_while_the_server_drains_is_told(dispatcher: Dispatcher) -> None:
    dispatcher.drain("going", 5_000)
    late = session("w")
    dispatcher.register(late)
    assert isinstance(late.outbox[0], DrainFrame)
    assert late.credit() == 0


async def test_the_ready_queue_hears_once_of_all_that_connected(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    told: list[dict[str, int]] = []
    engine.queue.serve = lambda lanes: told.append(dict(lanes))  # type: ignore[method-assign]
    for number in range(50):
        dispatcher.register(session(f"w{number}", 2))
    await passes(dispatcher)
    assert told == [{"default/q": 100}]


async def test_a_lane_is_served_until_its_last_worker_leaves(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    one, two = session("one", 0), session("two", 1)
    dispatcher.register(one)
    dispatcher.register(two)
    await dispatcher.unregister(one)
    engine.queue.put("default/q", 1)
    await passes(dispatcher)
    assert taken(two) == [1]
    await dispatcher.unregister(two)
    before = len(engine.claims)
    engine.queue.put("default/q", 2)
    await passes(dispatcher)
    assert len(engine.claims) == before
