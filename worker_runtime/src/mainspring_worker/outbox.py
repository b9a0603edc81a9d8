"""What one stream still has to carry to the server, and in which order it goes."""

from dataclasses import dataclass
from math import inf
from typing import Final

from mainspring.v1.lease_stream_pb2 import LeaseRequest

from .held import HAND_BACK, Ending, Held, Key, write_duration, write_result

MAX_ITEMS: Final = 1000
MAX_FRAME_BYTES: Final = 14 * 1024 * 1024
PROTOCOL_VERSION: Final = 1

_ANSWERED: Final = frozenset({"heartbeat", "results", "hand_back"})


@dataclass(frozen=True, slots=True)
class Identity:
    """What Hello says about the worker."""

    worker_id: str
    task_types: tuple[str, ...]
    queues: tuple[str, ...]
    slots: int
    hostname: str = ""
    sdk_version: str = ""


class Outbox:
    """Writes frames, acknowledgements first: a grant is acknowledged before anything else is said."""

    def __init__(self, identity: Identity, ended: dict[Key, Ending]) -> None:
        self._identity = identity
        self._ended = ended
        self.acks: list[list[Held]] = []
        self.beats: dict[Key, Held] = {}
        self.unsent: list[Key] = []
        self.drain: tuple[str, float] | None = None
        self.asked: float | None = None
        """Since when the server owes an answer; None if it does not."""
        self._credit_sent = 0
        self._written = -inf

    @property
    def waiting(self) -> bool:
        """Whether there is more to write than credit."""
        return bool(self.acks or self.beats or self.unsent or self.drain)

    def reset(self) -> None:
        """Begin with nothing said: every ending that was not answered is to be sent again."""
        self.acks.clear()
        self.beats.clear()
        self.unsent[:] = self._ended
        self.asked = None
        self._credit_sent = 0

    def hello(self, now: float, held: list[Key]) -> LeaseRequest:
        """Write the first frame of a stream, with the leases that are still held."""
        self._written = self.asked = now
        frame = LeaseRequest()
        _stamp(frame, now)
        hello, identity = frame.hello, self._identity
        hello.worker_id = identity.worker_id
        hello.queues.extend(identity.queues)
        hello.task_types.extend(identity.task_types)
        hello.slots = identity.slots
        hello.sdk_name = "mainspring-worker"
        hello.sdk_version = identity.sdk_version
        hello.protocol_version = PROTOCOL_VERSION
        hello.hostname = identity.hostname
        for task_id, token in held:
            hello.held.add(task_id=task_id, lease_token=token)
        return frame

    def next_frame(
        self, now: float, credit: int | None, idle_interval: float
    ) -> LeaseRequest | None:
        """Write the next frame, or None if there is nothing to say.

        After `idle_interval` without a frame it is a beat for no lease, which the server answers:
        so a worker that has nothing to do learns that its server is gone, and the next grant
        echoes a fresh clock. Credit None: say no credit at all.
        """
        frame = LeaseRequest()
        clock = _stamp(frame, now)
        if self.acks:
            self._write_acks(frame)
        elif self.drain is not None:
            frame.drain.reason = self.drain[0][:1024]
            write_duration(frame.drain.grace_timeout, self.drain[1])
            self.drain = None
        elif self.beats:
            self._write_beats(frame, now, clock)
        elif not self._write_endings(frame):
            if credit is None:
                return None
            if credit != self._credit_sent:
                frame.credits.max_leases = self._credit_sent = credit
            elif now - self._written >= idle_interval:
                frame.heartbeat.SetInParent()
            else:
                return None
        if self.asked is None and frame.WhichOneof("frame") in _ANSWERED:
            self.asked = now
        self._written = now
        return frame

    def _write_acks(self, frame: LeaseRequest) -> None:
        # One frame of acknowledgements for each frame of grants.
        refs = frame.ack.leases
        for held in self.acks.pop(0):
            refs.add(task_id=held.task_id, lease_token=held.key[1])

    def _write_beats(self, frame: LeaseRequest, now: float, clock: float) -> None:
        beats, size = frame.heartbeat.leases, 0
        for key in list(self.beats)[:MAX_ITEMS]:
            held = self.beats.pop(key)
            beat = beats.add(task_id=key[0], lease_token=key[1])
            if not held.has_report:
                continue
            held.report_time = now
            if held.progress is not None:
                fraction, beat.progress.message = held.progress
                held.progress = None
                if fraction is not None:
                    beat.progress.fraction = fraction
            if held.checkpoint is not None and held.saving_since is None:
                beat.checkpoint = held.checkpoint
                held.saving_since = clock
                size += len(held.checkpoint)
            if size > MAX_FRAME_BYTES:
                break

    def _write_endings(self, frame: LeaseRequest) -> bool:
        """Write as many results, or as many hand-backs, as one frame may carry; False if none."""
        unsent, ended = self.unsent, self._ended
        back: bool | None = None
        taken, size = 0, 0
        for key in unsent:
            ending = ended.get(key)
            is_back = ending is HAND_BACK
            if (
                (back is not None and is_back is not back)
                or taken == MAX_ITEMS
                or size > MAX_FRAME_BYTES
            ):
                break
            taken += 1
            if ending is None:
                continue
            back = is_back
            if ending is HAND_BACK:
                frame.hand_back.leases.add(task_id=key[0], lease_token=key[1])
            else:
                size += write_result(
                    frame.results.results.add(task_id=key[0], lease_token=key[1]), ending
                )
        del unsent[:taken]
        return back is not None


def _stamp(frame: LeaseRequest, now: float) -> float:
    """Write the worker's clock, in whole milliseconds: an echo may be kept in no finer unit."""
    milliseconds = int(now * 1000)
    frame.monotonic_time.seconds = milliseconds // 1000
    frame.monotonic_time.nanos = milliseconds % 1000 * 1_000_000
    return milliseconds / 1000
