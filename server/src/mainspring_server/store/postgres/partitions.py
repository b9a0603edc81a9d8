"""Partitions by creation time: made ahead, dropped when old, what still lives is carried over.

A task id begins with 48 bits of milliseconds, so a span of time is a range of ids. Periods are
aligned to Monday 00:00 UTC. Everything older than the oldest period lies in the one `carried`
partition, which takes over what still lives when a period is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from .pool import Door, Session

TABLES = {
    "tasks": "task_id",
    "task_payloads": "task_id",
    "task_attempts": "task_id",
    "task_dependencies": "downstream",
}
"""All have the same periods, each by its column with the task's id."""

DEFAULT_PERIOD_DAYS = 7
AHEAD_MS = 28 * 86_400_000
DAY_MS = 86_400_000
MONDAY_MS = 4 * DAY_MS
"""The first Monday after the epoch: where periods are aligned."""

PARTITION_LOCK = 0x6D61696E70617274
"""Advisory lock: one process at a time makes or drops partitions; the number spells `mainpart`."""

_VACUUM = (
    "autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0, "
    "autovacuum_analyze_scale_factor = 0.2"
)
STORAGE = {
    # Most of every page stays free: two new versions of each row, which grow as columns are filled,
    # fit beside it. At 50 a tenth of the updates is not HOT; at 40 all are that can be.
    "tasks": f"fillfactor = 40, {_VACUUM}",
    "task_payloads": "autovacuum_vacuum_insert_scale_factor = 0.5",
    "task_attempts": "autovacuum_vacuum_insert_scale_factor = 0.5",
    # An edge is updated once, and its outcome is in no index.
    "task_dependencies": "fillfactor = 60, autovacuum_vacuum_insert_scale_factor = 0.5",
}

_BOUND = re.compile(r"FROM \((?:MINVALUE|'(?P<low>[0-9a-f-]+)')\) TO \('(?P<high>[0-9a-f-]+)'\)")


class Partition(NamedTuple):
    """A period [start, end) in ms since the epoch and the suffix of its tables; carried: start 0."""

    start: int
    end: int
    suffix: str

    @property
    def carried(self) -> bool:
        """True for the one that holds what outlived its own period."""
        return self.suffix == "carried"


def id_ms(task_id: bytes) -> int:
    """When an id was made."""
    return int.from_bytes(task_id[:6], "big")


