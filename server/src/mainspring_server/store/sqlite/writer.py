"""Group commit: the calls that wait share one transaction and one flush to disk.

Statements run on the event loop's thread, only the COMMIT with its flush runs in another. The
driver gives the interpreter's lock up at every row it steps over; on a thread of its own it would
then wait for that lock up to the switch interval of 5 ms a row whenever the loop is busy, which is
measured at 5 ms a task instead of 10 us. While a commit is under way the loop goes on, and what
arrives makes the next group.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...clock import Clock
from .connection import is_operational, open_checkpointer, unavailable
from .threads import SerialThread

R = TypeVar("R")

Work = Callable[[sqlite3.Connection, int], R]
"""One call of the port: (connection inside a transaction, the store's now) -> answer."""

GROUP_ITEMS = 4_000
"""Items of one transaction; a call that is larger than that has one of its own."""

YIELD_ITEMS = 1_000
"""Items after which the loop gets a turn in the middle of a group."""

CHECKPOINT_ITEMS = 4_000
CHECKPOINT_COMMITS = 200


@dataclass(slots=True)
class _Call:
    work: Work[Any]
    items: int
    answer: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None

    def settle(self) -> None:
        if self.answer.done():  # its caller was cancelled; what it asked for is done all the same
            return
        if self.error is None:
            self.answer.set_result(self.result)
        else:
            self.answer.set_exception(self.error)


class Writer:
    """Runs calls in groups; owns the writing connection between `start` and `stop`."""

    def __init__(self, path: str, db: sqlite3.Connection, clock: Clock) -> None:
        self._path = path
        self._db = db
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Call] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._committer = SerialThread("sqlite-commit")
        self._checkpointer = SerialThread("sqlite-checkpoint")
        self._checkpoints = open_checkpointer(path)
        self._checkpoint: asyncio.Future[None] | None = None
        self._items_since = 0
        self._commits_since = 0

    def run(self, work: Work[R], items: int) -> asyncio.Future[R]:
        """The answer of `work` once it is durable; `items` is the size of its batch."""
        answer: asyncio.Future[R] = self._loop.create_future()
        self._waiting.append(_Call(work, items, answer))
        if self._pump is None:
            self._pump = self._loop.create_task(self._drain())
        return answer

    async def stop(self) -> None:
        """Commit what waits, then stop the threads; the connection stays with the caller."""
        while self._pump is not None:
            await asyncio.wait({self._pump})
        await self._committer.stop()
        await self._checkpointer.stop()
        self._checkpoints.close()

    async def _drain(self) -> None:
        try:
            while self._waiting:
                group = self._next_group()
                try:
                    await self._transact(group)
                except Exception as error:  # noqa: BLE001 - every caller gets its answer
                    self._abandon(group, error)
                for call in group:
                    call.settle()
                self._consider_checkpoint(sum(call.items for call in group))
        finally:
            self._pump = None

    def _next_group(self) -> list[_Call]:
        group = [self._waiting.popleft()]
        room = GROUP_ITEMS - group[0].items
        while self._waiting and self._waiting[0].items <= room:
            group.append(self._waiting.popleft())
            room -= group[-1].items
        return group

    async def _transact(self, group: list[_Call]) -> None:
        before = self._db.total_changes
        self._db.execute("BEGIN IMMEDIATE")
        since_turn = 0
        for call in group:
            if since_turn + call.items > YIELD_ITEMS and since_turn:
                await asyncio.sleep(0)
                since_turn = 0
            since_turn += call.items
            self._attempt(call, alone=len(group) == 1)
        if self._db.total_changes == before:
            self._db.execute("COMMIT")  # nothing to flush
            return
        await self._committer.submit(self._commit)
        self._commits_since += 1

    def _attempt(self, call: _Call, *, alone: bool) -> None:
        """Run one call so that its failure undoes nothing but itself."""
        if not alone:
            self._db.execute("SAVEPOINT one_call")
        try:
            call.result = call.work(self._db, self._clock.now())
        except Exception as error:
            if not self._db.in_transaction:
                raise  # SQLite rolled everything back: a full disk, a broken file
            if is_operational(error):
                error = unavailable(self._path, error)
            call.error = error
            self._db.execute("ROLLBACK" if alone else "ROLLBACK TO one_call")
            if alone:
                self._db.execute("BEGIN IMMEDIATE")
        if not alone:
            self._db.execute("RELEASE one_call")

    def _commit(self) -> None:
        self._db.execute("COMMIT")

    def _abandon(self, group: list[_Call], error: Exception) -> None:
        if is_operational(error):
            error = unavailable(self._path, error)
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        for call in group:
            call.error = call.error or error

    def _consider_checkpoint(self, items: int) -> None:
        """Copy the log back now and then, beside the writer, so that no commit has to."""
        self._items_since += items
        if self._items_since < CHECKPOINT_ITEMS and self._commits_since < CHECKPOINT_COMMITS:
            return
        if self._checkpoint is not None and not self._checkpoint.done():
            return
        self._items_since = 0
        self._commits_since = 0
        self._checkpoint = self._checkpointer.submit(self._copy_log_back)

    def _copy_log_back(self) -> None:
        try:
            self._checkpoints.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error:
            return  # the log keeps everything; the next turn, or the writer itself, copies it
