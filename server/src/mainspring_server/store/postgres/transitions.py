"""The conditional writes: a batch of ids into the primary key, in id order, winners returned.

Every statement joins `unnest` of a sorted batch to `tasks` by nested loop, which locks the rows in
the order of the batch; losers are looked at afterwards, only where the answer needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...domain.checks import GRACE_MS
from ...domain.leases import Beat, BeatAnswer, BeatState, LeaseRef, Success
from ...domain.lifecycle import Change
from ...domain.task import (
    Attempt,
    OutcomeBy,
    ReadyAnswer,
    ReadyRef,
    ReadyState,
    Status,
    Written,
)
from .pool import Door, Session
from .rows import AT, NOW, PENDING, READY

if TYPE_CHECKING:
    from .pool import Record

_REF = "t.task_id, t.version, t.namespace || '/' || t.queue, t.priority, t.due_at, t.published_at"

MAKE_READY = f"""WITH {NOW}
UPDATE tasks t SET status = 3, version = t.version + 1, ready_at = {AT}, published_at = {AT},
    next_check_at = CASE WHEN t.queue_ms IS NULL THEN t.next_check_at
        ELSE least(t.next_check_at, greatest(t.due_at, {AT}) + t.queue_ms) END
FROM unnest($2::uuid[]) AS u(task_id)
WHERE t.task_id = u.task_id AND {PENDING} AND t.due_at <= {AT} + $3::bigint
    AND (t.deadline_at IS NULL OR t.deadline_at > {AT})
RETURNING {_REF}"""

STANDING = f"""WITH {NOW}
SELECT {_REF}, t.status, t.deadline_at IS NOT NULL AND t.deadline_at <= {AT}
FROM unnest($2::uuid[]) AS u(task_id) JOIN tasks t ON t.task_id = u.task_id"""

SUCCEED = f"""WITH {NOW}
UPDATE tasks t SET status = 5, version = t.version + 1, outcome = u.outcome,
    outcome_token = u.token, outcome_by = {int(OutcomeBy.WORKER_SUCCEEDED)}, completed_at = {AT},
    next_check_at = CASE WHEN t.has_dependents THEN {AT} + {GRACE_MS} END, lease_expires_at = NULL
FROM unnest($2::uuid[], $3::bigint[], $4::bytea[]) AS u(task_id, token, outcome)
WHERE t.task_id = u.task_id AND t.version = u.token AND t.status = 4
RETURNING t.task_id, u.token, t.has_dependents"""

_CHANGE = {
    "task_id": "uuid",
    "version": "bigint",
    "status": "smallint",
    "due_at": "bigint",
    "attempts": "integer",
    "lost_grants": "integer",
    "next_check_at": "bigint",
    "ready_at": "bigint",
    "completed_at": "bigint",
    "deadline_at": "bigint",
    "outcome_by": "smallint",
    "outcome_token": "bigint",
    "error_type": "text",
    "error_message": "text",
    "status_reason": "text",
    "guard": "smallint",
}
_ATTEMPT = {
    "task_id": "uuid",
    "token": "bigint",
    "started_at": "bigint",
    "ended_at": "bigint",
    "attempt": "integer",
    "outcome": "smallint",
    "worker_id": "text",
    "error_type": "text",
    "error_message": "text",
}


def _arrays(columns: dict[str, str], first: int) -> str:
    return ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(columns.values(), first))


def _when_ended(column: str) -> str:
    return f"{column} = CASE WHEN u.outcome_by IS NULL THEN t.{column} ELSE u.{column} END"


# The history of attempts is written in the same statement, for the changes that were applied.
# `IN … IS TRUE` is a hashed lookup; a bare IN would become a join of the two lists.
APPLY = f"""WITH {NOW}, applied AS (
    UPDATE tasks t SET status = u.status, version = t.version + 1, due_at = u.due_at,
        attempts = u.attempts, lost_grants = u.lost_grants,
        next_check_at = CASE WHEN u.status >= 5 AND t.has_dependents THEN {AT} + {GRACE_MS}
            ELSE u.next_check_at END,
        ready_at = u.ready_at, completed_at = u.completed_at,
        deadline_at = coalesce(u.deadline_at, t.deadline_at),
        published_at = CASE WHEN u.status = 3 THEN {AT} ELSE t.published_at END,
        lease_expires_at = NULL, lease_acked = false,
        {
    ", ".join(
        map(
            _when_ended,
            ("outcome_by", "outcome_token", "error_type", "error_message", "status_reason"),
        )
    )
}
    FROM unnest({_arrays(_CHANGE, 2)}) AS u({", ".join(_CHANGE)})
    WHERE t.task_id = u.task_id AND t.version = u.version AND CASE u.guard
        WHEN 1 THEN t.lease_expires_at <= {AT} WHEN 2 THEN t.deadline_at <= {AT} ELSE true END
    RETURNING t.task_id, u.version, u.status >= 5 AND t.has_dependents AS tell
), history AS (
    INSERT INTO task_attempts ({", ".join(_ATTEMPT)})
    SELECT * FROM unnest({_arrays(_ATTEMPT, 2 + len(_CHANGE))}) AS a({", ".join(_ATTEMPT)})
    WHERE (a.task_id IN (SELECT task_id FROM applied)) IS TRUE
    ON CONFLICT (task_id, token) DO NOTHING)
