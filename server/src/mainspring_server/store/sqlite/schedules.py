"""Schedules as rows: insert, load, which are due."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ...domain.schedule import Schedule
from ...domain.task import SHARDS, Inserted, InsertState, Status
from ..schedule_codec import Definition, decode, encode
from ..schedules import ScheduleKey
from .insert import STATES, holders_of, schedule_states, write_keys
from .rows import Row, by_ids

# In the order of their writing; `instances` and the definition are apart.
_STATE = (
    "version", "settled_at", "next_check_at", "next_nominal_at", "runs", "paused_at",
    "pause_note", "resume_from", "ended_at", "end_reason", "tz_version", "labels",
)  # fmt: skip
SELECT = (
    f"SELECT schedule_id, instances, definition, namespace, created_at, {', '.join(_STATE)} "
    "FROM schedules JOIN schedule_definitions USING (seq)"
)
_INSERT = (
    f"INSERT OR IGNORE INTO schedules (schedule_id, namespace, created_at, {', '.join(_STATE)}, "
    f"instances) VALUES (?, ?, ?{', ?' * len(_STATE)}, x'')"
)
UPDATE = (
    f"UPDATE schedules SET {', '.join(f'{name} = ?' for name in _STATE)}, instances = ? "
    "WHERE schedule_id = ?"
)
DEFINE = (
    "INSERT OR REPLACE INTO schedule_definitions (seq, definition) "
    "SELECT seq, ? FROM schedules WHERE schedule_id = ?"
)
_DUE = (
    "SELECT schedule_id FROM schedules WHERE next_check_at <= ?{shards} "
    "ORDER BY next_check_at, schedule_id LIMIT ?"
)
OTHER_ZONES = (
    "SELECT schedule_id FROM schedules WHERE next_check_at IS NOT NULL AND tz_version <> ? "
    "ORDER BY schedule_id LIMIT ?"
)
_NEXT = "SELECT min(next_check_at) FROM schedules WHERE next_check_at IS NOT NULL{shards}"
_IN_SHARDS = " AND instr(?, substr(schedule_id, 16, 1)) > 0"
_DEFER = (
    "UPDATE schedules SET next_check_at = ? WHERE next_check_at IS NOT NULL AND schedule_id = ?"
)

_ENDED = (
    "SELECT seq FROM schedules s WHERE ended_at < ? AND next_check_at IS NULL AND NOT EXISTS "
    "(SELECT 1 FROM schedule_ledger l WHERE l.schedule_id = s.schedule_id) LIMIT ?"
)


def insert_schedules(
    db: sqlite3.Connection, now: int, schedules: Sequence[ScheduleKey]
) -> list[Inserted]:
    """See ScheduleStore.insert_schedules."""
    holders = holders_of(db, now, [item.idempotency for item in schedules])
    holding = [holder for _, holder in holders.values()]
    states = [*by_ids(db, STATES, holding)]
    states += schedule_states(db, [*holding, *(item.schedule.schedule_id for item in schedules)])
    standing = {row[0]: (Status(row[2]), row[3]) for row in states}
    fresh: list[ScheduleKey] = []
    answers = []
    for item in schedules:
        schedule_id, key = item.schedule.schedule_id, item.idempotency
        state, answered = InsertState.INSERTED, schedule_id
        if schedule_id not in standing:
            request_hash, first = holders.get(key.digest, (b"", b"")) if key else (b"", b"")
            if key is not None and first in standing:
                same = request_hash == key.request_hash
                state = InsertState.EXISTING if same else InsertState.CONFLICT
                answered = first
            else:  # a key whose task or schedule is gone is as free as an expired one
                fresh.append(item)
                due_at = item.schedule.next_check_at or item.schedule.settled_at
                standing[schedule_id] = (Status.PENDING, due_at)
                if key is not None:
                    holders[key.digest] = (key.request_hash, schedule_id)
        answers.append(Inserted(state, answered, *standing[answered]))
    _store(db, [item.schedule for item in fresh])
    write_keys(db, ((i.idempotency, i.schedule.schedule_id) for i in fresh if i.idempotency))
    return answers


def _store(db: sqlite3.Connection, schedules: Sequence[Schedule]) -> None:
    db.executemany(
        _INSERT,
        ((s.schedule_id, s.namespace, s.created_at, *state_of(s)) for s in schedules),
    )
    db.executemany(DEFINE, ((document_of(s), s.schedule_id) for s in schedules))


def document_of(schedule: Schedule) -> bytes:
    """What the definition's column holds."""
    definition = Definition(schedule.spec, schedule.policy, schedule.template)
    return encode(definition, schedule.schedule_id)


def state_of(schedule: Schedule) -> Row:
    """The values of the columns that a visit writes."""
    return tuple(getattr(schedule, name) for name in _STATE)


def to_schedule(row: Row) -> Schedule:
    """A row of SELECT."""
    schedule_id, _, document, namespace, created_at, *state = row
    return Schedule(
        schedule_id,
        namespace,
        *decode(document, schedule_id),
        created_at,
        **dict(zip(_STATE, state, strict=True)),
    )


def load_schedules(
    db: sqlite3.Connection, ids: Sequence[bytes], namespace: str | None
) -> list[Schedule | None]:
    """See ScheduleStore.load_schedules."""
    found = {
        row[0]: to_schedule(row)
        for row in by_ids(db, SELECT, ids, column="schedule_id")
        if namespace is None or row[3] == namespace
    }
    return [found.get(schedule_id) for schedule_id in ids]


def due_schedules(
    db: sqlite3.Connection, now: int, shards: Sequence[int], limit: int
) -> list[bytes]:
    """See ScheduleStore.due_schedules."""
    condition, members = _in_shards(shards)
    statement = _DUE.format(shards=condition)
    return [row[0] for row in db.execute(statement, (now, *members, limit))]


def next_schedule_check(db: sqlite3.Connection, shards: Sequence[int]) -> int | None:
    """See ScheduleStore.next_schedule_check."""
    condition, members = _in_shards(shards)
    at: int | None = db.execute(_NEXT.format(shards=condition), members).fetchone()[0]
    return at


def _in_shards(shards: Sequence[int]) -> tuple[str, tuple[bytes, ...]]:
    chosen = set(shards)
    if len(chosen) == SHARDS:
        return "", ()
    return _IN_SHARDS, (bytes(byte for byte in range(256) if byte % SHARDS in chosen),)


def defer_schedules(db: sqlite3.Connection, ids: Sequence[bytes], next_check_at: int) -> None:
    """See ScheduleStore.defer_schedules."""
    db.executemany(_DEFER, ((next_check_at, schedule_id) for schedule_id in ids))


def purge(db: sqlite3.Connection, before: int, limit: int) -> int:
    """Delete schedules that ended before this and have no ledger rows left; answers how many."""
    ended = db.execute(_ENDED, (before, limit)).fetchall()
    db.executemany("DELETE FROM schedule_definitions WHERE seq = ?", ended)
    db.executemany("DELETE FROM schedules WHERE seq = ?", ended)
    return len(ended)
