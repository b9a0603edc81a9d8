"""What a dispatcher has read and not claimed yet: pure bookkeeping, no I/O.

Tasks come in pieces (the rest of one record). A piece whose next task is due waits with the ready
ones, oldest published first; one that is not due waits in a heap by due time and lets what is due
now go past. A record is settled when every task of it was claimed or found stale; the lowest
record that is not settled is the offset to commit.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from ...domain.task import ReadyRef
from .names import BANDS
from .protocol import Topic
from .records import Chunk

SKEW_MS = 250
"""A task refused so shortly after its due time may be early by the store's clock: once more."""

GUARD_TURNS = (8, 32)
"""Every 8th turn takes first from the middle band, every 32nd from the last."""

_BY_DUE = attrgetter("due_at")


@dataclass(slots=True, eq=False)
class Record:
    """A record of which `left` tasks are not settled."""

    offset: int
    left: int


@dataclass(slots=True, eq=False)
class Partition:
    """A partition that this node reads. `end` is the highest offset known to exist."""

    topic: Topic
    number: int
    lane: str
    band: int
    next_offset: int
    committed: int
    end: int
    records: deque[Record] = field(default_factory=deque)
    open: bool = True
    failing: bool = False
    fetching: bool = False

    def position(self) -> int:
        """The lowest offset that is not settled."""
        records = self.records
        while records and not records[0].left:
            records.popleft()
        return records[0].offset if records else self.next_offset

    def unclaimed(self) -> int:
        """Tasks read and not settled."""
        return sum(record.left for record in self.records)


@dataclass(slots=True, eq=False)
class Piece:
    """Tasks of one record from `start` on, by due time where any of them must wait."""

    partition: Partition
    record: Record
    refs: list[ReadyRef]
    published_at: int
    start: int = 0
    again: bool = False  # held back once already for a difference of clocks


@dataclass(frozen=True, slots=True)
class Taken:
    """Tasks handed out for a claim: `refs` of one piece."""

    piece: Piece
    refs: Sequence[ReadyRef]


Entry = tuple[int, int, Piece]


class LaneBuffer:
    """The pieces of one lane, by band."""

    def __init__(self) -> None:
        self.ready: list[list[Entry]] = [[] for _ in range(BANDS)]
        self.later: list[list[Entry]] = [[] for _ in range(BANDS)]
        self.counts = [0] * BANDS  # tasks in ready pieces
        self.held = 0  # tasks in pieces that wait for their due time

    @property
    def count(self) -> int:
        """Tasks that could be claimed now."""
        return sum(self.counts)

    def next_due(self) -> int | None:
        """When the next waiting piece is due."""
        heads = [heap[0][0] for heap in self.later if heap]
        return min(heads) if heads else None


