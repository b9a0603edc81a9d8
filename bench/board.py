"""Memory that the bench shares with its workers: how far they are, and when handlers started.

A file mapped into every process. Writing to it costs a handler less than a microsecond, so that
measuring does not become a part of what is measured.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Iterator
from pathlib import Path

WORKERS = 64
_COUNTERS = struct.Struct("=qqqq")
_STAMP = struct.Struct("=qq")
_HEADER = WORKERS * _COUNTERS.size


class Board:
    """Counters of up to 64 worker processes, and a stamp for each task by its number."""

    def __init__(self, path: Path, tasks: int) -> None:
        self.path = path
        self.tasks = tasks
        size = _HEADER + max(tasks, 1) * _STAMP.size
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(size)
            self._memory = mmap.mmap(file.fileno(), size)

    def close(self) -> None:
        """Unmap it; the file stays."""
        self._memory.close()

    def clear(self) -> None:
        """Forget all stamps."""
        self._memory[_HEADER:] = bytes(len(self._memory) - _HEADER)

    # --- the workers' side ---

    def stamp(self, number: int) -> None:
        """Note that the handler of a task starts now."""
        at = _HEADER + number * _STAMP.size
        _STAMP.pack_into(self._memory, at, time.monotonic_ns(), time.time_ns())

    def count(self, worker: int, ended: int, sent: int, received: int) -> None:
        """Note how many tasks of a worker are stored as ended, and the frames of its stream."""
        at = worker * _COUNTERS.size
        before = _COUNTERS.unpack_from(self._memory, at)
        since = before[1] if before[0] == ended else time.monotonic_ns()
        _COUNTERS.pack_into(self._memory, at, ended, since, sent, received)

    # --- the bench's side ---

    def ended(self) -> int:
        """How many tasks the workers know to be stored as ended."""
        return sum(row[0] for row in self._rows())

    def ended_at(self) -> int:
        """When the last of them was noted: monotonic nanoseconds, to within 10 ms."""
        return max(row[1] for row in self._rows())

    def frames(self) -> int:
        """Messages of the workers' streams, both ways, if they count them."""
        return sum(row[2] + row[3] for row in self._rows())

    def stamps(self, first: int = 0, count: int | None = None) -> list[tuple[int, int]]:
        """(monotonic ns, wall ns) by task number; (0, 0) where no handler has started."""
        last = self.tasks if count is None else first + count
        view = memoryview(self._memory)[_HEADER:]
        try:
            return list(_STAMP.iter_unpack(view[first * _STAMP.size : last * _STAMP.size]))
        finally:
            view.release()

    def _rows(self) -> Iterator[tuple[int, ...]]:
        for worker in range(WORKERS):
            yield _COUNTERS.unpack_from(self._memory, worker * _COUNTERS.size)
