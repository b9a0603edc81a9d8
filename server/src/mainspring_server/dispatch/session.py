"""What a dispatcher knows of one connected worker: its credit, what it holds, what it is to be told.

Pure bookkeeping: no I/O. The stream's handler reads frames into it and writes frames out of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..domain.leases import Beat, BeatAnswer, Grant, LeaseRef, ResultState
from ..domain.task import HANDED_OVERHEAD

FRAME_ITEMS = 1_000
"""Grants of one frame: each frame is acknowledged by one, which may not have more."""
FRAME_BYTES = 3 * 1_024 * 1_024
"""Grants of one frame: below the 4 MiB that gRPC clients take by default."""
GRANT_BYTES = 1_024
"""What a grant weighs besides its payload and checkpoint, at most."""
WAITING_BYTES = 8 * 1_024 * 1_024
"""Grants that a slow reader has not taken; beyond this it gets no more."""
WAITING_FRAMES = 64
"""Frames that a slow reader has not taken; beyond this nothing more is read from it."""


@dataclass(frozen=True, slots=True)
class GrantFrame:
    """Leases for the worker; `echo` is its own monotonic time before the claim, in ms."""

    grants: Sequence[Grant]
    echo: int | None


@dataclass(frozen=True, slots=True)
class ReplyFrame:
    """Answers to results and beats, in any number; an Exception stands where an item failed."""

    results: Sequence[tuple[LeaseRef, ResultState | Exception]] = ()
    beats: Sequence[tuple[LeaseRef, BeatAnswer | Exception]] = ()
    echo: int | None = None


@dataclass(frozen=True, slots=True)
class NoticeFrame:
    """Leases that the worker must stop: cancelled tasks, or leases that it has lost."""

    leases: Sequence[tuple[LeaseRef, str]]
    revoked: bool


@dataclass(frozen=True, slots=True)
class DrainFrame:
    """The server goes away; it takes results for another `grace_ms`."""

    reason: str
    grace_ms: int


Frame = GrantFrame | ReplyFrame | NoticeFrame | DrainFrame


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself in its Hello."""

    worker_id: str
    namespace: str
    queues: tuple[str, ...]
    task_types: tuple[str, ...]
    hostname: str = ""
    sdk: str = ""

    @property
    def lanes(self) -> tuple[str, ...]:
        """Named queues, and the queues that are called like its task types."""
        names = dict.fromkeys((*self.queues, *self.task_types))
        return tuple(f"{self.namespace}/{name}" for name in names)


@dataclass(slots=True)
class Held:
    """A lease that the worker holds, as far as this stream knows."""

    token: int
    granted_at: int
    ends_at: int
    acked: bool = False


