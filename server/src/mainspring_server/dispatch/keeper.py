"""Keeps the leases of connected workers: stores acknowledgements, suspends deaf streams, lists workers."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..clock import Clock
from ..domain.leases import Beat, BeatAnswer, BeatState, LeaseRef, LeaseTerms
from ..engine import Engine
from ..service import Service
from ..store.port import QueueStore, WorkerRow
from .dispatcher import Dispatcher
from .session import ReplyFrame, Session

log = logging.getLogger(__name__)

TICK_MS = 500
WORKERS_MS = 10_000
PAUSED_MS = 1_000
OVER_MS = 2_000
"""A lease that ended so long ago holds no slot any more."""


class LeaseKeeper(Service):
    """A pass every half second over the sessions of this process."""

    name = "leases"

    def __init__(
        self,
        engine: Engine,
        dispatcher: Dispatcher,
        store: QueueStore,
        clock: Clock,
        settings: LeaseTerms,
        node: str,
    ) -> None:
        super().__init__(clock)
        self._engine = engine
        self._dispatcher = dispatcher
        self._store = store
        self._settings = settings
        self._node = node
        self._saved: set[str] = set()
        self._save_at = 0
        self._paused_at = 0

    async def run_once(self) -> int:
        """Extend, suspend, refresh the paused queues and the list of workers."""
        now = self.clock.now()
        await self._extend(now)
        if now >= self._paused_at:
            self._paused_at = now + PAUSED_MS
            self._dispatcher.pause(row.lane for row in await self._store.paused())
            self._dispatcher.tell_served()
        sessions = [s for s in self._dispatcher.sessions if not s.acked]
        if now >= self._save_at or {s.session_id for s in sessions} != self._saved:
            self._save_at = now + WORKERS_MS
            await self._save(sessions, now)
        return now + TICK_MS

    async def _extend(self, now: int) -> None:
        beats: list[Beat] = []
        owners: list[Session] = []
        for session in self._dispatcher.sessions:
            due = session.to_extend(now - self._settings.extend_after_ms, self._settings.lease_ms)
            beats += due
            owners += [session] * len(due)
            if session.lapse(now - self._settings.first_lease_ms):
                log.warning("worker %s does not acknowledge its grants", session.info.worker_id)
            if session.expire(now - OVER_MS):
                self._dispatcher.credit_changed(session)
        if not beats:
            return
        read_at = self.clock.monotonic()
        answers = await self._engine.heartbeat(beats)
        replies: dict[Session, list[tuple[LeaseRef, BeatAnswer | Exception]]] = {}
        for beat, session, answer in zip(beats, owners, answers, strict=True):
            held = session.held.get(beat.task_id)
            if held is None or held.token != beat.token:
                continue  # finished meanwhile
            if isinstance(answer, Exception):
                session.fresh[beat.task_id] = held  # not stored: again at the next pass
                continue
            if answer.state is BeatState.EXTENDED:
                held.ends_at = max(held.ends_at, now + answer.remaining_ms)
            else:
                session.release([LeaseRef(beat.task_id, beat.token)])
            replies.setdefault(session, []).append((LeaseRef(beat.task_id, beat.token), answer))
        for session, answered in replies.items():
            session.send(ReplyFrame(beats=answered, echo=session.echo(read_at)))

    async def _save(self, sessions: Sequence[Session], now: int) -> None:
        rows = [
            WorkerRow(
                worker_id=s.info.worker_id,
                namespace=s.info.namespace,
                session_id=s.session_id,
                node=self._node,
                hostname=s.info.hostname,
                sdk=s.info.sdk,
                slots=s.credits,
                in_use=len(s.held),
                queues=s.info.queues,
                task_types=s.info.task_types,
                connected_at=s.connected_at,
                seen_at=now,
            )
            for s in sessions
        ]
        alive = {row.session_id for row in rows}
        gone = sorted(self._saved - alive)
        if rows or gone:
            await self._store.save_workers(rows, gone)
        self._saved = alive
