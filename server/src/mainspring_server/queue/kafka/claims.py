"""From wants to grants: buffered tasks first, the store itself where Kafka cannot tell."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ...clock import Clock
from ...domain.leases import Grant, Seat, Want
from ...domain.task import ReadyRef
from ...store.port import TaskStore
from .buffer import Buffer
from .lanes import Lane, Lanes

log = logging.getLogger(__name__)

ROUNDS = 8
"""Claims in a row for one want while the answers are mostly stale."""

STEAL_MS = 1_000
"""The pause between claims from the store where a part of a lane is known to stand still."""

STEAL_MAX_MS = 10_000
"""The longest pause between claims from the store for a lane with idle credit."""


class Claims:
    """Fills wants from the buffer."""

    def __init__(
        self,
        store: TaskStore,
        buffer: Buffer,
        lanes: Lanes,
        clock: Clock,
        notify: Callable[[str], None],
    ) -> None:
        self._store = store
        self._buffer = buffer
        self._lanes = lanes
        self._clock = clock
        self._notify = notify
        self._turn = 0

    async def from_store(self, wants: Sequence[Want]) -> list[Grant]:
        """The lower rung: READY rows are the queue."""
        self._turn += 1
        return await self._store.claim_lanes(wants, self._turn)

    async def from_buffer(self, wants: Sequence[Want]) -> list[Grant]:
        """Each want in turn; what was granted before a failure is answered all the same."""
        granted: list[Grant] = []
        for want in wants:
            try:
                await self._fill(want, granted)
            except Exception:
                if not granted:
                    raise
                log.warning("a claim failed after %d grants", len(granted), exc_info=True)
                for lane in want.lanes:
                    self._notify(lane)
                break
        return granted

    async def _fill(self, want: Want, granted: list[Grant]) -> None:
        for lane in want.lanes:
            self._lanes.asked(lane)
        room = _room(want)
        for _ in range(ROUNDS):
            taken = self._buffer.take(want.lanes, room, self._clock.now())
            if not taken:
                break
            refs: list[ReadyRef] = []
            for item in taken:
                refs += item.refs
            try:
                grants = await self._store.claim(refs, want)
            except BaseException:
                self._buffer.put_back(taken, self._clock.now())
                raise
            self._buffer.settle(taken, {grant.task_id for grant in grants}, self._clock.now())
            granted += grants
            want = left_of(want, grants)
            room = _room(want)
            if not room:
                break
        if room:
            granted += await self._steal(want)
        for lane in want.lanes:
            found = self._buffer.lanes.get(lane)
            if found is not None and found.count:
                self._lanes.waits(lane, self._clock.monotonic())
                if room:
                    self._notify(lane)

    async def _steal(self, want: Want) -> list[Grant]:
        """Idle credit and nothing to read: look into the store, now and then."""
        now = self._clock.monotonic()
        lanes: dict[str, Lane] = {}
        for name in want.lanes:
            lane = self._lanes.get(name)
            if lane is not None and now >= lane.steal_at and name not in self._buffer.lanes:
                lanes[name] = lane
        if not lanes:
            return []
        grants = await self.from_store([want._replace(lanes=tuple(lanes))])
        found = {grant.lane for grant in grants}
        for name, lane in lanes.items():
            if lane.short or name in found:
                lane.steal_pause = STEAL_MS
            else:
                lane.steal_pause = min(max(2 * lane.steal_pause, STEAL_MS), STEAL_MAX_MS)
            lane.steal_at = now + lane.steal_pause
        return grants


def _room(want: Want) -> int:
    return sum(seat.room for seat in want.seats)


def left_of(want: Want, grants: Sequence[Grant]) -> Want:
    """The want without the seats that the grants have filled."""
    filled: dict[str, int] = {}
    for grant in grants:
        filled[grant.worker_id] = filled.get(grant.worker_id, 0) + 1
    seats = []
    for worker_id, room in want.seats:
        used = min(room, filled.get(worker_id, 0))
        filled[worker_id] = filled.get(worker_id, 0) - used
        if room > used:
            seats.append(Seat(worker_id, room - used))
    return want._replace(seats=tuple(seats))
