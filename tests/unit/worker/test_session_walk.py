"""The protocol under random events: streams break at any moment, nothing that ended is lost."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mainspring.v1 import lease_pb2
from mainspring.v1.lease_stream_pb2 import LeaseRequest, LeaseResponse
from mainspring_worker.held import Held, read_duration
from mainspring_worker.outcomes import Failed, Succeeded
from tests.unit.worker.session_frames import (
    SLOTS,
    Key,
    alive,
    answer,
    frames,
    grant,
    new_session,
    welcome,
)


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
