"""The ledger of schedules: one row a nominal time, its outcome written once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...domain.schedule import LedgerRow, Outcome, Plan, Source
from ..visiting import latest_rows, taken_outcome
from .pool import Door, Session

if TYPE_CHECKING:
    from .pool import Record

_COLUMNS = {
    "schedule_id": "uuid",
    "nominal_at": "bigint",
    "source": "smallint",
    "sequence": "bigint",
    "task_id": "uuid",
    "due_at": "bigint",
    "outcome": "smallint",
    "outcome_at": "bigint",
    "reason": "text",
}
_NAMES = ", ".join(_COLUMNS)
_LEDGER = ", ".join(f"l.{name}" for name in _COLUMNS)

# The limit keeps the planner from a join of the whole index of open rows with the batch.
OPEN = f"""SELECT o.* FROM unnest($1::uuid[]) AS u(schedule_id), LATERAL (
    SELECT {_LEDGER} FROM schedule_ledger l WHERE l.schedule_id = u.schedule_id AND l.outcome = 1
    LIMIT 1000000) o"""

RECORD = f"""INSERT INTO schedule_ledger AS l ({_NAMES})
SELECT * FROM unnest({", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_COLUMNS.values(), 1))})
ON CONFLICT (schedule_id, nominal_at, source, sequence) DO UPDATE SET task_id = excluded.task_id,
    due_at = excluded.due_at, outcome = excluded.outcome, outcome_at = excluded.outcome_at,
    reason = excluded.reason
WHERE l.outcome = 1
RETURNING l.schedule_id, l.nominal_at, l.source, l.sequence"""

# Written so that the index of open rows does not answer it: the primary key does, row by row.
FORGET = """DELETE FROM schedule_ledger l
USING unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bigint[])
    AS u(schedule_id, nominal_at, source, sequence)
WHERE l.schedule_id = u.schedule_id AND l.nominal_at = u.nominal_at AND l.source = u.source
    AND l.sequence = u.sequence AND l.outcome + 0 = 1"""

HISTORY = f"""SELECT {_LEDGER} FROM schedule_ledger l
WHERE l.schedule_id = $1 AND (l.nominal_at, l.source, l.sequence) < ($2, $3, $4)
ORDER BY l.nominal_at DESC, l.source DESC, l.sequence DESC LIMIT $5"""

COUNTS = """SELECT outcome, count(*) FROM schedule_ledger WHERE schedule_id = $1 GROUP BY outcome"""

PURGE = """WITH old AS MATERIALIZED (
    SELECT schedule_id, nominal_at, source, sequence FROM schedule_ledger
    WHERE outcome > 1 AND outcome_at < $1 ORDER BY outcome_at LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM schedule_ledger l USING old
    WHERE l.schedule_id = old.schedule_id AND l.nominal_at = old.nominal_at
        AND l.source = old.source AND l.sequence = old.sequence
    RETURNING 1)
SELECT count(*) FROM gone"""

_LAST_KEY = (2**63 - 1, 0, 0)


def _row(record: Record) -> LedgerRow:
    schedule_id, nominal_at, source, sequence, task_id, due_at, outcome, outcome_at, reason = record
    return LedgerRow(
        schedule_id,
        nominal_at,
        Source(source),
        sequence,
        task_id,
        due_at,
        Outcome(outcome),
        outcome_at,
        reason,
    )


async def open_rows(session: Session, ids: Sequence[bytes]) -> dict[bytes, list[LedgerRow]]:
    """The rows of these schedules that have no outcome yet."""
    found: dict[bytes, list[LedgerRow]] = defaultdict(list)
    for record in await session.rows(OPEN, ids):
        found[record[0]].append(_row(record))
    return found


async def write(session: Session, plans: Sequence[Plan]) -> None:
    """What the plans forget and record; FailedPrecondition where an outcome stands already."""
    forgotten = [_key(row) for plan in plans for row in plan.forget]
    if forgotten:
        await session.rows(FORGET, *zip(*forgotten, strict=True))
    rows = latest_rows(plans)
    if not rows:
        return
    columns = ([getattr(row, name) for row in rows] for name in _COLUMNS)
    written = {tuple(record) for record in await session.rows(RECORD, *columns)}
    if len(written) < len(rows):
        raise taken_outcome(next(row for row in rows if _key(row) not in written))


def _key(row: LedgerRow) -> tuple[bytes, int, int, int]:
    return row.schedule_id, row.nominal_at, int(row.source), row.sequence


async def ledger(
    door: Door, schedule_id: bytes, before: tuple[int, int, int] | None, limit: int
) -> list[LedgerRow]:
    """The store's `ledger`."""
    rows = await door.rows(HISTORY, schedule_id, *(before or _LAST_KEY), limit)
    return [_row(record) for record in rows]


async def ledger_counts(door: Door, schedule_id: bytes) -> dict[Outcome, int]:
    """The store's `ledger_counts`."""
    return {Outcome(row[0]): row[1] for row in await door.rows(COUNTS, schedule_id)}


async def purge(door: Door, before: int, limit: int) -> int:
    """Delete rows whose outcome is older than this; answers how many."""
    return int((await door.rows(PURGE, before, limit))[0][0])
