"""READY -> RUNNING: by reference (what a dispatcher read from the ready queue) or by lane."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...domain.leases import Grant, Seat, Want
from ...domain.task import SHARDS, ReadyRef, Status
from .pool import Door
from .rows import AT, NOW, READY

if TYPE_CHECKING:
    from .pool import Record

_SET = f"""status = 4, version = t.version + 1, attempts = t.attempts + 1, worker_id = u.worker,
    started_at = {AT}, lease_expires_at = {AT} + u.lease_ms, lease_acked = u.acked,
    progress = NULL, progress_message = NULL,
    next_check_at = CASE WHEN t.run_ms IS NULL THEN t.next_check_at
        ELSE least(t.next_check_at, {AT} + t.run_ms) END"""

_GRANT = """t.task_id, t.version, t.worker_id, t.namespace || '/' || t.queue, t.task_type,
    t.attempts, t.max_attempts, t.due_at, t.lease_expires_at,
    coalesce(p.kind, 0::smallint), coalesce(p.body, ''::bytea), p.metadata,
    t.checkpoint, t.trace_context, t.run_ms, t.rule IS NOT NULL, t.nominal_at"""

CLAIM = f"""WITH {NOW}
UPDATE tasks t SET {_SET}
FROM (SELECT task_id, version, worker, $5::bigint AS lease_ms, $6::boolean AS acked
      FROM unnest($2::uuid[], $3::bigint[], $4::text[]) AS r(task_id, version, worker)) u
    LEFT JOIN task_payloads p ON p.task_id = u.task_id
WHERE t.task_id = u.task_id AND t.version = u.version AND {READY} AND t.due_at <= {AT}
RETURNING {_GRANT}"""

CLAIM_LANES = f"""WITH {NOW}, picked AS MATERIALIZED (
    SELECT l.want, r.task_id, r.version, r.priority, r.due_at
    FROM unnest($2::integer[], $3::text[], $4::text[], $5::bigint[])
            AS l(want, namespace, queue, room),
        LATERAL (
            SELECT q.task_id, q.version, q.priority, q.due_at FROM tasks q
            WHERE q.status = 3 AND q.namespace = l.namespace AND q.queue = l.queue
                AND q.priority >= $6::smallint AND q.due_at <= {AT}
            ORDER BY q.priority, q.due_at LIMIT l.room FOR UPDATE SKIP LOCKED) r
), numbered AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY want ORDER BY priority, due_at, task_id) AS place
    FROM picked
), chosen AS MATERIALIZED (
    SELECT n.task_id, n.version, n.want, n.place, s.worker, s.lease_ms, s.acked
    FROM numbered n
    JOIN unnest($7::integer[], $8::bigint[], $9::bigint[], $10::text[], $11::bigint[],
            $12::boolean[]) AS s(want, above, upto, worker, lease_ms, acked)
        ON s.want = n.want AND n.place > s.above AND n.place <= s.upto
    ORDER BY n.task_id
)
UPDATE tasks t SET {_SET}
FROM chosen u LEFT JOIN task_payloads p ON p.task_id = u.task_id
WHERE t.task_id = u.task_id AND t.version = u.version AND {READY}
RETURNING {_GRANT}, u.want, u.place"""

WINDOW = """SELECT task_id, shard, next_check_at, status, version, namespace || '/' || queue,
    priority, due_at
FROM tasks WHERE next_check_at IS NOT NULL AND shard >= $1 AND (shard, next_check_at) >= ($1, $2)
    AND (shard, next_check_at, task_id) > ($1, $2, $3)
ORDER BY shard, next_check_at, task_id LIMIT $4"""

WINDOW_ROWS = 1000
WINDOWS = 8
"""A scan without a ready index looks at so many windows a call, at most."""

_READY = int(Status.READY)


def _workers(seats: Sequence[Seat]) -> Iterator[str]:
    for worker_id, room in seats:
        for _ in range(room):
            yield worker_id


def _room(want: Want) -> int:
    return sum(seat.room for seat in want.seats)


def floor_of(turn: int) -> int:
    """The priority that this turn serves first (the starvation guard)."""
    if turn % 32 == 0:
        return 7
    return 4 if turn % 8 == 0 else 0


async def claim(door: Door, clock: int | None, refs: Sequence[ReadyRef], want: Want) -> list[Grant]:
    """The store's `claim`; the answer is in the order of `refs`."""
    taken = sorted(
        (ref.task_id, ref.version, worker)
        for ref, worker in zip(refs, _workers(want.seats), strict=False)
    )
    if not taken:
        return []
    ids, versions, workers = zip(*taken, strict=True)
    rows = await door.rows(CLAIM, clock, ids, versions, workers, want.lease_ms, want.acked)
    grants = {row[0]: Grant(*row) for row in rows}
    return [grants.pop(ref.task_id) for ref in refs if ref.task_id in grants]


