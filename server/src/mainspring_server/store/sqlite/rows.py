"""Rows to records, and the statements' common parts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from ...domain.retry import RetryPolicy
from ...domain.task import (
    Attempt,
    AttemptOutcome,
    OutcomeBy,
    Payload,
    PayloadKind,
    Rule,
    Status,
    Task,
    Timeouts,
)

Row = tuple[Any, ...]

TASK_COLUMNS = (
    "task_id, namespace, task_type, queue, priority, status, version, due_at, created_at, "
    "max_attempts, retry_initial_ms, retry_multiplier, retry_max_ms, queue_ms, run_ms, total_ms, "
    "attempts, lost_grants, ready_at, started_at, completed_at, deadline_at, next_check_at, "
    "published_at, worker_id, lease_expires_at, lease_acked, progress, progress_message, "
    "checkpoint, outcome, outcome_token, outcome_by, error_type, error_message, status_reason, "
    "labels, trace_context, retry_of, schedule_id, nominal_at, rule, delay_after_ms, "
    "has_dependents, graph_id, local_ref"
)
"""In the order of the fields of Task, the policies spread out."""

TASK_WIDTH = TASK_COLUMNS.count(",") + 1

ATTEMPT_COLUMNS = (
    "task_id, attempt, token, worker_id, outcome, started_at, ended_at, error_type, error_message"
)

# Statements that name ids exist in these sizes only, so that they stay prepared.
_SIZES = (1, 4, 16, 64, 256)
_INSERT_ROWS = 50


@lru_cache(maxsize=1024)
def _retry(values: tuple[int, int, float, int]) -> RetryPolicy:
    return RetryPolicy(*values)


@lru_cache(maxsize=1024)
def _timeouts(values: tuple[int | None, int | None, int | None]) -> Timeouts:
    return Timeouts(*values)


def to_task(row: Row, payload: Payload | None = None) -> Task:
    """A row of TASK_COLUMNS as a Task."""
    fields = (
        *row[:5],
        Status(row[5]),
        *row[6:9],
        _retry(row[9:13]),
        _timeouts(row[13:16]),
        *row[16:TASK_WIDTH],
        payload,
    )
    task = Task(*fields)
    task.lease_acked = bool(task.lease_acked)
    task.has_dependents = bool(task.has_dependents)
    if task.rule is not None:
        task.rule = Rule(task.rule)
    if task.outcome_by is not None:
        task.outcome_by = OutcomeBy(task.outcome_by)
    return task


def to_payload(kind: int | None, body: bytes | None, metadata: str | None) -> Payload:
    """The joined payload columns; all NULL where there is none."""
    return Payload(PayloadKind(kind or 0), body or b"", metadata)


def to_attempt(row: Row) -> Attempt:
    """A row of ATTEMPT_COLUMNS as an Attempt."""
    return Attempt(*(*row[:4], AttemptOutcome(row[4]), *row[5:]))


@lru_cache(maxsize=64)
def _placeholders(size: int) -> str:
    return ",".join("?" * size)


def _parts(ids: Sequence[Any]) -> Iterator[list[Any]]:
    """The ids in parts of the prepared sizes; the last part is filled up with its last id."""
    start = 0
    while start < len(ids):
        rest = len(ids) - start
        size = next((size for size in _SIZES if size >= rest), _SIZES[-1])
        part = list(ids[start : start + size])
        start += len(part)
        part.extend([part[-1]] * (size - len(part)))
        yield part


def by_ids(
    db: sqlite3.Connection,
    select: str,
    ids: Sequence[bytes],
    *,
    column: str = "task_id",
    before: Row = (),
) -> Iterator[Row]:
    """The rows of `select` whose `column` is one of `ids`, in any order.

    `before` holds the values of the placeholders in `select`.
    """
    for part in _parts(ids):
        statement = f"{select} WHERE {column} IN ({_placeholders(len(part))})"
        yield from db.execute(statement, (*before, *part))


def update_by(db: sqlite3.Connection, update: str, values: Row, ids: Sequence[Any]) -> int:
    """Run `update`, which ends in a column, for those ids; the number of changed rows.

    One statement changes many rows: a step of the driver costs more than the change itself.
    """
    changed = 0
    for part in _parts(ids):
        statement = f"{update} IN ({_placeholders(len(part))})"
        changed += db.execute(statement, (*values, *part)).rowcount
    return changed


@lru_cache(maxsize=64)
def _many_rows(insert: str, values: str) -> str:
    return f"{insert} VALUES {', '.join([values] * _INSERT_ROWS)}"


def insert_rows(db: sqlite3.Connection, insert: str, values: str, rows: Sequence[Row]) -> None:
    """Run `insert`, which lacks its VALUES, for all rows; `values` holds one row's."""
    whole = len(rows) - len(rows) % _INSERT_ROWS
    for start in range(0, whole, _INSERT_ROWS):
        part = rows[start : start + _INSERT_ROWS]
        db.execute(_many_rows(insert, values), list(chain.from_iterable(part)))
    if whole < len(rows):
        db.executemany(f"{insert} VALUES {values}", rows[whole:])
