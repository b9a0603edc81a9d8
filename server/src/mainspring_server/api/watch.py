"""Watch: one watcher a process reads for all its streams.

The engine of this process hints at once which tasks changed; what other processes changed is found
by reading all watched tasks every second. A stream holds at most one transition per task, the
newest, so a slow reader costs no memory and no other reader anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from mainspring.v1 import task_pb2

from ..admission.limits import DEFAULT_LIMITS, Limits
from ..clock import Clock
from ..domain.errors import ResourceExhausted, Unavailable
from ..domain.task import Status, Task
from ..engine import Engine
from ..ids import text_of
from ..service import Service
from ..store.port import TaskStore
from .convert import timestamp, unknown_task
from .errors import cut

POLL_MS = 1_000
LOAD = 500
"""Rows a read; then the loop is given to others."""
PART = 2_000
"""Tasks that are polled in one pass: many watches make the polls slower, not the server."""
PART_MS = 250
"""Between two passes of a poll."""
RETRY_MS = 1_000
REASON_BYTES = 1_024


class Subscription:
    """What one stream is to be told."""

    def __init__(self, ids: Iterable[bytes]) -> None:
        self.ids = tuple(dict.fromkeys(ids))
        self.open = set(self.ids)
        """Tasks that may still change."""
        self.ended = False
        self._seen: dict[bytes, int] = {}
        self._news: dict[bytes, task_pb2.Transition] = {}
        self._changed = asyncio.Event()

    def offer(self, row: Task, changed_at: int | None) -> None:
        """The task as it stands; kept if it is newer than what the stream was told."""
        if row.version <= self._seen.get(row.task_id, 0):
            return
        self._seen[row.task_id] = row.version
        self._news.pop(row.task_id, None)
        self._news[row.task_id] = transition(row, changed_at)
        if row.terminal:
            self.open.discard(row.task_id)
        self._changed.set()

    def gone(self, task_id: bytes) -> None:
        """The task is past its retention; so it was terminal."""
        self.open.discard(task_id)
        self._changed.set()

    def end(self) -> None:
        """The server stops."""
        self.ended = True
        self._changed.set()

    async def next(self) -> list[task_pb2.Transition]:
        """Wait for news; may be empty when only `open` or `ended` changed."""
        await self._changed.wait()
        self._changed.clear()
        news = list(self._news.values())
        self._news.clear()
        return news


def transition(row: Task, changed_at: int | None) -> task_pb2.Transition:
    """Where a task stands, as a transition; `changed_at` is used where the row has no time of it."""
    reason = row.status_reason or ""
    if not reason and row.status in (Status.PENDING, Status.FAILED):
        reason = row.error_message or ""
    message = task_pb2.Transition(
        task_id=text_of(row.task_id),
        status=task_pb2.TaskStatus.ValueType(row.status),
        version=row.version,
        attempts=row.attempts,
        worker_id=row.worker_id or "",
        status_reason=cut(reason, REASON_BYTES),
    )
    at = changed_at
    if row.version == 1:
        at = row.created_at
    elif row.terminal:
        at = row.completed_at
    elif row.status is Status.RUNNING:
        at = row.started_at
    elif row.status is Status.READY:
        at = row.ready_at
    if at is not None:
        message.transition_time.CopyFrom(timestamp(at))
    return message


class Watcher(Service):
    """Reads watched tasks on hints and every second, and tells the streams."""

    name = "watch"

    def __init__(
        self, engine: Engine, store: TaskStore, clock: Clock, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        super().__init__(clock)
        self._store = store
        self._limits = limits
        self._watched: dict[bytes, set[Subscription]] = {}
        self._subscriptions: set[Subscription] = set()
        self._hinted: set[bytes] = set()
        self._poll: list[bytes] = []  # what is left of the poll under way
        self._poll_at = 0
        self._part_at = 0
        self._ended = False
        engine.effects.changed.append(self._hint)

    async def watch(
        self, ids: Sequence[bytes], namespace: str, *, until_terminal: bool
    ) -> AsyncIterator[list[task_pb2.Transition]]:
        """Where each task stands, then each change, in lists."""
        subscription = self._subscribe(ids)
        try:
            await self._begin(subscription, namespace)
            while True:
                news = await subscription.next()
                if news:
                    yield news
                if until_terminal and not subscription.open:
                    return
                if subscription.ended:
                    raise self._server_stops()
        finally:
            self._unsubscribe(subscription)

    def end_all(self) -> None:
        """Tell every stream that the server stops; new ones are refused."""
        self._ended = True
        for subscription in self._subscriptions:
            subscription.end()

    async def stop(self) -> None:
        """End the streams, then the loop."""
        self.end_all()
        await super().stop()

    async def run_once(self) -> int | None:
        """Read what was hinted at; all that is watched once a second."""
        now = self.clock.now()
        hinted, self._hinted = self._hinted, set()
        ids = list(hinted)
        if not self._poll and now >= self._poll_at:
            self._poll_at = now + POLL_MS
            self._poll = [
                task_id
                for task_id, streams in self._watched.items()
                if any(task_id in stream.open for stream in streams)
            ]
            self._part_at = now
        if self._poll and now >= self._part_at:
            self._part_at = now + PART_MS
            ids += self._poll[-PART:]
            del self._poll[-PART:]
        for start in range(0, len(ids), LOAD):
            await self._read(ids[start : start + LOAD])
            await asyncio.sleep(0)  # a store need not suspend
        if not self._watched:
            return None
        return self._part_at if self._poll else self._poll_at

    async def _read(self, ids: Sequence[bytes]) -> None:
        rows = await self._store.load(ids)
        now = self.clock.now()
        for task_id, row in zip(ids, rows, strict=True):
            for subscription in self._watched.get(task_id, ()):
                if row is None:
                    subscription.gone(task_id)
                else:
                    subscription.offer(row, now)

    def _hint(self, ids: Sequence[bytes]) -> None:
        """Some tasks changed; called for every batch of the engine, so it is quick to say no."""
        watched = self._watched
        if watched:
            hit = [task_id for task_id in ids if task_id in watched]
            if hit:
                self._hinted.update(hit)
                self.wake.set()

    async def _begin(self, subscription: Subscription, namespace: str) -> None:
        """Subscribed before it is read, so that no change falls in between."""
        rows = await self._store.load(subscription.ids, namespace=namespace)
        for task_id, row in zip(subscription.ids, rows, strict=True):
            if row is None:
                raise unknown_task(task_id)
        for row in rows:
            if row is not None:
                subscription.offer(row, None)

    def _subscribe(self, ids: Sequence[bytes]) -> Subscription:
        if self._ended:
            raise self._server_stops()
        if len(self._subscriptions) >= self._limits.watches:
            raise ResourceExhausted(
                "QUOTA_EXCEEDED",
                f"this server has {self._limits.watches} watches, as many as it may",
                metadata={"quota": "watches", "limit": str(self._limits.watches)},
                retry_after_ms=RETRY_MS,
            )
        subscription = Subscription(ids)
        self._subscriptions.add(subscription)
        for task_id in subscription.ids:
            self._watched.setdefault(task_id, set()).add(subscription)
        self.wake.set()
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)
        for task_id in subscription.ids:
            others = self._watched.get(task_id)
            if others is not None:
                others.discard(subscription)
                if not others:
                    del self._watched[task_id]

    @staticmethod
    def _server_stops() -> Unavailable:
        return Unavailable(
            "SERVER_DRAINING",
            "the server is stopping; watch again, on another server",
            retry_after_ms=RETRY_MS,
        )
