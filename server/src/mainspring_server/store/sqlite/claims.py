"""READY -> RUNNING: by reference, or chosen from the lanes."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from itertools import islice
from operator import itemgetter

from ...domain.leases import Grant, Want
from ...domain.task import ReadyRef
from ..port import CLAIM_BYTES
from .rows import Row, by_ids, update_by

# A grant as it will stand after the claim but for the worker, then what the
# choice needs.
_GRANT = (
    "SELECT t.task_id, t.version + 1, NULL, {lane}, t.task_type, t.attempts + 1, t.max_attempts, "
    "t.due_at, ?, coalesce(p.kind, 0), coalesce(p.body, x''), p.metadata, t.checkpoint, "
    "t.trace_context, t.run_ms, t.rule IS NOT NULL, t.nominal_at, t.seq, t.priority, t.status "
    "FROM tasks t LEFT JOIN payloads p ON p.seq = t.seq"
)
_BODY = 10
_TOKEN, _DUE, _RUN, _SEQ, _PRIORITY, _STATUS = 1, 7, 14, 17, 18, 19
_by_turn = itemgetter(_PRIORITY, _DUE, _SEQ)

_BY_ID = _GRANT.format(lane="t.namespace || '/' || t.queue")
_BY_LANE = (
    f"{_GRANT.format(lane='?')} WHERE t.status = 3 AND t.namespace = ? AND t.queue = ? "
    "AND t.priority BETWEEN ? AND ? ORDER BY t.priority, t.due_at, t.seq LIMIT ?"
)

# next_check_at is left out where it stays: naming it would rewrite its index.
_CLAIM = (
    "UPDATE tasks SET status = 4, version = version + 1, attempts = attempts + 1, "
    "worker_id = ?, started_at = ?, lease_expires_at = ?, lease_acked = ?, progress = NULL, "
    "progress_message = NULL WHERE seq"
)
_LIMIT_RUN = (
    "UPDATE tasks SET next_check_at = ?1 WHERE seq = ?2 "
    "AND (next_check_at IS NULL OR next_check_at > ?1)"
)

HIGHEST, LOWEST = 0, 9
"""The bounds of a priority; lower is sooner."""


def claim(db: sqlite3.Connection, now: int, refs: Sequence[ReadyRef], want: Want) -> list[Grant]:
    """See TaskStore.claim."""
    ids = [ref.task_id for ref in refs]
    found = {row[0]: row for row in by_ids(db, _BY_ID, ids, before=(now + want.lease_ms,))}
    rows = []
    for ref in refs:
        row = found.pop(ref.task_id, None)
        if (
            row is not None
            and row[_STATUS] == 3
            and row[_TOKEN] == ref.version + 1
            and row[_DUE] <= now
        ):
            rows.append(row)
    return _grant(db, now, rows, want)


def claim_lanes(db: sqlite3.Connection, now: int, wants: Sequence[Want], turn: int) -> list[Grant]:
    """See TaskStore.claim_lanes."""
    first = _first_priority(turn)
    grants: list[Grant] = []
    left = CLAIM_BYTES
    for want in wants:
        room = sum(seat.room for seat in want.seats)
        rows = _choose(db, now, want, (first, LOWEST), (room, left))
        left -= _weight(rows)
        if first > HIGHEST:  # what is more urgent gets the rest
            more = _choose(db, now, want, (HIGHEST, first - 1), (room - len(rows), left))
            left -= _weight(more)
            rows += more
        grants += _grant(db, now, rows, want)
    return grants


def _weight(rows: list[Row]) -> int:
    return sum(len(row[_BODY]) for row in rows)


def _first_priority(turn: int) -> int:
    """The starvation guard: where this turn begins."""
    if turn % 32 == 0:
        return 7
    return 4 if turn % 8 == 0 else HIGHEST


def _choose(
    db: sqlite3.Connection, now: int, want: Want, span: tuple[int, int], most: tuple[int, int]
) -> list[Row]:
    """Rows of the want's lanes by (priority, due_at), at `most` so many and so many bytes.

    It takes as many index steps as rows; the last row may pass the bytes.
    """
    room, left = most
    if room <= 0 or left <= 0:
        return []
    lanes = [
        _lane_rows(db, now, (lane, now + want.lease_ms), span, room)
        for lane in dict.fromkeys(want.lanes)
    ]
    rows: Iterable[Row] = lanes[0] if len(lanes) == 1 else heapq.merge(*lanes, key=_by_turn)
    chosen = []
    for row in islice(rows, room):
        chosen.append(row)
        left -= len(row[_BODY])
        if left <= 0:
            break
    for lane in lanes:
        lane.close()
    return chosen


def _lane_rows(
    db: sqlite3.Connection, now: int, terms: tuple[str, int], span: tuple[int, int], room: int
) -> Generator[Row, None, None]:
    lane, expires_at = terms
    namespace, _, queue = lane.partition("/")
    priority, last = span
    while priority <= last:
        values = (lane, expires_at, namespace, queue, priority, last, room)
        with closing(db.execute(_BY_LANE, values)) as cursor:
            for row in cursor:
                if row[_DUE] > now:  # readied ahead; so are all behind it of this priority
                    priority = row[_PRIORITY] + 1
                    break
                yield row
            else:
                return


def _grant(db: sqlite3.Connection, now: int, rows: Iterable[Row], want: Want) -> list[Grant]:
    """Fill the seats in order with the rows and write it down."""
    workers = (seat.worker_id for seat in want.seats for _ in range(seat.room))
    grants: list[Grant] = []
    taken: dict[str, list[int]] = {}
    limits: list[Row] = []
    for row, worker_id in zip(rows, workers, strict=False):
        grants.append(Grant(row[0], row[1], worker_id, *row[3:_SEQ]))
        taken.setdefault(worker_id, []).append(row[_SEQ])
        if row[_RUN] is not None:
            limits.append((now + row[_RUN], row[_SEQ]))
    for worker_id, seqs in taken.items():
        update_by(db, _CLAIM, (worker_id, now, now + want.lease_ms, int(want.acked)), seqs)
    if limits:
        db.executemany(_LIMIT_RUN, limits)
    return grants