SELECT task_id, version, tell FROM applied"""

EXTEND = f"""WITH {NOW}
UPDATE tasks t SET lease_expires_at = greatest(t.lease_expires_at, {AT} + u.lease_ms),
    lease_acked = true, progress = coalesce(u.progress, t.progress),
    progress_message = coalesce(u.message, t.progress_message),
    checkpoint = coalesce(u.checkpoint, t.checkpoint)
FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::float8[], $6::text[], $7::bytea[])
    AS u(task_id, token, lease_ms, progress, message, checkpoint)
WHERE t.task_id = u.task_id AND t.version = u.token AND t.status = 4
RETURNING t.task_id, u.token, t.lease_expires_at - {AT}"""

CANCELLED = """SELECT t.task_id, t.outcome_token
FROM unnest($1::uuid[]) AS u(task_id) JOIN tasks t ON t.task_id = u.task_id WHERE t.status = 7"""

ACKNOWLEDGE = """UPDATE tasks t SET lease_acked = true
FROM unnest($1::uuid[], $2::bigint[]) AS u(task_id, token)
WHERE t.task_id = u.task_id AND t.version = u.token AND t.status = 4 AND NOT t.lease_acked"""

DEFER = """UPDATE tasks t SET next_check_at = u.next_check_at
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS u(task_id, version, next_check_at)
WHERE t.task_id = u.task_id AND t.version = u.version AND t.next_check_at IS NOT NULL"""

REPUBLISH = f"""WITH {NOW}
UPDATE tasks t SET published_at = {AT}
FROM unnest($2::uuid[], $3::bigint[]) AS u(task_id, version)
WHERE t.task_id = u.task_id AND t.version = u.version AND {READY}
RETURNING {_REF}"""

_STALE = ReadyAnswer(ReadyState.STALE, None, None)
_LOST = BeatAnswer(BeatState.LOST, 0)
_CANCEL = BeatAnswer(BeatState.CANCEL_REQUESTED, 0)


async def make_ready(
    door: Door, clock: int | None, ids: Sequence[bytes], lead_ms: int
) -> list[ReadyAnswer]:
    """The store's `make_ready`."""
    batch = sorted(set(ids))
    if not batch:
        return []
    rows = await door.rows(MAKE_READY, clock, batch, lead_ms)
    answers = {row[0]: ReadyAnswer(ReadyState.APPLIED, ReadyRef(*row), None) for row in rows}
    if len(answers) < len(batch):
        losers = [task_id for task_id in batch if task_id not in answers]
        for *ref, status, expired in await door.rows(STANDING, clock, losers):
            if status == Status.READY:
                answers[ref[0]] = ReadyAnswer(ReadyState.ALREADY, ReadyRef(*ref), None)
            elif status == Status.PENDING and not expired:
                answers[ref[0]] = ReadyAnswer(ReadyState.EARLY, None, ref[4])
    return [answers.get(task_id, _STALE) for task_id in ids]


