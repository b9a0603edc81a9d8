"""The protocol without threads: walks of random events, and the edges that they rarely meet."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mainspring.v1 import lease_pb2
from mainspring.v1.lease_stream_pb2 import LeaseRequest, LeaseResponse
from mainspring_worker.held import HAND_BACK, Held, read_duration
from mainspring_worker.outbox import MAX_ITEMS, Identity
from mainspring_worker.outcomes import Failed, StopReason, Succeeded
from mainspring_worker.session import Session

SLOTS = 4
Key = tuple[str, int]


def set_seconds(target: Any, seconds: float) -> None:
    target.FromNanoseconds(int(seconds * 1e9))


def new_session(slots: int = SLOTS) -> Session:
    return Session(Identity("worker", ("work",), (), slots))


def welcome(echo: float, held: dict[Key, Any] | None = None, first: float = 5.0) -> LeaseResponse:
    frame = LeaseResponse()
    set_seconds(frame.welcome.lease_timeout, 60)
    set_seconds(frame.welcome.first_lease_timeout, first)
    set_seconds(frame.welcome.heartbeat_interval, 15)
    set_seconds(frame.welcome.echo_monotonic_time, echo)
    for (task_id, token), state in (held or {}).items():
        reply = frame.welcome.held.add(task_id=task_id, lease_token=token, state=state)
        set_seconds(reply.remaining, 60)
    return frame


def grant(echo: float, *keys: Key, first: float = 5.0) -> LeaseResponse:
    frame = LeaseResponse()
    set_seconds(frame.leases.echo_monotonic_time, echo)
    set_seconds(frame.leases.first_lease_timeout, first)
    for task_id, token in keys:
        frame.leases.leases.add(task_id=task_id, lease_token=token)
    return frame


def answer(echo: float, refs: Any, state: Any) -> LeaseResponse:
    frame = LeaseResponse()
    set_seconds(frame.replies.echo_monotonic_time, echo)
    for ref in refs:
        reply = frame.replies.leases.add(
            task_id=ref.task_id, lease_token=ref.lease_token, state=state
        )
        set_seconds(reply.remaining, 60)
    return frame


def open_session(now: float = 100.0, slots: int = SLOTS) -> Session:
    session = new_session(slots)
    session.open()
    assert session.next_frame(now) is not None
    session.receive(welcome(now), now)
    return session


def frames(session: Session, now: float) -> list[LeaseRequest]:
    found = []
    while (frame := session.next_frame(now)) is not None:
        found.append(frame)
    return found


def kinds(session: Session, now: float) -> list[str]:
    return [str(frame.WhichOneof("frame")) for frame in frames(session, now)]


def alive(held: Held) -> bool:
    return True


class Walk(RuleBasedStateMachine):
    """A worker and a server that loses streams at any moment, on one clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.echo = self.now
        self.session = new_session()
        self.open = False
        self.welcomed = False
        self.credit = 0
        self.tokens = 0
        # The server's truth: tokens that are current, and results that it has accepted.
        self.current: dict[str, int] = {}
        self.accepted: dict[Key, Any] = {}
        self.granted_keys: set[Key] = set()
        self.replies: list[LeaseResponse] = []
        # The worker's handlers, and those that ended in time and were not answered yet.
        self.running: dict[Key, Held] = {}
        self.finished: dict[Key, Any] = {}

    def take(self, frame: LeaseRequest) -> None:
        self.echo = read_duration(frame.monotonic_time)
        match frame.WhichOneof("frame"):
            case "hello":
                held = {(ref.task_id, ref.lease_token) for ref in frame.hello.held}
                assert held >= self.running.keys() | self.finished.keys()
                states = {
                    key: lease_pb2.LEASE_STATE_EXTENDED
                    if self.current.get(key[0]) == key[1]
                    else lease_pb2.LEASE_STATE_LOST
                    for key in held
                }
                # What was granted on the older stream and is not presented has lapsed.
                self.current = {
                    key[0]: key[1] for key in held if self.current.get(key[0]) == key[1]
                }
                self.replies.append(welcome(self.echo, states))
            case "credits":
                self.credit = frame.credits.max_leases
            case "results":
                reply = LeaseResponse()
                for result in frame.results.results:
                    key = (result.task_id, result.lease_token)
                    state = lease_pb2.RESULT_STATE_STALE
                    if key in self.accepted:
                        state = lease_pb2.RESULT_STATE_DUPLICATE
                    elif self.current.get(key[0]) == key[1]:
                        state = lease_pb2.RESULT_STATE_APPLIED
                        self.accepted[key] = result.WhichOneof("result")
                        del self.current[key[0]]
                    reply.replies.results.add(task_id=key[0], lease_token=key[1], state=state)
                self.replies.append(reply)
            case "heartbeat" | "ack" as kind:
                for ref in getattr(frame, kind).leases:
                    assert (ref.task_id, ref.lease_token) in self.granted_keys
                if kind == "heartbeat":
                    refs = frame.heartbeat.leases
                    self.replies.append(answer(self.echo, refs, lease_pb2.LEASE_STATE_EXTENDED))

    def hear(self, frame: LeaseResponse) -> None:
        received = self.session.receive(frame, self.now)
        for reply in frame.replies.results:
            self.finished.pop((reply.task_id, reply.lease_token), None)
        for held in received.granted:
            self.running[held.key] = held
        for held in received.stopped:
            self.stop(held)

    def stop(self, held: Held) -> None:
        assert self.running.pop(held.key) is held
        self.session.finish(held, Failed("stopped"))

    @rule(seconds=st.sampled_from([0.01, 0.3, 2.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        stopped, again = self.session.tick(self.now, alive)
        assert again > self.now
        for held in stopped:
            assert held.deadline - self.session.terms.margin <= self.now
            self.stop(held)

    @precondition(lambda self: not self.open)
    @rule()
    def connect(self) -> None:
        self.open = True
        self.credit = 0
        self.replies.clear()
        self.session.open()

    @precondition(lambda self: self.open)
    @rule()
    def disconnect(self) -> None:
        """Everything on its way is lost, on both sides."""
        self.open = self.welcomed = False
        self.replies.clear()
        self.session.close()

    @precondition(lambda self: self.open)
    @rule()
    def worker_writes(self) -> None:
        frame = self.session.next_frame(self.now)
        if frame is not None:
            self.take(frame)

    @precondition(lambda self: self.open and self.replies)
    @rule()
    def server_answers(self) -> None:
        frame = self.replies.pop(0)
        self.welcomed = self.welcomed or frame.HasField("welcome")
        self.hear(frame)

    @precondition(lambda self: self.open and self.welcomed and len(self.current) < self.credit)
    @rule(number=st.integers(0, 5))
    def server_grants(self, number: int) -> None:
        task_id = f"t{number}"
        if task_id in self.current:
            return
        self.tokens += 1
        self.current[task_id] = self.tokens
        self.granted_keys.add((task_id, self.tokens))
        self.hear(grant(self.echo, (task_id, self.tokens)))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), succeeds=st.booleans())
    def handler_ends(self, data: Any, succeeds: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        held = self.running.pop(key)
        self.finished[key] = held
        self.session.finish(held, Succeeded() if succeeds else Failed("failed"))

    @precondition(lambda self: self.current)
    @rule(data=st.data())
    def server_revokes(self, data: Any) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.current)))
        token = self.current.pop(task_id)
        if self.open and self.welcomed:
            frame = LeaseResponse()
            frame.revoke.leases.add(task_id=task_id, lease_token=token)
            self.hear(frame)

    @invariant()
    def never_more_than_slots(self) -> None:
        assert self.session.credit <= SLOTS
        assert len(self.running) <= SLOTS or not self.open

    def teardown(self) -> None:
        """A server that answers gets everything that came to an end in time."""
        self.session.open()
        self.open = True
        self.replies.clear()
        for _ in range(100):
            for frame in frames(self.session, self.now):
                self.take(frame)
            if not self.replies:
                break
            for frame in self.replies:
                self.hear(frame)
            self.replies = []
        for held in list(self.running.values()):
            self.running.pop(held.key)
            self.session.finish(held, Succeeded())
        for _ in range(3):
            for frame in frames(self.session, self.now):
                self.take(frame)
            for frame in self.replies:
                self.hear(frame)
            self.replies = []
        assert self.session.idle
        assert self.session.running == 0
        assert not self.finished
        # What ended while its lease was current was accepted, once.
        assert self.session.stats.applied <= len(self.accepted)


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_frames_come_in_order_and_acks_are_one_per_grant() -> None:
    session = open_session()
    first = session.receive(grant(100, ("a", 1), ("b", 2)), 100).granted
    session.receive(grant(100, ("c", 3)), 100)
    for held in first:
        session.finish(held, Succeeded())
    assert kinds(session, 100.1) == ["ack", "ack", "results", "credits"]
    assert kinds(session, 100.2) == []
    assert kinds(session, 101.2) == ["credits"]


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


def test_times_are_told_to_the_nanosecond() -> None:
    session = open_session(now=12_345.678_9)
    (frame,) = frames(session, 12_345.678_9)
    assert abs(read_duration(frame.monotonic_time) - 12_345.678_9) < 1e-6
