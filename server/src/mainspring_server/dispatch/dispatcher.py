"""One loop that turns credit into claims and claims into frames, for all streams of this process."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from ..batching import Pace
from ..clock import Clock
from ..domain.leases import Grant, LeaseRef, Seat, Want
from ..engine import Engine
from ..service import Service
from ..store.port import CLAIM_BYTES
from .session import DrainFrame, NoticeFrame, Session

log = logging.getLogger(__name__)

CHUNKS = 64
"""Seats are dealt out in about this many turns, so that several workers share a small batch."""


class Dispatcher(Service):
    """Claims whenever a lane may have work and a session that serves it has credit.

    A lane counts as possibly non-empty from a notice of the ready queue, from a new session, or
    every `recheck_ms`, until a claim brings less than was asked for.
    """

    name = "dispatch"

    def __init__(
        self, engine: Engine, clock: Clock, *, batch: int, recheck_ms: int, linger_ms: int = 0
    ) -> None:
        super().__init__(clock)
        self._engine = engine
        self._batch = batch
        self._recheck_ms = recheck_ms
        self._pace = Pace(linger_ms)
        self._recheck_at = 0
        self._sessions: dict[str, Session] = {}
        self._streams: dict[tuple[str, str], Session] = {}  # by namespace and worker
        self._hot: set[str] = set()
        self._paused: frozenset[str] = frozenset()
        self._served: Counter[str] = Counter()  # sessions by lane
        self._serves_other = False  # than the ready queue was told
        self._left = asyncio.Event()
        self.draining = False
        self.busy = False
        """A claim is under way."""
        engine.queue.notify(self.lane_ready)
        engine.effects.cancelled.append(self._on_cancelled)

    @property
    def sessions(self) -> Sequence[Session]:
        """The connected workers, streams and waiting polls alike."""
        return list(self._sessions.values())

    def lane_ready(self, lane: str) -> None:
        """There may be something to claim in this lane."""
        if lane in self._served:
            self._hot.add(lane)
            self.wake.set()

    def credit_changed(self, session: Session) -> None:
        """This session may take more tasks than before."""
        if self._hot and session.credit() > 0:
            self.wake.set()

    def pause(self, lanes: Iterable[str]) -> None:
        """The lanes that are paused now; those that are no longer are looked at again."""
        before, self._paused = self._paused, frozenset(lanes)
        for lane in before - self._paused:
            self.lane_ready(lane)

    def register(self, session: Session) -> None:
        """A worker has connected; an older stream of the same worker ends."""
        if not session.acked:
            worker = (session.info.namespace, session.info.worker_id)
            old = self._streams.get(worker)
            if old is not None:
                old.send(DrainFrame("a newer stream of this worker took over", 0))
                old.close()
            self._streams[worker] = session
        self._sessions[session.session_id] = session
        if self.draining:  # it said hello before
            self._tell_drain(session, "the server is stopping", 0)
        self._served.update(session.lanes)
        self._serves_other = True
        for lane in session.lanes:
            self.lane_ready(lane)

    def tell_served(self) -> None:
        """Tell the ready queue which lanes are served here, and with how many credits."""
        self._serves_other = False
        credits_: dict[str, int] = {}
        for session in self._sessions.values():
            if not (session.draining or session.closed):
                for lane in session.lanes:
                    if lane not in self._paused:
                        credits_[lane] = credits_.get(lane, 0) + max(session.credits, 0)
        self._engine.queue.serve(credits_)

    async def unregister(self, session: Session) -> None:
        """The stream is gone: what was never written goes back, what was started is noted."""
        session.close()
        if self._sessions.get(session.session_id) is session:
            del self._sessions[session.session_id]
            for lane in session.lanes:
                self._served[lane] -= 1
                if not self._served[lane]:
                    del self._served[lane]
            self._left.set()
        worker = (session.info.namespace, session.info.worker_id)
        if self._streams.get(worker) is session:
            del self._streams[worker]
        unwritten = session.unwritten()
        session.release(unwritten)
        if unwritten:
            await self._engine.hand_back(unwritten)
        await self._engine.acknowledge(session.unsaved_acks())

    def drain(self, reason: str, grace_ms: int) -> None:
        """Hand out nothing more and tell every worker."""
        self.draining = True
        for session in self.sessions:
            self._tell_drain(session, reason, grace_ms)
        self.tell_served()

    @staticmethod
    def _tell_drain(session: Session, reason: str, grace_ms: int) -> None:
        session.draining = True
        session.send(DrainFrame(reason, grace_ms))

    async def emptied(self, grace_ms: int) -> bool:
        """Wait until every worker has left, at most for the grace; True if they all have."""
        until = self.clock.now() + grace_ms
        while self._sessions:
            self._left.clear()
            if not await self.clock.wait(self._left, until):
                return False
        return True

    async def run_once(self) -> int | None:
        """Claim once for all credit there is; again at once while claims come back full."""
        if self.draining:
            return None
        hurried = self._serves_other  # a new session, maybe a Poll that does not wait
        if hurried:  # once for all that came since the last pass
            self.tell_served()
        now = self.clock.now()
        if now >= self._recheck_at:
            self._recheck_at = now + self._recheck_ms
            self._hot.update(self._served)
        read_at = self.clock.monotonic()
        wait = self._pace.wait(read_at)
        if wait and not hurried:
            return now + wait
        asks = self._asks()
        if not asks:
            return self._recheck_at if self._sessions else None
        wants = [want for want, _ in asks]
        for want in wants:
            self._hot.difference_update(want.lanes)
        self.busy = True
        try:
            grants = await self._engine.claim(wants)
        except Exception:
            for want in wants:
                self._hot.update(want.lanes)
            raise
        finally:
            self.busy = False
        if not await self._deliver(grants, asks, read_at):
            self._pace.started(read_at, len(grants))
        return self.clock.now() if self._hot and grants else self._recheck_at

    def _asks(self) -> list[tuple[Want, dict[Session, int]]]:
        """Credit by set of lanes: what to claim, and how much of it for whom."""
        groups: dict[tuple[tuple[str, ...], int, bool], list[Session]] = {}
        open_lanes = self._hot - self._paused
        for session in self._sessions.values():
            if session.credit() > 0:
                lanes = tuple(lane for lane in session.lanes if lane in open_lanes)
                if lanes:
                    groups.setdefault((lanes, session.lease_ms, session.acked), []).append(session)
        asks = []
        for (lanes, lease_ms, acked), members in groups.items():
            seats, asked = self._seats(members)
            asks.append((Want(lanes, seats, lease_ms, acked), asked))
        return asks

    def _seats(self, members: list[Session]) -> tuple[tuple[Seat, ...], dict[Session, int]]:
        """Deal the batch out over the sessions in turns, the emptiest first."""
        credit = {session: session.credit() for session in members}
        members.sort(key=lambda session: -credit[session])
        step = max(1, min(self._batch, sum(credit.values())) // CHUNKS)
        seats: list[Seat] = []
        asked = dict.fromkeys(members, 0)
        room = self._batch
        while room > 0 and credit:
            for session in members:
                count = min(step, credit.get(session, 0), room)
                if count <= 0:
                    credit.pop(session, None)
                    continue
                seats.append(Seat(session.info.worker_id, count))
                asked[session] += count
                credit[session] -= count
                room -= count
        return tuple(seats), asked

    async def _deliver(
        self,
        grants: Sequence[Grant],
        asks: Sequence[tuple[Want, dict[Session, int]]],
        read_at: int,
    ) -> bool:
        """Hand the grants over; True if a claim came back full: then there is probably more."""
        by_worker: dict[tuple[str, str], list[Grant]] = {}
        for grant in grants:
            namespace = grant.lane.partition("/")[0]
            by_worker.setdefault((namespace, grant.worker_id), []).append(grant)
        now = self.clock.now()
        heavy = sum(len(grant.payload) for grant in grants) >= CLAIM_BYTES  # the store stopped
        full = False
        for want, asked in asks:
            got = 0
            for session, count in asked.items():
                mine = by_worker.get((session.info.namespace, session.info.worker_id))
                if not mine or not count:
                    continue
                part, mine[:] = mine[:count], mine[count:]
                got += len(part)
                await self._hand_over(session, part, session.echo(read_at), now)
            if heavy or (got and got >= sum(asked.values())):
                full = True
                self._hot.update(want.lanes)
        return full

    async def _hand_over(
        self, session: Session, part: list[Grant], echo: int | None, now: int
    ) -> None:
        if session.closed:
            await self._engine.hand_back([LeaseRef(g.task_id, g.token) for g in part])
        else:
            session.granted(part, echo, now)

    def _on_cancelled(self, lost: Sequence[tuple[LeaseRef, str]]) -> None:
        """Tell the workers of this process whose running tasks were cancelled."""
        for session in self._sessions.values():
            mine = [
                (ref, reason)
                for ref, reason in lost
                if (held := session.held.get(ref.task_id)) and held.token == ref.token
            ]
            if mine:
                session.send(NoticeFrame(mine, revoked=False))
                session.release([ref for ref, _ in mine])  # the worker reports nothing of them
                self.credit_changed(session)
