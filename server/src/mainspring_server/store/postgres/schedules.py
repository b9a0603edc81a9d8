"""Schedules as rows: insert, load, which are due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...domain.schedule import Schedule
from ...domain.task import IdempotencyKey, Inserted, InsertState, Status, shard_of
from ..schedule_codec import Definition, decode, encode
from ..schedules import ScheduleKey
from .insert import HOLDERS
from .pool import Door, Session
from .rows import AT, CLOCK, NOW

if TYPE_CHECKING:
    from .pool import Record

# What a visit writes, in the order of their writing; `instances` and the definition are apart.
_STATE = {
    "version": "bigint",
    "settled_at": "bigint",
    "next_check_at": "bigint",
    "next_nominal_at": "bigint",
    "runs": "bigint",
    "paused_at": "bigint",
    "pause_note": "text",
    "resume_from": "bigint",
    "ended_at": "bigint",
    "end_reason": "text",
    "tz_version": "text",
    "labels": "text",
}
_NEW = {
    "schedule_id": "uuid",
    "namespace": "text",
    "created_at": "bigint",
    "shard": "smallint",
    "definition": "bytea",
} | _STATE
_SELECTED = f"""s.schedule_id, s.instances, s.definition, s.namespace, s.created_at,
    {", ".join(f"s.{name}" for name in _STATE)}"""


def _arrays(columns: dict[str, str], first: int) -> str:
    return ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(columns.values(), first))


LOAD = f"""SELECT {_SELECTED} FROM unnest($1::uuid[]) AS u(schedule_id)
JOIN schedules s ON s.schedule_id = u.schedule_id"""

# The clock is read behind the lock: a visit that waited for another one must not be earlier.
LOCK = f"""SELECT s.*, coalesce($1::bigint, {CLOCK}) FROM (
    SELECT {_SELECTED} FROM unnest($2::uuid[]) AS u(schedule_id)
    JOIN schedules s ON s.schedule_id = u.schedule_id FOR NO KEY UPDATE OF s) s"""

UPDATE = f"""UPDATE schedules s SET {", ".join(f"{name} = u.{name}" for name in _STATE)},
    instances = u.instances
FROM unnest($1::uuid[], $2::bytea[], {_arrays(_STATE, 3)})
    AS u(schedule_id, instances, {", ".join(_STATE)})
WHERE s.schedule_id = u.schedule_id"""

DEFINE = """UPDATE schedules s SET definition = u.definition
FROM unnest($1::uuid[], $2::bytea[]) AS u(schedule_id, definition)
WHERE s.schedule_id = u.schedule_id"""

# Keys are taken in digest order, so that two batches cannot wait for each other.
_TAKE = f"""WITH {NOW}
INSERT INTO idempotency_keys AS k (digest, task_id, expires_at, request_hash)
SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::bytea[])
    AS x(digest, task_id, expires_at, request_hash) ORDER BY digest
ON CONFLICT (digest) DO UPDATE SET task_id = excluded.task_id,
    expires_at = excluded.expires_at, request_hash = excluded.request_hash