@dataclass(slots=True, eq=False)
class Session:
    """One stream (or one waiting Poll) of a worker."""

    session_id: str
    info: WorkerInfo
    connected_at: int
    lease_ms: int
    acked: bool = False  # a Poll: its reply is the delivery
    credits: int = 0
    held: dict[bytes, Held] = field(default_factory=dict)
    fresh: dict[bytes, Held] = field(default_factory=dict)  # first lease, in order of granting
    clock_lead: int | None = None
    suspended: bool = False
    draining: bool = False
    half_closed: bool = False  # the worker sends no more: end once the outbox is empty
    closed: bool = False
    outbox: deque[Frame] = field(default_factory=deque)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    waiting_bytes: int = 0

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes that this worker serves."""
        return self.info.lanes

    def credit(self) -> int:
        """How many more tasks it takes now."""
        if self.suspended or self.draining or self.closed or self.waiting_bytes > WAITING_BYTES:
            return 0
        return self.credits - len(self.held)

    def heard(self, worker_time: int | None, now: int) -> None:
        """A frame was read at `now` that the worker wrote at `worker_time` (monotonic ms of each)."""
        self.suspended = False
        if worker_time is not None:
            self.clock_lead = worker_time - now

    def echo(self, now: int) -> int | None:
        """The worker's monotonic time at `now`, at least: frames only ever arrive late.

        The worker counts its lease from here, so it must be taken before the claim or the beat
        is stored.
        """
        return None if self.clock_lead is None else now + self.clock_lead

    def send(self, frame: Frame) -> None:
        """Put a frame into the outbox."""
        if not self.closed:
            self.outbox.append(frame)
            self.ready.set()

    async def next_frame(self) -> Frame | None:
        """The next frame to be written; None once the session is closed."""
        while not self.outbox:
            if self.closed or self.half_closed:
                return None
            self.ready.clear()
            await self.ready.wait()
        return self.take()

    def take(self) -> Frame:
        """The oldest frame of the outbox, which must not be empty."""
        frame = self.outbox.popleft()
        if isinstance(frame, GrantFrame):
            self.waiting_bytes -= _weight(frame.grants)
        self.taken.set()
        return frame

    async def writable(self) -> None:
        """Wait until the worker has read enough of what it was sent, or the session is closed."""
        while len(self.outbox) > WAITING_FRAMES and not self.closed:
            self.taken.clear()
            await self.taken.wait()

    def half_close(self) -> None:
        """The worker has said all: no more leases, and the writer ends when the outbox is empty."""
        self.draining = self.half_closed = True
        self.ready.set()

    def close(self) -> None:
        """No more frames; wakes whoever waits."""
        self.closed = True
        for event in (self.ready, self.taken, self.ended):
            event.set()

    def granted(self, grants: Sequence[Grant], echo: int | None, now: int) -> None:
        """Hold what was claimed for this worker and tell it."""
        for grant in grants:
            held = Held(grant.token, now, now + self.lease_ms, self.acked)
            self.held[grant.task_id] = held
            if not self.acked:
                self.fresh[grant.task_id] = held
        for part in _frames_of(grants):
            self.waiting_bytes += _weight(part)
            self.send(GrantFrame(part, echo))

    def hold(self, leases: Iterable[LeaseRef], now: int, lease_ms: int) -> None:
        """Leases that the worker brought along and that were extended."""
        for task_id, token in leases:
            self.held[task_id] = Held(token, now, now + lease_ms, acked=True)

    def extended(self, ref: LeaseRef, ends_at: int) -> None:
        """A beat was stored: the lease lasts at least until then."""
        held = self.held.get(ref.task_id)
        if held is not None and held.token == ref.token:
            held.ends_at = max(held.ends_at, ends_at)

    def acknowledge(self, leases: Iterable[LeaseRef]) -> list[LeaseRef]:
        """The worker is about to start these; answers those that this stream does not know."""
        unknown = []
        for ref in leases:
            held = self.held.get(ref.task_id)
            if held is None or held.token != ref.token:
                unknown.append(ref)
            else:
                held.acked = True
        return unknown

    def release(self, leases: Iterable[LeaseRef]) -> None:
        """These are over: the slot is free again."""
        for task_id, token in leases:
            held = self.held.get(task_id)
            if held is not None and held.token == token:
                del self.held[task_id]
                self.fresh.pop(task_id, None)

    def to_extend(self, before: int, lease_ms: int) -> list[Beat]:
        """Acknowledged first leases granted before a moment: they become full leases now."""
        beats = []
        for task_id, held in self.fresh.items():
            if held.granted_at > before:
                break
            if held.acked:
                beats.append(Beat(task_id, held.token, lease_ms))
        for beat in beats:
            del self.fresh[beat.task_id]
        return beats

    def lapse(self, before: int) -> int:
        """Drop grants that were not acknowledged in time; the worker gets no more until it speaks."""
        lapsed = [
            LeaseRef(task_id, held.token)
            for task_id, held in self.fresh.items()
            if held.granted_at <= before and not held.acked
        ]
        if lapsed:
            self.release(lapsed)
            self.suspended = True
        return len(lapsed)

    def expire(self, before: int) -> int:
        """Drop leases that ended without a word: a worker says nothing of those it has lost."""
        over = [
            LeaseRef(task_id, held.token)
            for task_id, held in self.held.items()
            if held.ends_at <= before and task_id not in self.fresh
        ]
        self.release(over)
        return len(over)

    def unwritten(self) -> list[LeaseRef]:
        """Grants whose frames never left; the outbox is emptied."""
        refs = [
            LeaseRef(grant.task_id, grant.token)
            for frame in self.outbox
            if isinstance(frame, GrantFrame)
            for grant in frame.grants
        ]
        self.outbox.clear()
        self.waiting_bytes = 0
        return refs

    def unsaved_acks(self) -> list[LeaseRef]:
        """Acknowledged first leases that the store has not heard of."""
        return [LeaseRef(i, held.token) for i, held in self.fresh.items() if held.acked]


def _weight(grants: Sequence[Grant]) -> int:
    size = sum(len(g.payload) + len(g.checkpoint or b"") + GRANT_BYTES for g in grants)
    return size + sum(
        len(item.outcome or b"") + HANDED_OVERHEAD for g in grants for item in g.handed
    )


def _frames_of(grants: Sequence[Grant]) -> list[Sequence[Grant]]:
    """In order, in parts of at most FRAME_ITEMS and FRAME_BYTES, but for a part of one."""
    if len(grants) <= FRAME_ITEMS and _weight(grants) <= FRAME_BYTES:
        return [grants]
    parts: list[Sequence[Grant]] = []
    start = weight = 0
    for n, grant in enumerate(grants):
        more = _weight((grant,))
        if n - start == FRAME_ITEMS or (n > start and weight + more > FRAME_BYTES):
            parts.append(grants[start:n])
            start, weight = n, 0
        weight += more
    parts.append(grants[start:])
    return parts
