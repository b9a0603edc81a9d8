"""The protocol without threads, sockets or clocks."""

from mainspring.v1 import lease_pb2
from mainspring.v1.lease_stream_pb2 import LeaseResponse, Replies
from mainspring_worker.held import HAND_BACK
from mainspring_worker.outbox import MAX_ITEMS
from mainspring_worker.outcomes import Failed, StopReason, Succeeded
from tests.unit.worker.session_frames import (
    SLOTS,
    alive,
    answer,
    frames,
    grant,
    kinds,
    new_session,
    open_session,
    welcome,
)


def test_frames_come_in_order_and_acks_are_one_per_grant() -> None:
    session = open_session()
    first = session.receive(grant(100, ("a", 1), ("b", 2)), 100).granted
    session.receive(grant(100, ("c", 3)), 100)
    for held in first:
        session.finish(held, Succeeded())
    assert kinds(session, 100.1) == ["ack", "ack", "results", "credits"]
    assert kinds(session, 100.2) == []
    assert kinds(session, 101.2) == []
    assert kinds(session, 115.2) == ["heartbeat"]


def test_an_idle_worker_learns_that_its_server_is_gone() -> None:
    session = open_session()
    assert kinds(session, 100) == ["credits"]
    assert kinds(session, 115.1) == ["heartbeat"]
    assert not session.unanswered(115.1 + session.terms.patience)
    assert session.unanswered(115.2 + session.terms.patience)
    session.receive(LeaseResponse(replies=Replies()), 146)
    assert not session.unanswered(200)


def test_a_grant_past_its_lease_is_dropped_unacknowledged() -> None:
    session = open_session()
    received = session.receive(grant(100, ("a", 1)), 104.6)
    assert received.granted == []
    assert session.stats.late_grants == 1
    assert kinds(session, 104.6) == ["credits"]
    assert [held.key for held in session.receive(grant(100, ("a", 1)), 104.4).granted] == [("a", 1)]


def test_the_same_grant_again_is_ignored_and_a_newer_one_ends_the_older() -> None:
    session = open_session()
    (old,) = session.receive(grant(100, ("a", 1)), 100).granted
    assert session.receive(grant(100, ("a", 1)), 100).granted == []
    received = session.receive(grant(100, ("a", 2)), 100)
    assert received.stopped == [old]
    assert [held.key for held in received.granted] == [("a", 2)]
    session.finish(old, Succeeded())
    assert session.stats.dropped_results == 1


def test_only_an_answer_moves_the_deadline_and_never_back() -> None:
    session = open_session()
    (held,) = session.receive(grant(100, ("a", 1)), 100.2).granted
    assert held.deadline == 105
    ref = lease_pb2.LeaseRef(task_id="a", lease_token=1)
    session.receive(answer(101, [ref], lease_pb2.LEASE_STATE_EXTENDED), 101)
    assert held.deadline == 161
    session.receive(answer(100, [ref], lease_pb2.LEASE_STATE_EXTENDED), 101)
    assert held.deadline == 161


def test_beats_are_due_each_interval_and_only_for_what_is_alive() -> None:
    session = open_session()
    (a, b) = session.receive(grant(100, ("a", 1), ("b", 2), first=200), 100).granted
    assert session.tick(114.9, alive)[0] == []
    frames(session, 114.9)
    session.tick(115.0, lambda held: held is a)
    (beat,) = [frame for frame in frames(session, 115.0) if frame.HasField("heartbeat")]
    assert [ref.task_id for ref in beat.heartbeat.leases] == ["a"]
    session.tick(115.1, alive)
    (beat,) = [frame for frame in frames(session, 115.1) if frame.HasField("heartbeat")]
    assert [ref.task_id for ref in beat.heartbeat.leases] == ["b"]
    assert b.beat_time == 130.1


def test_a_cancelled_handler_costs_its_slot_until_it_ends() -> None:
    session = open_session()
    (held,) = session.receive(grant(100, ("a", 1)), 100).granted
    frame = LeaseResponse()
    frame.cancel.leases.add(task_id="a", lease_token=1)
    assert session.receive(frame, 100).stopped == [held]
    assert held.stop_reason is StopReason.CANCELLED
    assert session.credit == SLOTS - 1
    session.finish(held, Succeeded())
    assert session.credit == SLOTS
    assert session.idle