def first_id(ms: int) -> str:
    """The smallest id of a millisecond, as text."""
    text = f"{ms:012x}{0:020x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def period_of(ms: int, days: int) -> Partition:
    """The aligned period that holds a moment."""
    length = days * DAY_MS
    start = max((ms - MONDAY_MS) // length * length + MONDAY_MS, 0)
    return Partition(
        start, (ms - MONDAY_MS) // length * length + MONDAY_MS + length, _suffix(start)
    )


def _suffix(start: int) -> str:
    moment = datetime.fromtimestamp(start / 1000, UTC)
    return f"{moment:%Y%m%d}" if start % DAY_MS == 0 else f"{moment:%Y%m%d_%H%M%S}"


async def partitions(session: Session) -> list[Partition]:
    """Those that exist, oldest first."""
    rows = await session.rows(
        "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i "
        "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'tasks'::regclass"
    )
    found = []
    for name, bound in rows:
        match = _BOUND.search(bound)
        assert match is not None, f"partition {name} has an unexpected bound: {bound}"
        low = match["low"]
        start = id_ms(bytes.fromhex(low.replace("-", ""))) if low else 0
        end = id_ms(bytes.fromhex(match["high"].replace("-", "")))
        found.append(Partition(start, end, name.removeprefix("tasks_")))
    return sorted(found)


def missing(existing: list[Partition], moments: Iterable[int], days: int) -> list[Partition]:
    """The periods that these moments need and that do not exist, clipped to their neighbours."""
    known = sorted(existing)
    made = []
    for moment in sorted(moments):
        if any(part.start <= moment < part.end for part in known):
            continue
        wanted = period_of(moment, days)
        start = max([wanted.start, *(part.end for part in known if part.end <= moment)])
        end = min([wanted.end, *(part.start for part in known if part.start > moment)])
        part = Partition(start, end, _suffix(start))
        known.append(part)
        made.append(part)
    return made


async def ensure_partitions(
    door: Door, now: int, days: int = DEFAULT_PERIOD_DAYS, *, moments: Iterable[int] = ()
) -> list[str]:
    """Make what is missing from now to four weeks ahead, and around `moments`; answers suffixes."""
    step = days * DAY_MS
    wanted = [*range(now, now + AHEAD_MS + step, step), *moments]

    async def work(session: Session) -> list[str]:
        existing = await partitions(session)
        if existing and not missing(existing, wanted, days):
            return []
        await session.rows("SELECT pg_advisory_xact_lock($1)", PARTITION_LOCK)
        existing = await partitions(session)
        if not existing:
            existing = [await _first(session, now, days)]
        made = missing(existing, wanted, days)
        for part in made:
            for table in TABLES:
                await _create(session, table, part.suffix)
                await _attach(session, table, part)
        return [part.suffix for part in made]

    return await door.run(work)


async def _first(session: Session, now: int, days: int) -> Partition:
    carried = Partition(0, period_of(now, days).start, "carried")
    for table in TABLES:
        await _create(session, table, carried.suffix)
        await _attach(session, table, carried)
    return carried


async def _create(session: Session, table: str, suffix: str) -> None:
    # Made apart and then attached: that takes a lock on the parent which stops nobody's writes,
    # where CREATE TABLE … PARTITION OF would stop all of them.
    await session.script(
        f"CREATE TABLE {table}_{suffix} (LIKE {table} INCLUDING ALL) WITH ({STORAGE[table]})"
    )


async def _attach(session: Session, table: str, part: Partition) -> None:
    low = "MINVALUE" if part.carried else f"'{first_id(part.start)}'"
    await session.script(
        f"ALTER TABLE {table} ATTACH PARTITION {table}_{part.suffix} "
        f"FOR VALUES FROM ({low}) TO ('{first_id(part.end)}')"
    )


async def retire_partitions(door: Door, older_than: int) -> list[str]:
    """Drop the periods that ended by `older_than`, oldest first; answers their suffixes.

    Each goes in one short transaction, which first moves the rows that still live (not terminal,
    or with a next_check_at) to the carried partition, with their payloads, attempts and edges. A
    predecessor has no next_check_at only after all who wait for it were told: its outcome stands
    in their edges, and they do not miss its row.
    """
    retired: list[str] = []
    while True:
        suffix = await door.run(lambda session: _retire_oldest(session, older_than))
        if suffix is None:
            return retired
        retired.append(suffix)


async def _retire_oldest(session: Session, older_than: int) -> str | None:
    known = await partitions(session)
    if len(known) < 2 or known[1].end > older_than:
        return None
    await session.rows("SELECT pg_advisory_xact_lock($1)", PARTITION_LOCK)
    known = await partitions(session)
    carried, old = known[0], known[1]
    if not carried.carried or old.end > older_than:
        return None
    for table in TABLES:
        await session.script(f"LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE")
    for table in TABLES:
        for part in (old, carried):
            await session.script(f"ALTER TABLE {table} DETACH PARTITION {table}_{part.suffix}")
    await session.script(
        f"INSERT INTO tasks_carried SELECT * FROM tasks_{old.suffix} "
        "WHERE status < 5 OR next_check_at IS NOT NULL"
    )
    for table, column in TABLES.items():
        if table != "tasks":
            await session.script(
                f"INSERT INTO {table}_carried SELECT o.* FROM tasks_{old.suffix} t "
                f"JOIN {table}_{old.suffix} o ON o.{column} = t.task_id "
                "WHERE t.status < 5 OR t.next_check_at IS NOT NULL"
            )
    for table in TABLES:
        await _attach(session, table, Partition(0, old.end, "carried"))
        await session.script(f"DROP TABLE {table}_{old.suffix}")
    return old.suffix