WHERE k.expires_at <= {AT} OR k.digest = ANY($6::uuid[])
RETURNING k.digest"""

INSERT = f"""INSERT INTO schedules ({", ".join(_NEW)})
SELECT * FROM unnest({_arrays(_NEW, 1)}) ON CONFLICT (schedule_id) DO NOTHING"""

# Shards travel as a mask of 64 bits. Where other nodes own some, their rows are passed over.
_MINE = "(1::bigint << s.shard) & $2::bigint <> 0"

DUE = f"""WITH {NOW} SELECT s.schedule_id FROM schedules s
WHERE s.next_check_at <= {AT} AND {_MINE}
ORDER BY s.next_check_at, s.schedule_id LIMIT $3"""

OTHER_ZONES = """SELECT schedule_id FROM schedules
WHERE next_check_at IS NOT NULL AND tz_version <> $1 ORDER BY schedule_id LIMIT $2"""

NEXT = f"""SELECT s.next_check_at FROM schedules s
WHERE s.next_check_at IS NOT NULL AND {_MINE.replace("$2", "$1")} ORDER BY s.next_check_at LIMIT 1"""

DEFER = """UPDATE schedules s SET next_check_at = $2 FROM unnest($1::uuid[]) AS u(schedule_id)
WHERE s.schedule_id = u.schedule_id AND s.next_check_at IS NOT NULL"""

PURGE = """WITH gone AS (
    DELETE FROM schedules WHERE schedule_id IN (
        SELECT s.schedule_id FROM schedules s
        WHERE s.ended_at < $1 AND s.next_check_at IS NULL AND NOT EXISTS
            (SELECT 1 FROM schedule_ledger l WHERE l.schedule_id = s.schedule_id)
        LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING 1)
SELECT count(*) FROM gone"""


def to_schedule(row: Record) -> Schedule:
    """A row that begins with the selected columns."""
    schedule_id, _, document, namespace, created_at, *state = row
    values = dict(zip(_STATE, state, strict=False))
    return Schedule(schedule_id, namespace, *decode(document, schedule_id), created_at, **values)


def state_columns(schedules: Sequence[Schedule]) -> list[list[object]]:
    """The columns that a visit writes."""
    return [[getattr(schedule, name) for schedule in schedules] for name in _STATE]


def document_of(schedule: Schedule) -> bytes:
    """What the definition's column holds."""
    definition = Definition(schedule.spec, schedule.policy, schedule.template)
    return encode(definition, schedule.schedule_id)


async def insert_schedules(
    door: Door, clock: int | None, new: Sequence[ScheduleKey]
) -> list[Inserted]:
    """The store's `insert_schedules`: keys and rows in one transaction."""
    if not new:
        return []

    async def work(session: Session) -> list[Inserted]:
        holders = await _take_keys(session, clock, new)
        await _store(session, [s.schedule for s in new if _owns(s, holders)])
        return [_answer(item, holders) for item in new]

    return await door.run(work)


_Holders = dict[bytes, tuple[bytes, bytes, Status, int]]
"""Digest -> request hash, id, status, due time of what the key stands for."""


async def _take_keys(session: Session, clock: int | None, new: Sequence[ScheduleKey]) -> _Holders:
    first: dict[bytes, tuple[IdempotencyKey, Schedule]] = {}
    for item in new:
        if item.idempotency is not None:
            first.setdefault(item.idempotency.digest, (item.idempotency, item.schedule))
    if not first:
        return {}
    taken = [first[digest] for digest in sorted(first)]
    columns = (
        [key.digest for key, _ in taken],
        [schedule.schedule_id for _, schedule in taken],
        [key.expires_at for key, _ in taken],
        [key.request_hash for key, _ in taken],
    )
    won = {row[0] for row in await session.rows(_TAKE, clock, *columns, [])}
    holders: _Holders = {}
    if len(won) < len(taken):
        lost = [digest for digest in columns[0] if digest not in won]
        rows = await session.rows(HOLDERS, lost)
        holders = {row[0]: (row[1], row[2], Status(row[3]), row[4]) for row in rows if row[3]}
        gone = [digest for digest in lost if digest not in holders]
        if gone:  # a key whose task or schedule is gone is as free as an expired one
            await session.rows(_TAKE, clock, *columns, gone)
    for key, schedule in taken:
        if key.digest not in holders:
            state = (key.request_hash, schedule.schedule_id, Status.PENDING, _due(schedule))
            holders[key.digest] = state
    return holders


def _due(schedule: Schedule) -> int:
    return schedule.next_check_at or schedule.settled_at


def _owns(item: ScheduleKey, holders: _Holders) -> bool:
    key = item.idempotency
    return key is None or holders[key.digest][1] == item.schedule.schedule_id


def _answer(item: ScheduleKey, holders: _Holders) -> Inserted:
    schedule, key = item.schedule, item.idempotency
    if key is None or _owns(item, holders):
        return Inserted(InsertState.INSERTED, schedule.schedule_id, Status.PENDING, _due(schedule))
    request_hash, first, status, due_at = holders[key.digest]
    same = request_hash == key.request_hash
    state = InsertState.EXISTING if same else InsertState.CONFLICT
    return Inserted(state, first, status, due_at)


async def _store(session: Session, schedules: Sequence[Schedule]) -> None:
    if schedules:
        await session.rows(
            INSERT,
            [schedule.schedule_id for schedule in schedules],
            [schedule.namespace for schedule in schedules],
            [schedule.created_at for schedule in schedules],
            [shard_of(schedule.schedule_id) for schedule in schedules],
            [document_of(schedule) for schedule in schedules],
            *state_columns(schedules),
        )


async def load_schedules(
    door: Door, ids: Sequence[bytes], namespace: str | None
) -> list[Schedule | None]:
    """The store's `load_schedules`."""
    found = {
        row[0]: to_schedule(row)
        for row in await door.rows(LOAD, sorted(set(ids)))
        if namespace is None or row[3] == namespace
    }
    return [found.get(schedule_id) for schedule_id in ids]


async def due_schedules(
    door: Door, clock: int | None, shards: Sequence[int], limit: int
) -> list[bytes]:
    """The store's `due_schedules`."""
    return [row[0] for row in await door.rows(DUE, clock, _mask(shards), limit)]


async def next_schedule_check(door: Door, shards: Sequence[int]) -> int | None:
    """The store's `next_schedule_check`."""
    rows = await door.rows(NEXT, _mask(shards))
    return rows[0][0] if rows else None


def _mask(shards: Sequence[int]) -> int:
    """One bit a shard, as a signed number."""
    mask = sum(1 << shard for shard in set(shards))
    return mask - (1 << 64) if mask >> 63 else mask


async def defer_schedules(door: Door, ids: Sequence[bytes], next_check_at: int) -> None:
    """The store's `defer_schedules`."""
    await door.rows(DEFER, sorted(set(ids)), next_check_at)


async def purge(door: Door, before: int, limit: int) -> int:
    """Delete schedules that ended before this and have no ledger rows left; answers how many."""
    return int((await door.rows(PURGE, before, limit))[0][0])