def test_reports_are_sent_at_most_once_a_second_and_the_newest_wins() -> None:
    session = open_session()
    (held,) = session.receive(grant(100, ("a", 1), first=200), 100).granted
    frames(session, 100)
    assert session.report(held, 100, progress=(0.1, "one"))
    (frame,) = frames(session, 100)
    assert frame.heartbeat.leases[0].progress.message == "one"
    assert not session.report(held, 100.2, progress=(0.2, "two"))
    assert not session.report(held, 100.4, progress=(0.3, "three"), checkpoint=b"c")
    session.tick(100.9, alive)
    assert kinds(session, 100.9) == []
    session.tick(101.0, alive)
    (frame,) = frames(session, 101.0)
    assert frame.heartbeat.leases[0].progress.message == "three"
    assert frame.heartbeat.leases[0].checkpoint == b"c"


def test_a_checkpoint_that_was_not_answered_is_sent_again_before_the_failure() -> None:
    session = open_session()
    (held,) = session.receive(grant(100, ("a", 1), first=200), 100).granted
    session.report(held, 100, checkpoint=b"c")
    assert kinds(session, 100) == ["ack", "heartbeat", "credits"]
    session.finish(held, Failed("failed"))
    assert not session.idle
    # An answer to an earlier frame says nothing about the checkpoint.
    ref = lease_pb2.LeaseRef(task_id="a", lease_token=1)
    session.receive(answer(99.5, [ref], lease_pb2.LEASE_STATE_EXTENDED), 100.1)
    assert kinds(session, 100.1) == []
    session.open()
    hello = session.next_frame(101)
    assert hello is not None
    assert [item.task_id for item in hello.hello.held] == ["a"]
    session.receive(welcome(101, {("a", 1): lease_pb2.LEASE_STATE_EXTENDED}), 101)
    session.tick(101.2, alive)
    (beat, _) = frames(session, 101.2)
    assert beat.heartbeat.leases[0].checkpoint == b"c"
    session.receive(answer(101.2, [ref], lease_pb2.LEASE_STATE_EXTENDED), 101.3)
    assert kinds(session, 101.3) == ["results"]


def test_frames_are_bounded_by_items_and_bytes() -> None:
    session = open_session(slots=10_000)
    keys = [(f"t{n}", n) for n in range(2 * MAX_ITEMS + 1)]
    for held in session.receive(grant(100, *keys), 100).granted:
        session.finish(held, Succeeded(b"x" * 60_000 if held.key[1] < 500 else b""))
    results = [frame for frame in frames(session, 100) if frame.HasField("results")]
    assert sum(len(frame.results.results) for frame in results) == len(keys)
    assert all(len(frame.results.results) <= MAX_ITEMS for frame in results)
    assert all(frame.ByteSize() < 15 * 1024 * 1024 for frame in results)


def test_results_and_hand_backs_go_in_frames_of_their_own() -> None:
    session = open_session()
    granted = session.receive(grant(100, ("a", 1), ("b", 2), ("c", 3)), 100).granted
    for held, ending in zip(granted, (Succeeded(), HAND_BACK, Failed("x")), strict=True):
        session.finish(held, ending)
    assert kinds(session, 100) == ["ack", "results", "hand_back", "results", "credits"]


def test_silence_after_a_question_counts_as_dead() -> None:
    session = new_session()
    session.open()
    assert not session.unanswered(100)
    session.next_frame(100)
    assert not session.unanswered(110)
    assert session.unanswered(110.1)
    session.receive(welcome(100), 100)
    frames(session, 100)
    # Credit asks for no answer.
    assert not session.unanswered(1000)
    (held,) = session.receive(grant(1000, ("a", 1)), 1000).granted
    session.finish(held, Succeeded())
    frames(session, 1000)
    assert session.unanswered(1031)


def test_a_draining_session_says_so_again_on_the_next_stream() -> None:
    session = open_session()
    session.drain("stop", 5)
    assert kinds(session, 100) == ["drain"]
    received = session.receive(grant(100, ("a", 1)), 100)
    assert received.granted == []
    assert kinds(session, 100) == ["hand_back"]
    session.open()
    session.next_frame(101)
    session.receive(welcome(101), 101)
    assert kinds(session, 101) == ["drain", "hand_back"]


def test_the_clock_is_told_in_whole_milliseconds_rounded_down() -> None:
    session = open_session(now=12_345.678_9)
    (frame,) = frames(session, 12_345.678_9)
    assert frame.monotonic_time.ToNanoseconds() == 12_345_678_000_000


def test_an_echo_in_milliseconds_answers_the_checkpoint() -> None:
    session = open_session()
    (held,) = session.receive(grant(100, ("a", 1), first=200), 100).granted
    session.report(held, 100.000_7, checkpoint=b"c")
    session.finish(held, Failed("failed"))
    assert kinds(session, 100.000_9) == ["ack", "heartbeat", "credits"]
    ref = lease_pb2.LeaseRef(task_id="a", lease_token=1)
    session.receive(answer(100.000, [ref], lease_pb2.LEASE_STATE_EXTENDED), 100.01)
    assert kinds(session, 100.01) == ["results"]
