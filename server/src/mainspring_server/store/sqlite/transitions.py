"""The conditional writes of results, of the general change, and of leases."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from operator import itemgetter

from ...domain.checks import GRACE_MS
from ...domain.leases import Beat, BeatAnswer, BeatState, LeaseRef, Success
from ...domain.lifecycle import Change
from ...domain.task import (
    TERMINAL,
    Attempt,
    OutcomeBy,
    Status,
    Written,
)
from .rows import ATTEMPT_COLUMNS, Row, by_ids, update_by

_SUCCEED = (
    "UPDATE tasks SET status = 5, version = version + 1, completed_at = ?, "
    f"outcome_token = version, outcome_by = {int(OutcomeBy.WORKER_SUCCEEDED)}, "
    "next_check_at = CASE has_dependents WHEN 0 THEN NULL ELSE ? END, lease_expires_at = NULL"
)
# Without an outcome, all of one token at a time: most tasks succeed at the
# first attempt, and so with the same one.
_SUCCEED_PLAIN = f"{_SUCCEED} WHERE status = 4 AND version = ? AND task_id"
_SUCCEED_OUTCOME = f"{_SUCCEED}, outcome = ? WHERE task_id = ? AND version = ? AND status = 4"

_APPLY = (
    "UPDATE tasks SET status = :status, version = version + 1, due_at = :due_at, "
    "attempts = :attempts, lost_grants = :lost_grants, deadline_at = coalesce(:deadline_at, deadline_at), "
    "next_check_at = CASE WHEN :status >= 5 AND has_dependents = 1 THEN :tell_at "
    "ELSE :next_check_at END, ready_at = :ready_at, completed_at = :completed_at, "
    "lease_expires_at = NULL, lease_acked = 0{more} WHERE task_id = :task_id "
    "AND version = :version AND CASE :guard WHEN 1 THEN lease_expires_at <= :now "
    "WHEN 2 THEN deadline_at <= :now ELSE 1 END"
)
_OUTCOME = (
    ", outcome_by = :outcome_by, outcome_token = :outcome_token, error_type = :error_type, "
    "error_message = :error_message, status_reason = :status_reason"
)
_PUBLISHED = ", published_at = :now"

_PARENTS = "SELECT task_id FROM tasks INDEXED BY tasks_parents"

_ADD_ATTEMPT = (
    f"INSERT OR IGNORE INTO task_attempts ({ATTEMPT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

_LEASES = "SELECT task_id, seq, status, version, lease_expires_at, outcome_token FROM tasks"
_EXTEND = "UPDATE tasks SET lease_expires_at = ?, lease_acked = 1 WHERE seq = ?"
_REPORT = (
    "UPDATE tasks SET progress = coalesce(?, progress), "
    "progress_message = coalesce(?, progress_message), checkpoint = coalesce(?, checkpoint) "
    "WHERE seq = ?"
)
_ACKNOWLEDGE = "UPDATE tasks SET lease_acked = 1 WHERE task_id = ? AND version = ? AND status = 4"

_LOST = BeatAnswer(BeatState.LOST, 0)
_CANCEL_REQUESTED = BeatAnswer(BeatState.CANCEL_REQUESTED, 0)


def succeed(db: sqlite3.Connection, now: int, results: Sequence[Success]) -> list[Written]:
    """See TaskStore.succeed."""
    done = _succeed(db, now, results)
    parents = _parents(db, [r.task_id for r, ok in zip(results, done, strict=True) if ok])
    return [_written(r.task_id, parents, ok) for r, ok in zip(results, done, strict=True)]


def _parents(db: sqlite3.Connection, ids: Sequence[bytes]) -> set[bytes]:
    """Those that have dependents to be told."""
    return {row[0] for row in by_ids(db, _PARENTS, ids, column="has_dependents = 1 AND task_id")}


def _written(task_id: bytes, parents: set[bytes], applied: bool) -> Written:
    if not applied:
        return Written.STALE
    return Written.TELL if task_id in parents else Written.APPLIED


def _succeed(db: sqlite3.Connection, now: int, results: Sequence[Success]) -> list[bool]:
    db.execute("SAVEPOINT first_try")
    if _succeed_all(db, now, results) == len(results):
        db.execute("RELEASE first_try")
        return [True] * len(results)
    # Some are stale. Which ones is not to be told afterwards: an earlier call
    # may have left the same token. So again, one by one.
    db.execute("ROLLBACK TO first_try")
    db.execute("RELEASE first_try")
    return [_succeed_all(db, now, [result]) == 1 for result in results]


def _succeed_all(db: sqlite3.Connection, now: int, results: Sequence[Success]) -> int:
    applied = 0
    plain: dict[int, list[bytearray]] = {}
    with_outcome: list[Row] = []
    for task_id, token, outcome in results:
        # bytearray binds quicker than bytes, for which the driver looks up an adapter.
        key = bytearray(task_id)
        if outcome is None:
            plain.setdefault(token, []).append(key)
        else:
            with_outcome.append((now, now + GRACE_MS, bytearray(outcome), key, token))
    for token, ids in plain.items():
        applied += update_by(db, _SUCCEED_PLAIN, (now, now + GRACE_MS, token), ids)
    if with_outcome:
        applied += db.executemany(_SUCCEED_OUTCOME, with_outcome).rowcount
    return applied


def apply(db: sqlite3.Connection, now: int, changes: Sequence[Change]) -> list[Written]:
    """See TaskStore.apply."""
    answers = []
    ended: list[Row] = []
    for change in changes:
        more = _OUTCOME if change.outcome_by is not None else ""
        if change.status is Status.READY:
            more += _PUBLISHED
        applied = db.execute(_APPLY.format(more=more), _change_values(change, now)).rowcount == 1
        if applied and change.attempt is not None:
            ended.append(_attempt_row(change.attempt))
        answers.append(applied)
    if ended:
        db.executemany(_ADD_ATTEMPT, ended)
    pairs = list(zip(changes, answers, strict=True))
    parents = _parents(db, [c.task_id for c, ok in pairs if ok and c.status in TERMINAL])
    return [_written(c.task_id, parents, ok) for c, ok in pairs]


def _change_values(change: Change, now: int) -> dict[str, object]:
    by = change.outcome_by
    return {
        "task_id": change.task_id,
        "version": change.version,
        "status": int(change.status),
        "due_at": change.due_at,
        "attempts": change.attempts,
        "lost_grants": change.lost_grants,
        "next_check_at": change.next_check_at,
        "tell_at": now + GRACE_MS,
        "deadline_at": change.deadline_at,
        "ready_at": change.ready_at,
        "completed_at": change.completed_at,
        "outcome_by": None if by is None else int(by),
        "outcome_token": change.outcome_token,
        "error_type": change.error_type,
        "error_message": change.error_message,
        "status_reason": change.status_reason,
        "guard": change.guard.value,
        "now": now,
    }


def _attempt_row(attempt: Attempt) -> Row:
    return (
        attempt.task_id,
        attempt.attempt,
        attempt.token,
        attempt.worker_id,
        int(attempt.outcome),
        attempt.started_at,
        attempt.ended_at,
        attempt.error_type,
        attempt.error_message,
    )


def extend(db: sqlite3.Connection, now: int, beats: Sequence[Beat]) -> list[BeatAnswer]:
    """See TaskStore.extend."""
    stored = {row[0]: row[1:] for row in by_ids(db, _LEASES, [beat.task_id for beat in beats])}
    ends: dict[int, int] = {}
    reports: list[Row] = []
    answers = []
    for beat in beats:
        row = stored.get(beat.task_id)
        if row is None:
            answers.append(_LOST)
            continue
        seq, status, version, expires_at, outcome_token = row
        if status == Status.RUNNING and version == beat.token:
            end = max(ends.get(seq, expires_at or now), now + beat.lease_ms)
            ends[seq] = end
            answers.append(BeatAnswer(BeatState.EXTENDED, end - now))
            if any(value is not None for value in beat[3:]):
                reports.append((*beat[3:], seq))
        elif status == Status.CANCELLED and outcome_token == beat.token:
            answers.append(_CANCEL_REQUESTED)
        else:
            answers.append(_LOST)
    db.executemany(_EXTEND, ((end, seq) for seq, end in ends.items()))
    db.executemany(_REPORT, reports)
    return answers


def acknowledge(db: sqlite3.Connection, _now: int, leases: Sequence[LeaseRef]) -> None:
    """See TaskStore.acknowledge."""
    db.executemany(_ACKNOWLEDGE, sorted(leases, key=itemgetter(0)))
