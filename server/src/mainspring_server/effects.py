"""What follows a write that is stored: hints to wheel and ready queue, news to listeners.

Nothing here decides anything. A hint that fails is logged and left to the sweeper, which finds the
row through its `next_check_at`; the caller's answer never depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from .clock import Clock
from .domain.leases import LeaseRef
from .domain.lifecycle import Change
from .domain.task import (
    Inserted,
    InsertState,
    NewTask,
    ReadyRef,
    Status,
    Task,
    Written,
    lane_of,
)
from .queue.port import ReadyQueue
from .store.port import DueEntry
from .wheel.port import Wheel

log = logging.getLogger(__name__)

Listener = Callable[[Sequence[bytes]], None]
Cancelled = Callable[[Sequence[tuple[LeaseRef, str]]], None]


class Effects:
    """Passes on what was stored. Listeners are called with the ids of whole batches."""

    def __init__(self, wheel: Wheel, queue: ReadyQueue, clock: Clock) -> None:
        self._wheel = wheel
        self._queue = queue
        self._clock = clock
        self.changed: list[Listener] = []
        """Tasks whose row changed."""
        self.ended: list[Listener] = []
        """Tasks that are terminal and have dependents to be told."""
        self.cancelled: list[Cancelled] = []
        """Leases of running tasks that were cancelled, with the reason."""

    async def added(self, tasks: Sequence[NewTask], answers: Sequence[Inserted]) -> None:
        """New tasks that are stored: what is due now to the ready queue, the rest to the wheel."""
        ready: list[ReadyRef] = []
        later: list[DueEntry] = []
        for task, answer in zip(tasks, answers, strict=True):
            if answer.state is not InsertState.INSERTED:
                continue
            if task.status is Status.READY:
                ready.append(
                    ReadyRef(
                        task.task_id, 1, task.lane, task.priority, answer.due_at, task.created_at
                    )
                )
            elif task.status is Status.PENDING:
                later.append(DueEntry(answer.due_at, task.priority, task.task_id))
        await self.publish(ready)
        await self.add(later)
        self.tell([task.task_id for task in tasks])

    async def follow(self, changes: Sequence[Change], before: dict[bytes, Task]) -> None:
        """What follows from changes that are stored."""
        now = self._clock.now()
        ready, later, lost = [], [], []
        for change in changes:
            row = before[change.task_id]
            if change.status is Status.READY:
                ready.append(
                    ReadyRef(
                        row.task_id,
                        change.version + 1,
                        lane_of(row.namespace, row.queue),
                        row.priority,
                        change.due_at,
                        now,
                    )
                )
            elif change.status is Status.PENDING:
                later.append(DueEntry(change.due_at, row.priority, row.task_id))
            elif change.status is Status.CANCELLED and row.status is Status.RUNNING:
                lost.append((LeaseRef(row.task_id, row.version), change.status_reason or ""))
        await self.publish(ready)
        await self.add(later)
        if lost:
            for listener in self.cancelled:
                listener(lost)
        self.tell([change.task_id for change in changes])

    async def publish(self, refs: Sequence[ReadyRef]) -> None:
        """READY tasks to the dispatchers."""
        if refs:
            try:
                await self._queue.publish(refs)
            except Exception:
                log.warning(
                    "%d ready tasks were not published; the sweeper will", len(refs), exc_info=True
                )

    async def add(self, entries: Sequence[DueEntry]) -> None:
        """PENDING tasks to the wheel."""
        if entries:
            try:
                await self._wheel.add(entries)
            except Exception:
                log.warning(
                    "%d tasks did not reach the wheel; the pager will", len(entries), exc_info=True
                )

    def tell_dependents(self, ids: Iterable[bytes], written: Sequence[Written]) -> None:
        """Name those that ended and have dependents to whoever resolves them."""
        ended = [i for i, state in zip(ids, written, strict=True) if state is Written.TELL]
        if ended:
            for listener in self.ended:
                listener(ended)

    def tell(self, ids: Iterable[bytes]) -> None:
        """Rows that changed, to whoever watches."""
        if self.changed:
            listed = list(ids)
            if listed:
                for listener in self.changed:
                    listener(listed)
