"""The Lease protocol without threads, sockets or clocks: frames in, frames out, `now` an argument.

A lease is *held* from its grant until its handler ends, then its ending (a result, or the
hand-back) is *unanswered* until the server replies to it; nothing is forgotten earlier,
however many streams break in between. A lease that is gone (cancelled, lost, expired) while
its handler still runs is *stopping*: it costs a slot, and its result is dropped.

Not safe for concurrent use: one lock around it, see `link`.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from mainspring.v1 import lease_pb2
from mainspring.v1.lease_stream_pb2 import Cancel as CancelFrame
from mainspring.v1.lease_stream_pb2 import (
    LeaseRequest,
    LeaseResponse,
    Leases,
    Replies,
    Revoke,
    Welcome,
)

from .held import GONE, HAND_BACK, Ending, Held, Key, Stats, read_duration
from .outbox import Identity, Outbox
from .outcomes import Failed, StopReason, Succeeded
from .terms import Terms

REPORT_INTERVAL: Final = 1.0
"""Progress and checkpoints of one lease are sent at most this often."""
WELCOME_TIMEOUT: Final = 10.0

log = logging.getLogger("mainspring.worker")


@dataclass(slots=True)
class Received:
    """What a frame of the server asks the runtime to do."""

    granted: list[Held] = field(default_factory=list)
    stopped: list[Held] = field(default_factory=list)
    draining: bool = False
    nearest: float = inf
    """The first moment at which one of the granted may have to be stopped."""


class Session:
    """The protocol state of one worker id, across all of its streams."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.terms = Terms()
        self.stats = Stats()
        self.draining = False
        self.suspended = False
        """True: no credit for now, the handlers' loop does not answer."""
        self._held: dict[str, Held] = {}
        self._stopping: set[Held] = set()
        self._ended: dict[Key, Ending] = {}
        self._drain: tuple[str, float] | None = None
        self._hello_due = False
        self._welcomed = False
        self._out = Outbox(identity, self._ended)

    # --- the stream ---------------------------------------------------------

    def open(self) -> None:
        """Begin a stream: Hello goes first, and says what is still held."""
        self.close()
        self._hello_due = True

    def close(self) -> None:
        """End a stream: what was not answered on it is sent again on the next."""
        self._hello_due = self._welcomed = False
        self._out.reset()
        for held in self._held.values():
            held.saving_since = None

    @property
    def welcomed(self) -> bool:
        """Whether the current stream is in session."""
        return self._welcomed

    @property
    def has_frames(self) -> bool:
        """Whether there is more to write than credit."""
        return self._welcomed and self._out.waiting

    @property
    def idle(self) -> bool:
        """Whether nothing is held and everything was answered."""
        return not (self._held or self._ended)

    @property
    def running(self) -> int:
        """Handlers that have not ended."""
        return sum(held.ending is None for held in self._held.values()) + len(self._stopping)

    def unanswered(self, now: float) -> bool:
        """Whether the server has been silent for too long after something that it must answer."""
        asked = self._out.asked
        patience = self.terms.patience if self._welcomed else WELCOME_TIMEOUT
        return asked is not None and now - asked > patience

    # --- frames in ----------------------------------------------------------

    def receive(self, frame: LeaseResponse, now: float) -> Received:
        """Take a frame; answers which leases to start and which handlers to stop."""
        self._out.asked = None
        received = Received()
        match frame.WhichOneof("frame"):
            case "leases":
                self._grant(frame.leases, now, received)
            case "replies":
                self._replied(frame.replies, received)
            case "welcome":
                self._welcome(frame.welcome, received)
            case "cancel":
                self._end_leases(frame.cancel, StopReason.CANCELLED, received)
            case "revoke":
                self._end_leases(frame.revoke, StopReason.LOST, received)
            case "drain":
                received.draining = True
            case other:
                log.debug("ignored a frame of an unknown kind: %s", other)
        return received

    def _welcome(self, welcome: Welcome, received: Received) -> None:
        self._welcomed = True
        self.stats.connections += 1
        self.terms = Terms.of(welcome)
        if self.draining:
            # The new stream does not know yet.
            self._out.drain = self._drain
        self._lease_replies(welcome.held, read_duration(welcome.echo_monotonic_time), received)

    def _grant(self, leases: Leases, now: float, received: Received) -> None:
        deadline = read_duration(leases.echo_monotonic_time) + (
            read_duration(leases.first_lease_timeout) or self.terms.first_lease_timeout
        )
        if deadline - self.terms.margin <= now:
            # Unacknowledged they lapse, and no attempt is counted.
            self.stats.late_grants += len(leases.leases)
            return
        beat_time = now + self.terms.heartbeat_interval
        granted = received.granted
        for lease in leases.leases:
            run_deadline = (
                now + read_duration(lease.run_timeout) if lease.HasField("run_timeout") else inf
            )
            held = Held(lease, deadline, run_deadline, beat_time)
            older = self._held.get(held.task_id)
            if older is not None:
                if older.key == held.key:
                    continue
                self._gone(older, StopReason.LOST, received)
            if self.draining:
                self._end(held, HAND_BACK)
                continue
            self._held[held.task_id] = held
            granted.append(held)
            received.nearest = min(received.nearest, run_deadline)
        self.stats.granted += len(granted)
        if granted:
            self._out.acks.append(granted)
            received.nearest = min(received.nearest, deadline - self.terms.margin)

    def _end_leases(
        self, notice: CancelFrame | Revoke, reason: StopReason, received: Received
    ) -> None:
        for item in notice.leases:
            held = self._find(item.task_id, item.lease_token)
            if held is not None:
                self._gone(held, reason, received)

    def _replied(self, replies: Replies, received: Received) -> None:
        if replies.leases:
            self._lease_replies(
                replies.leases, read_duration(replies.echo_monotonic_time), received
            )
        ended, stats = self._ended, self.stats
        for reply in replies.results:
            key = (reply.task_id, reply.lease_token)
            ending = ended.pop(key, None)
            if ending is None:
                continue
            match reply.state:
                case lease_pb2.RESULT_STATE_APPLIED:
                    stats.applied += 1
                case lease_pb2.RESULT_STATE_DUPLICATE:
                    stats.duplicate += 1
                case lease_pb2.RESULT_STATE_STALE:
                    stats.stale += 1
                    log.warning("task %s: its lease had ended, the result was refused", key[0])
                case _:
                    self._refused(key, ending, reply.error)

    def _refused(self, key: Key, ending: Ending, error: str) -> None:
        """Report a failure in place of a result that the server cannot store."""
        self.stats.invalid += 1
        log.error("task %s: the server refused the result: %s", key[0], error)
        if ending is HAND_BACK or (isinstance(ending, Failed) and ending.type == "ResultInvalid"):
            return
        self._ended[key] = Failed(
            f"the server refused the result: {error}", "ResultInvalid", retryable=False
        )
        self._out.unsent.append(key)

    def _lease_replies(
        self, replies: Iterable[lease_pb2.LeaseReply], echo: float, received: Received
    ) -> None:
        for reply in replies:
            held = self._find(reply.task_id, reply.lease_token)
            if held is None:
                continue
            match reply.state:
                case lease_pb2.LEASE_STATE_EXTENDED:
                    # Each answer is a lower bound of when the lease ends, the highest is the best.
                    held.deadline = max(held.deadline, echo + read_duration(reply.remaining))
                    if reply.error:
                        log.warning("task %s: report not stored: %s", held.task_id, reply.error)
                    # An echo older than the frame with the checkpoint answers an earlier beat.
                    if held.saving_since is not None and echo + 1e-6 >= held.saving_since:
                        held.checkpoint = held.saving_since = None
                        if held.ending is not None:
                            self._end(held, held.ending)
                case lease_pb2.LEASE_STATE_CANCEL_REQUESTED:
                    self._gone(held, StopReason.CANCELLED, received)
                case lease_pb2.LEASE_STATE_LOST:
                    self._gone(held, StopReason.LOST, received)

    # --- the handlers -------------------------------------------------------

    def finish(self, held: Held, ending: Ending) -> None:
        """Take what a handler came to, or HAND_BACK for a lease that was not started."""
        reason = held.stop_reason
        if reason in GONE:
            self._stopping.discard(held)
            self.stats.dropped_results += 1
            return
        if reason is StopReason.RUN_TIMEOUT:
            ending = Failed(f"stopped: {reason.value}", "RunTimeout")
        elif reason is StopReason.DRAIN and isinstance(ending, Failed):
            # It was stopped, it did not fail: a deploy costs no attempt.
            ending = HAND_BACK
        if held.checkpoint is None or isinstance(ending, Succeeded):
            self._end(held, ending)
            return
        # There may be another attempt: let the checkpoint that it starts from be stored first.
        held.ending = ending
        if held.saving_since is None:
            self._out.beats[held.key] = held

    def report(
        self,
        held: Held,
        now: float,
        *,
        progress: tuple[float | None, str] | None = None,
        checkpoint: bytes | None = None,
    ) -> bool:
        """Take progress or a checkpoint; answers whether a frame is to be written now."""
        if progress is not None:
            held.progress = progress
        if checkpoint is not None:
            held.checkpoint, held.saving_since = checkpoint, None
        if held.stop_reason in GONE or now - held.report_time < REPORT_INTERVAL:
            return False
        self._out.beats[held.key] = held
        return True

    def stop(self, held: Held, reason: StopReason) -> bool:
        """Mark a running handler as to be stopped while its lease goes on; False if it has ended."""
        if (
            held.stop_reason is not None
            or self._held.get(held.task_id) is not held
            or held.ending is not None
        ):
            return False
        held.stop_reason = reason
        return True

    def running_leases(self) -> list[Held]:
        """Leases whose handlers have not ended and were not told to stop."""
        return [
            held for held in self._held.values() if held.ending is None and held.stop_reason is None
        ]

    # --- time ---------------------------------------------------------------

    def tick(self, now: float, alive: Callable[[Held], bool]) -> tuple[list[Held], float]:
        """Beat for what is alive, stop what is past its time; answers those, and when to come again."""
        received = Received()
        terms, again = self.terms, inf
        for held in list(self._held.values()):
            if held.deadline - terms.margin <= now:
                self._gone(held, StopReason.EXPIRED, received)
                continue
            if held.ending is None and held.stop_reason is None:
                if held.run_deadline <= now:
                    held.stop_reason = StopReason.RUN_TIMEOUT
                    received.stopped.append(held)
                    continue
                again = min(again, held.run_deadline)
            again = min(again, held.deadline - terms.margin)
            if held.stop_reason is StopReason.RUN_TIMEOUT and held.ending is None:
                continue
            if held.beat_time <= now:
                # One that is not alive is looked at again on every tick: it may come back.
                if alive(held):
                    self._out.beats[held.key] = held
                    held.beat_time = now + terms.heartbeat_interval
            elif held.has_report and now - held.report_time >= REPORT_INTERVAL:
                self._out.beats[held.key] = held
        return received.stopped, again

    def drain(self, reason: str, grace: float) -> None:
        """Take no more: grants that still come are handed back."""
        self.draining = True
        self._out.drain = self._drain = (reason, grace)

    # --- frames out ---------------------------------------------------------

    def next_frame(self, now: float) -> LeaseRequest | None:
        """Write the next frame, or None if there is nothing to say."""
        if not self._welcomed:
            if not self._hello_due:
                return None
            self._hello_due = False
            return self._out.hello(now, [*(held.key for held in self._held.values()), *self._ended])
        return self._out.next_frame(
            now, None if self.draining else self.credit, self.terms.idle_interval
        )

    @property
    def credit(self) -> int:
        """How many leases it is ready to hold; a handler that does not stop still takes its slot."""
        return 0 if self.suspended else max(0, self.identity.slots - len(self._stopping))

    # --- within -------------------------------------------------------------

    def _find(self, task_id: str, token: int) -> Held | None:
        held = self._held.get(task_id)
        return held if held is not None and held.key[1] == token else None

    def _end(self, held: Held, ending: Ending) -> None:
        if self._held.get(held.task_id) is held:
            del self._held[held.task_id]
        if ending is HAND_BACK:
            self.stats.handed_back += 1
        self._ended[held.key] = ending
        self._out.unsent.append(held.key)

    def _gone(self, held: Held, reason: StopReason, received: Received) -> None:
        del self._held[held.task_id]
        self._out.beats.pop(held.key, None)
        self.stats.stopped += 1
        if held.ending is not None:
            self.stats.dropped_results += 1
            return
        already_told = held.stop_reason is not None
        held.stop_reason = reason
        self._stopping.add(held)
        if not already_told:
            received.stopped.append(held)