def _rounds(wants: Sequence[Want]) -> list[list[Want]]:
    """Wants in groups without a common lane: one statement picks a row for one want only.

    Wants for the same lanes on the same terms are one want with more seats.
    """
    merged: dict[tuple[object, ...], Want] = {}
    for want in wants:
        terms = (want.lanes, want.lease_ms, want.acked)
        known = merged.get(terms)
        merged[terms] = want if known is None else want._replace(seats=known.seats + want.seats)
    rounds: list[tuple[set[str], list[Want]]] = []
    for want in merged.values():
        lanes = set(want.lanes)
        for taken, group in rounds:
            if not taken & lanes:
                taken.update(lanes)
                group.append(want)
                break
        else:
            rounds.append((lanes, [want]))
    return [group for _, group in rounds]


def _left(want: Want, grants: Sequence[Grant]) -> Want:
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


async def claim_lanes(
    door: Door, clock: int | None, wants: Sequence[Want], turn: int
) -> list[Grant]:
    """The store's `claim_lanes` where the ready index exists."""
    found: list[Grant] = []
    floor = floor_of(turn)
    for group in _rounds([want for want in wants if want.lanes and _room(want)]):
        grants: list[list[Grant]] = [[] for _ in group]
        if floor:
            grants = await _pick(door, clock, group, floor)
        left = [_left(want, granted) for want, granted in zip(group, grants, strict=True)]
        for granted, more in zip(grants, await _pick(door, clock, left, 0), strict=True):
            found += granted
            found += more
    return found


async def _pick(
    door: Door, clock: int | None, wants: Sequence[Want], floor: int
) -> list[list[Grant]]:
    lanes: list[tuple[int, str, str, int]] = []
    seats: list[tuple[int, int, int, str, int, bool]] = []
    for number, want in enumerate(wants):
        room = 0
        for seat in want.seats:
            terms = (seat.worker_id, want.lease_ms, want.acked)
            seats.append((number, room, room + seat.room, *terms))
            room += seat.room
        if room:
            for lane in dict.fromkeys(want.lanes):
                namespace, _, queue = lane.partition("/")
                lanes.append((number, namespace, queue, room))
    grants: list[list[Grant]] = [[] for _ in wants]
    if lanes:
        rows = await door.rows(
            CLAIM_LANES, clock, *zip(*lanes, strict=True), floor, *zip(*seats, strict=True)
        )
        for row in sorted(rows, key=_place):
            grants[row[-2]].append(Grant(*row[:-2]))
    return grants


def _place(row: Record) -> tuple[int, int]:
    return row[-2], row[-1]


_Key = tuple[int, int, bytes]
_BEGINNING: _Key = (0, 0, bytes(16))


def _key(row: Record) -> _Key:
    return row[1], row[2], row[0]


class LaneScan:
    """Claims by lane without a ready index, on a distributed rung that fell down the ladder.

    Every row that still lives has a next_check_at, so its index leads to every READY row, also to
    those of before the fall. A call looks at a bounded number of them from where the last one
    stopped, and takes what fits by (priority, due_at) within each window.
    """

    def __init__(self, door: Door) -> None:
        self._door = door
        # Stores that scan at the same time begin at different shards.
        self._start: _Key = (os.urandom(1)[0] % SHARDS, 0, bytes(16))

    async def claim(self, clock: int | None, wants: Sequence[Want], turn: int) -> list[Grant]:
        """The store's `claim_lanes`."""
        found: list[Grant] = []
        left = [want for want in wants if want.lanes and _room(want)]
        floor = floor_of(turn)
        for _ in range(WINDOWS):
            if not left:
                break
            rows, whole = await self._window()
            ready = sorted(
                (priority < floor, priority, due_at, task_id, version, lane)
                for task_id, _, _, status, version, lane, priority, due_at in rows
                if status == _READY
            )
            left, granted = await self._fill(clock, left, ready)
            found += granted
            if whole:
                break
        return found

    async def _window(self) -> tuple[list[Record], bool]:
        """The next rows, past the end from the beginning on; and whether that is all there are."""
        start = self._start
        rows = await self._door.rows(WINDOW, *start, WINDOW_ROWS)
        room = WINDOW_ROWS - len(rows)
        if start == _BEGINNING or not room:
            self._start = _BEGINNING if room else _key(rows[-1])
            return rows, room > 0
        head = await self._door.rows(WINDOW, *_BEGINNING, room)
        self._start = _BEGINNING if len(head) < room else _key(head[-1])
        return [*rows, *(row for row in head if _key(row) <= start)], len(head) < room

    async def _fill(
        self,
        clock: int | None,
        wants: Sequence[Want],
        ready: list[tuple[bool, int, int, bytes, int, str]],
    ) -> tuple[list[Want], list[Grant]]:
        """Claim what fits; answers the wants that have seats left, and the grants."""
        granted: list[Grant] = []
        left = []
        for want in wants:
            lanes = set(want.lanes)
            rest = want
            refs = [
                ReadyRef(task_id, version, lane, priority, due_at, 0)
                for _, priority, due_at, task_id, version, lane in ready
                if lane in lanes
            ]
            while refs and (room := _room(rest)):
                grants = await claim(self._door, clock, refs[:room], rest)
                granted += grants
                rest = _left(rest, grants)
                refs = refs[room:]
            if _room(rest):
                left.append(rest)
        return left, granted
