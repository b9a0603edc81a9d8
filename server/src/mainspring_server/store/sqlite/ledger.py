"""The ledger of schedules: one row a nominal time, its outcome written once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from ...domain.schedule import LedgerRow, Outcome, Plan, Source
from ..visiting import latest_rows, taken_outcome
from .rows import Row, by_ids

_LEDGER = "schedule_id, nominal_at, source, sequence, task_id, due_at, outcome, outcome_at, reason"
_OPEN = f"SELECT {_LEDGER} FROM schedule_ledger INDEXED BY schedule_ledger_open"
_RECORD = (
    f"INSERT INTO schedule_ledger ({_LEDGER}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET task_id = excluded.task_id, due_at = excluded.due_at, "
    "outcome = excluded.outcome, outcome_at = excluded.outcome_at, reason = excluded.reason "
    "WHERE outcome = 1"
)
_FORGET = (
    "DELETE FROM schedule_ledger WHERE schedule_id = ? AND nominal_at = ? AND source = ? "
    "AND sequence = ? AND outcome = 1"
)
_HISTORY = (
    f"SELECT {_LEDGER} FROM schedule_ledger WHERE schedule_id = ? "
    "AND (nominal_at, source, sequence) < (?, ?, ?) "
    "ORDER BY nominal_at DESC, source DESC, sequence DESC LIMIT ?"
)
_COUNTS = "SELECT outcome, count(*) FROM schedule_ledger WHERE schedule_id = ? GROUP BY outcome"
_OVER = (
    "SELECT schedule_id, nominal_at, source, sequence FROM schedule_ledger "
    "INDEXED BY schedule_ledger_over WHERE outcome > 1 AND outcome_at < ? "
    "ORDER BY outcome_at LIMIT ?"
)
_DELETE_ROW = (
    "DELETE FROM schedule_ledger WHERE schedule_id = ? AND nominal_at = ? AND source = ? "
    "AND sequence = ?"
)
_LAST_KEY = (2**63 - 1, 0, 0)


def open_rows(db: sqlite3.Connection, ids: Sequence[bytes]) -> Iterator[LedgerRow]:
    """The rows of these schedules that have no outcome yet."""
    return map(_to_row, by_ids(db, _OPEN, ids, column="outcome = 1 AND schedule_id"))


def _to_row(row: Row) -> LedgerRow:
    schedule_id, nominal_at, source, sequence, task_id, due_at, outcome, *ended = row
    identity = (schedule_id, nominal_at, Source(source), sequence)
    return LedgerRow(*identity, task_id, due_at, Outcome(outcome), *ended)


def write(db: sqlite3.Connection, plans: Sequence[Plan]) -> None:
    """What the plans forget and record; FailedPrecondition where an outcome stands already."""
    forgotten = [row for plan in plans for row in plan.forget]
    db.executemany(_FORGET, (_ledger_key(row) for row in forgotten))
    for row in latest_rows(plans):
        values = (row.task_id, row.due_at, int(row.outcome), row.outcome_at, row.reason)
        if db.execute(_RECORD, (*_ledger_key(row), *values)).rowcount != 1:
            raise taken_outcome(row)


def _ledger_key(row: LedgerRow) -> Row:
    return row.schedule_id, row.nominal_at, int(row.source), row.sequence


def ledger(
    db: sqlite3.Connection,
    schedule_id: bytes,
    before: tuple[int, int, int] | None,
    limit: int,
) -> list[LedgerRow]:
    """See ScheduleStore.ledger."""
    rows = db.execute(_HISTORY, (schedule_id, *(before or _LAST_KEY), limit))
    return [_to_row(row) for row in rows]


def ledger_counts(db: sqlite3.Connection, schedule_id: bytes) -> dict[Outcome, int]:
    """See ScheduleStore.ledger_counts."""
    return {Outcome(outcome): count for outcome, count in db.execute(_COUNTS, (schedule_id,))}


def purge(db: sqlite3.Connection, before: int, limit: int) -> int:
    """Delete rows whose outcome is older than this; answers how many."""
    rows = db.execute(_OVER, (before, limit)).fetchall()
    db.executemany(_DELETE_ROW, rows)
    return len(rows)
