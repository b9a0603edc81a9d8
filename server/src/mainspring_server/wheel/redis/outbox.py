"""What is on its way to Redis: hints and removals, gathered for a moment into few commands.

Nobody waits for it. What is lost here (a crash, a Redis that is away or full) is what the pager
heals: a hint is found in the store when its second is compared, and a member that was not removed
fires once more and loses the swap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ...clock import Clock
from ...domain.errors import Unavailable
from ...store.port import DueEntry
from ..hierarchy import Level, slot_of
from .ending import end
from .keys import Place
from .slots import Member, Slots
from .times import LATE_MS, LEAD_MS, NEAR_MS, second_of

log = logging.getLogger(__name__)

AT_ONCE_MS = 500
"""A hint that is due sooner is published without lingering."""

NEAR_LINGER_MS = 100
FAR_LINGER_MS = 1_000
REMOVE_LINGER_MS = 1_000

FULL = 5_000
"""So many hints or removals are sent without lingering."""

CAP = 200_000
"""More hints than this are not kept while Redis is slow."""


Fail = Callable[[Unavailable], None]
Late = Callable[[Sequence[DueEntry]], None]


class Outbox:
    """Gathers until `flush`, which a task of its own calls in time.

    `fail` is told when Redis failed, `late` of hints that lingered past the reading of their slot.
    """

    def __init__(self, slots: Slots, clock: Clock, fail: Fail, late: Late) -> None:
        self._slots, self._clock = slots, clock
        self._fail, self._late = fail, late
        self._near: list[DueEntry] = []
        self._far: dict[bytes, DueEntry] = {}
        self._removals: dict[Place, dict[bytes, int]] = {}
        self._queued = 0  # removals
        # Monotonic times at which each of the three is sent.
        self._near_at: int | None = None
        self._far_at: int | None = None
        self._remove_at: int | None = None
        self._wake = asyncio.Event()
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.away = False
        """Nothing is gathered while Redis is known to be away."""
        self.lost = 0
        """Hints that did not reach Redis."""

    def start(self) -> None:
        """Begin to send."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="wheel outbox")

    async def stop(self) -> None:
        """Send what there is, if Redis takes it, and end."""
        if self._task is not None:
            await end(self._task)
            self._task = None
            await self.flush(everything=True)

    def near(self, entries: Sequence[DueEntry]) -> None:
        """Hints for seconds that their owners have read already: to be published."""
        room = 0 if self.away else CAP - len(self._near)
        self.lost += max(len(entries) - room, 0)
        self._near += entries[: max(room, 0)]
        soonest = min((entry.due_at for entry in entries), default=None)
        if self._near and soonest is not None:
            left = soonest - self._clock.now() - AT_ONCE_MS
            linger = 0 if len(self._near) >= FULL else min(max(left, 0), NEAR_LINGER_MS)
            self._near_at = self._by(self._near_at, linger)

    def far(self, entries: Sequence[DueEntry]) -> None:
        """Hints for later seconds: to be put into their slots before those are read."""
        now = self._clock.now()
        for entry in entries:
            if self.away or (len(self._far) >= CAP and entry.task_id not in self._far):
                self.lost += 1
                continue
            self._far[entry.task_id] = entry
        soonest = min((entry.due_at for entry in entries), default=None)
        if self._far and soonest is not None:
            left = second_of(soonest) - now - (NEAR_MS + LEAD_MS) // 2
            linger = 0 if len(self._far) >= FULL else min(max(left, 0), FAR_LINGER_MS)
            self._far_at = self._by(self._far_at, linger)

    def remove(self, place: Place, members: Sequence[Member]) -> None:
        """These are to be taken out of their slot, if their score is still this."""
        if self.away:
            return
        removals = self._removals.setdefault(place, {})
        self._queued -= len(removals)
        removals.update(members)
        self._queued += len(removals)
        linger = 0 if self._queued >= FULL else REMOVE_LINGER_MS
        self._remove_at = self._by(self._remove_at, linger)

    def drop(self) -> None:
        """Redis is away: nothing that waits here will be of use."""
        self.lost += len(self._near) + len(self._far)
        self._near, self._far, self._removals, self._queued = [], {}, {}, 0
        self._near_at = self._far_at = self._remove_at = None

    async def flush(self, *, everything: bool = False) -> None:
        """Send what has lingered long enough; failures are told to `fail` and not raised."""
        async with self._sending:
            try:
                if self._reached(self._far_at, everything):
                    await self._send_far()
                if self._reached(self._near_at, everything):
                    await self._send_near()
                if self._reached(self._remove_at, everything):
                    await self._send_removals(everything)
            except Unavailable as error:
                self.drop()
                self._fail(error)

    async def _run(self) -> None:
        while True:
            times = [at for at in (self._near_at, self._far_at, self._remove_at) if at is not None]
            until = None
            if times:
                until = self._clock.now() + min(times) - self._clock.monotonic()
            await self._clock.wait(self._wake, until)
            self._wake.clear()
            try:
                await self.flush()
            except Exception:
                log.exception("wheel: sending to Redis failed; the pager heals what was lost")
                self.drop()

    def _by(self, at: int | None, linger: int) -> int:
        """The earlier of `at` and a moment from now; wakes the task if it is earlier than before."""
        wanted = self._clock.monotonic() + linger
        if at is not None and at <= wanted:
            return at
        self._wake.set()
        return wanted

    def _reached(self, at: int | None, everything: bool) -> bool:
        return at is not None and (everything or at <= self._clock.monotonic())

    async def _send_near(self) -> None:
        entries, self._near, self._near_at = self._near, [], None
        try:
            await self._slots.publish(entries)
        except Unavailable:
            self.lost += len(entries)
            raise

    async def _send_far(self) -> None:
        """One command per slot. What comes too late for its slot is told to the owners instead."""
        entries, self._far, self._far_at = list(self._far.values()), {}, None
        now, began = self._clock.now(), self._clock.monotonic()
        late = [e for e in entries if second_of(e.due_at) - now < LATE_MS]
        if late:
            self._late(late)
            entries = [e for e in entries if second_of(e.due_at) - now >= LATE_MS]
        try:
            self.lost += await self._slots.add(
                (slot_of(entry.due_at, now + NEAR_MS), entry) for entry in entries
            )
        except Unavailable:
            self.lost += len(entries)
            raise
        if self._clock.monotonic() - began > LATE_MS - LEAD_MS:
            # Its owner may have read the slot before the entry was there.
            self._late([e for e in entries if second_of(e.due_at) - self._clock.now() < NEAR_MS])

    async def _send_removals(self, everything: bool) -> None:
        """Slots that are over are emptied in one go; one that is being fired waits for its rest."""
        now = self._clock.now()
        ripe: dict[Place, list[Member]] = {}
        for place, members in list(self._removals.items()):
            firing = place.slot.level is Level.SECONDS and place.slot.end > now
            if everything or not firing or len(members) >= FULL // 2:
                ripe[place] = list(self._removals.pop(place).items())
        self._queued = sum(map(len, self._removals.values()))
        self._remove_at = None
        if self._removals:
            self._remove_at = self._clock.monotonic() + REMOVE_LINGER_MS
        await self._slots.remove(ripe)