async def succeed(door: Door, clock: int | None, results: Sequence[Success]) -> list[Written]:
    """The store's `succeed`."""
    if not results:
        return []
    batch = sorted(results, key=_task_id)
    ids, tokens, outcomes = zip(*batch, strict=True)
    rows = await door.rows(SUCCEED, clock, ids, tokens, outcomes)
    applied = _written(rows)
    return [applied.pop((result.task_id, result.token), Written.STALE) for result in results]


def _task_id(item: Success | Beat) -> bytes:
    return item[0]


def _written(rows: Sequence[Record]) -> dict[tuple[bytes, int], Written]:
    """What applied, by id and version. Who looks takes it out: a repetition within one batch is
    stale, as it would be later.
    """
    return {(row[0], row[1]): Written.TELL if row[2] else Written.APPLIED for row in rows}


def _by_id(item: Change | Attempt) -> bytes:
    return item.task_id


async def apply(
    door: Door | Session, clock: int | None, changes: Sequence[Change]
) -> list[Written]:
    """The store's `apply`."""
    if not changes:
        return []
    batch = sorted(changes, key=_by_id)
    history = [change.attempt for change in batch if change.attempt is not None]
    rows = await door.rows(
        APPLY,
        clock,
        *([_value(change, name) for change in batch] for name in _CHANGE),
        *([getattr(attempt, name) for attempt in history] for name in _ATTEMPT),
    )
    applied = _written(rows)
    return [applied.pop((change.task_id, change.version), Written.STALE) for change in changes]


def _value(change: Change, name: str) -> object:
    value = getattr(change, name)
    return value.value if name == "guard" else value


async def extend(door: Door, clock: int | None, beats: Sequence[Beat]) -> list[BeatAnswer]:
    """The store's `extend`."""
    if not beats:
        return []
    latest: dict[tuple[bytes, int], Beat] = {}
    for beat in beats:
        key = (beat.task_id, beat.token)
        latest[key] = _merged(latest[key], beat) if key in latest else beat
    batch = sorted(latest.values(), key=_task_id)
    rows = await door.rows(EXTEND, clock, *zip(*batch, strict=True))
    answers = {
        (task_id, token): BeatAnswer(BeatState.EXTENDED, max(left, 0))
        for task_id, token, left in rows
    }
    lost = sorted({task_id for task_id, token in latest if (task_id, token) not in answers})
    if lost:
        for task_id, token in await door.rows(CANCELLED, lost):
            answers[task_id, token] = _CANCEL
    return [answers.get((beat.task_id, beat.token), _LOST) for beat in beats]


def _merged(earlier: Beat, later: Beat) -> Beat:
    """One beat with what either says; the later one wins."""
    return Beat(
        later.task_id,
        later.token,
        max(earlier.lease_ms, later.lease_ms),
        earlier.progress if later.progress is None else later.progress,
        earlier.progress_message if later.progress_message is None else later.progress_message,
        earlier.checkpoint if later.checkpoint is None else later.checkpoint,
    )


async def acknowledge(door: Door, leases: Sequence[LeaseRef]) -> None:
    """The store's `acknowledge`."""
    if leases:
        await door.rows(ACKNOWLEDGE, *zip(*sorted(leases), strict=True))


async def defer(door: Door, checks: Sequence[tuple[bytes, int, int]]) -> None:
    """The store's `defer`."""
    if checks:
        await door.rows(DEFER, *zip(*sorted(checks), strict=True))


async def republish(
    door: Door, clock: int | None, ids: Sequence[tuple[bytes, int]]
) -> list[ReadyRef | None]:
    """The store's `republish`."""
    if not ids:
        return []
    rows = await door.rows(REPUBLISH, clock, *zip(*sorted(set(ids)), strict=True))
    refs = {(row[0], row[1]): ReadyRef(*row) for row in rows}
    return [refs.get(key) for key in ids]
