"""What waits: PENDING tasks that fall due, READY ones to publish again, rows to check."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ...domain.task import SHARDS, ReadyAnswer, ReadyRef, ReadyState, Status, Task, shard_of
from ..port import DueDigest, DueEntry, id_mark
from .rows import TASK_COLUMNS, Row, by_ids, to_task, update_by

_REFS = (
    "SELECT task_id, version, namespace || '/' || queue, priority, due_at, published_at, seq, "
    "status, deadline_at, queue_ms FROM tasks"
)
# next_check_at is left out where it stays: naming it would rewrite its index.
_MAKE_READY = (
    "UPDATE tasks SET status = 3, version = version + 1, ready_at = ?, published_at = ? WHERE seq"
)
_LIMIT_QUEUE = (
    "UPDATE tasks SET next_check_at = ?1 WHERE seq = ?2 "
    "AND (next_check_at IS NULL OR next_check_at > ?1)"
)
_DEFER = (
    "UPDATE tasks SET next_check_at = ? "
    "WHERE task_id = ? AND version = ? AND next_check_at IS NOT NULL"
)
_REPUBLISH = "UPDATE tasks SET published_at = ? WHERE seq"
_FALLS_DUE = (
    "FROM tasks WHERE status = 2 AND due_at BETWEEN ? AND ? "
    "AND (deadline_at IS NULL OR deadline_at > ?){shards}"
)
_DUE = f"SELECT due_at, priority, task_id {_FALLS_DUE} ORDER BY due_at, priority LIMIT ?"
_PENDING_IDS = f"SELECT due_at / 1000, task_id {_FALLS_DUE}"
_OVERDUE = (
    f"SELECT {TASK_COLUMNS} FROM tasks WHERE next_check_at <= ? "
    "AND (next_check_at, task_id) > (?, ?){shards} ORDER BY next_check_at, task_id LIMIT ?"
)
_IN_SHARDS = " AND instr(?, substr(task_id, 16, 1)) > 0"

_STALE = ReadyAnswer(ReadyState.STALE, None, None)


def make_ready(
    db: sqlite3.Connection, now: int, ids: Sequence[bytes], lead_ms: int
) -> list[ReadyAnswer]:
    """See TaskStore.make_ready."""
    rows = {row[0]: row for row in by_ids(db, _REFS, ids)}
    answers: dict[bytes, ReadyAnswer] = {}
    readied: list[int] = []
    limits: list[Row] = []
    for task_id, row in rows.items():
        version, due_at, seq, status, deadline_at, queue_ms = row[1], row[4], *row[6:]
        if status == Status.READY:
            answers[task_id] = ReadyAnswer(ReadyState.ALREADY, ReadyRef._make(row[:6]), None)
        elif status != Status.PENDING or (deadline_at is not None and deadline_at <= now):
            continue
        elif due_at > now + lead_ms:
            answers[task_id] = ReadyAnswer(ReadyState.EARLY, None, due_at)
        else:
            ref = ReadyRef._make((task_id, version + 1, *row[2:5], now))
            answers[task_id] = ReadyAnswer(ReadyState.APPLIED, ref, None)
            readied.append(seq)
            if queue_ms is not None:
                limits.append((max(now, due_at) + queue_ms, seq))
    update_by(db, _MAKE_READY, (now, now), readied)
    if limits:
        db.executemany(_LIMIT_QUEUE, limits)
    return [answers.get(task_id, _STALE) for task_id in ids]


def republish(
    db: sqlite3.Connection, now: int, ids: Sequence[tuple[bytes, int]]
) -> list[ReadyRef | None]:
    """See TaskStore.republish."""
    rows = {row[0]: row for row in by_ids(db, _REFS, [task_id for task_id, _ in ids])}
    answers: list[ReadyRef | None] = []
    seqs: list[int] = []
    for task_id, version in ids:
        row = rows.get(task_id)
        if row is None or row[7] != Status.READY or row[1] != version:
            answers.append(None)
            continue
        answers.append(ReadyRef._make((*row[:5], now)))
        seqs.append(row[6])
    update_by(db, _REPUBLISH, (now,), seqs)
    return answers


def defer(db: sqlite3.Connection, _now: int, checks: Sequence[tuple[bytes, int, int]]) -> None:
    """See TaskStore.defer."""
    db.executemany(_DEFER, [(at, task_id, version) for task_id, version, at in sorted(checks)])


Span = tuple[int, int, int]
"""since, until, and the moment that a deadline must lie behind."""


def due(db: sqlite3.Connection, shards: Sequence[int], span: Span, limit: int) -> list[DueEntry]:
    """See TaskStore.due."""
    condition, members = _in_shards(shards)
    statement = _DUE.format(shards=condition)
    return [DueEntry(*row) for row in db.execute(statement, (*span, *members, limit))]


def due_digest(db: sqlite3.Connection, shards: Sequence[int], span: Span) -> list[DueDigest]:
    """See TaskStore.due_digest."""
    condition, members = _in_shards(shards)
    found: dict[tuple[int, int], tuple[int, int]] = {}
    statement = _PENDING_IDS.format(shards=condition)
    for second, task_id in db.execute(statement, (*span, *members)):
        key = (shard_of(task_id), second)
        count, mark = found.get(key, (0, 0))
        found[key] = (count + 1, mark ^ id_mark(task_id))
    return [DueDigest(*key, *counted) for key, counted in found.items()]


def overdue(
    db: sqlite3.Connection,
    shards: Sequence[int],
    until: int,
    after: tuple[int, bytes] | None,
    limit: int,
) -> list[Task]:
    """See TaskStore.overdue."""
    condition, members = _in_shards(shards)
    statement = _OVERDUE.format(shards=condition)
    key = after or (-(2**63), b"")
    return [to_task(row) for row in db.execute(statement, (until, *key, *members, limit))]


def _in_shards(shards: Sequence[int]) -> tuple[str, tuple[bytes, ...]]:
    """A condition on the last byte of the id; none where all shards are asked for."""
    chosen = set(shards)
    if len(chosen) == SHARDS:
        return "", ()
    return _IN_SHARDS, (bytes(byte for byte in range(256) if byte % SHARDS in chosen),)