class Buffer:
    """The pieces of every lane."""

    def __init__(self) -> None:
        self.lanes: dict[str, LaneBuffer] = {}
        self._order = itertools.count()
        self._turn = 0

    def add(self, partition: Partition, offset: int, chunk: Chunk, now: int) -> None:
        """A record was read."""
        record = Record(offset, len(chunk.refs))
        partition.records.append(record)
        refs = chunk.refs
        if chunk.due_at > now:
            refs.sort(key=_BY_DUE)
        self._put(Piece(partition, record, refs, chunk.published_at), now)

    def _put(self, piece: Piece, now: int) -> None:
        lane = self.lanes.setdefault(piece.partition.lane, LaneBuffer())
        band, size = piece.partition.band, len(piece.refs) - piece.start
        if size <= 0:
            return
        due_at = piece.refs[piece.start].due_at
        if due_at > now:
            heapq.heappush(lane.later[band], (due_at, next(self._order), piece))
            lane.held += size
        else:
            heapq.heappush(lane.ready[band], (piece.published_at, next(self._order), piece))
            lane.counts[band] += size

    def ripen(self, now: int) -> list[str]:
        """Move pieces whose next task has fallen due to the ready ones; answers their lanes."""
        moved = []
        for name, lane in self.lanes.items():
            for heap in lane.later:
                while heap and heap[0][0] <= now:
                    piece = heapq.heappop(heap)[2]
                    lane.held -= len(piece.refs) - piece.start
                    if piece.partition.open:
                        self._put(piece, now)
                        moved.append(name)
        return moved

    def next_due(self) -> int | None:
        """When the next waiting piece is due."""
        dues = [due for lane in self.lanes.values() if (due := lane.next_due()) is not None]
        return min(dues) if dues else None

    def take(self, lanes: Collection[str], room: int, now: int) -> list[Taken]:
        """Up to `room` due tasks: strictly by band (but for the guard), oldest first in a band."""
        self._turn += 1
        self.ripen(now)
        bands = list(range(BANDS))
        for band, every in zip((1, 2), GUARD_TURNS, strict=True):
            if self._turn % every == 0:
                bands = [*range(band, BANDS), *range(band)]
        found = [self.lanes[name] for name in lanes if name in self.lanes]
        taken: list[Taken] = []
        for band in bands:
            room = self._take_band(found, band, room, now, taken)
            if not room:
                break
        return taken

    def _take_band(
        self, lanes: list[LaneBuffer], band: int, room: int, now: int, taken: list[Taken]
    ) -> int:
        while room:
            open_lanes = [lane for lane in lanes if lane.ready[band]]
            if not open_lanes:
                break
            lane = min(open_lanes, key=lambda found: found.ready[band][0][:2])
            piece = heapq.heappop(lane.ready[band])[2]
            lane.counts[band] -= len(piece.refs) - piece.start
            if not piece.partition.open:
                continue
            refs, start = piece.refs, piece.start
            stop = min(start + room, len(refs))
            if refs[stop - 1].due_at > now:  # then they are sorted by due time
                stop = bisect_right(refs, now, start, stop, key=_BY_DUE)
            part = refs[start:stop]
            piece.start = stop
            self._put(piece, now)
            taken.append(Taken(piece, part))
            room -= len(part)
        return room

    def settle(self, taken: Iterable[Taken], granted: Collection[bytes], now: int) -> None:
        """What was granted, or refused as stale, is done; what may only be early stays."""
        for piece, refs in ((item.piece, item.refs) for item in taken):
            early: list[ReadyRef] = []
            if not piece.again:
                early = [
                    ref for ref in refs if ref.due_at > now - SKEW_MS and ref.task_id not in granted
                ]
            piece.record.left -= len(refs) - len(early)
            if early and piece.partition.open:
                held = [ref._replace(due_at=now + SKEW_MS) for ref in early]
                self._put(
                    Piece(piece.partition, piece.record, held, piece.published_at, again=True), now
                )

    def put_back(self, taken: Iterable[Taken], now: int) -> None:
        """The claim failed: the tasks are as they were."""
        for item in taken:
            piece = item.piece
            if piece.partition.open:
                back = Piece(
                    piece.partition,
                    piece.record,
                    list(item.refs),
                    piece.published_at,
                    again=piece.again,
                )
                self._put(back, now)

    def drop(self, partitions: Collection[Partition]) -> None:
        """These are read no more by this node: forget what was read from them."""
        for partition in partitions:
            partition.open = False
        for lane in self.lanes.values():
            for heaps in (lane.ready, lane.later):
                for band, heap in enumerate(heaps):
                    kept = [entry for entry in heap if entry[2].partition.open]
                    if len(kept) != len(heap):
                        heapq.heapify(kept)
                        heaps[band] = kept
            lane.counts = [
                sum(len(piece.refs) - piece.start for _, _, piece in heap) for heap in lane.ready
            ]
            lane.held = sum(
                len(piece.refs) - piece.start for heap in lane.later for _, _, piece in heap
            )
        for name in [name for name, lane in self.lanes.items() if not (lane.count or lane.held)]:
            del self.lanes[name]
