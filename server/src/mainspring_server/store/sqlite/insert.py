"""Insert: rows, payloads and idempotency keys of one batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from ...domain.retry import DEFAULT_RETRY
from ...domain.task import (
    NO_TIMEOUTS,
    IdempotencyKey,
    Inserted,
    InsertState,
    NewTask,
    PayloadKind,
    Status,
)
from .rows import Row, by_ids, insert_rows

_INSERT = (
    "INSERT INTO tasks (seq, task_id, namespace, task_type, queue, priority, status, due_at, "
    "created_at, next_check_at, version, attempts, lost_grants, lease_acked, max_attempts, "
    "retry_initial_ms, retry_multiplier, retry_max_ms"
)
_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 0, 0, 0"
_DEFAULT_VALUES = (
    f"{_VALUES}, {DEFAULT_RETRY.max_attempts}, {DEFAULT_RETRY.initial_delay_ms}, "
    f"{float(DEFAULT_RETRY.multiplier)!r}, {DEFAULT_RETRY.max_delay_ms}"
)

# The driver is slow at binding None, and most tasks use nothing of the rest:
# what waits and what is READY have short statements of their own.
_WAITING = (f"{_INSERT})", f"{_DEFAULT_VALUES})")
_READY = (f"{_INSERT}, ready_at, published_at)", f"{_DEFAULT_VALUES}, ?, ?)")
_EXTRAS = (
    "queue_ms, run_ms, total_ms, labels, trace_context, retry_of, schedule_id, nominal_at, "
    "deadline_at, rule, delay_after_ms, graph_id, local_ref"
)
_FULL = (
    f"{_INSERT}, ready_at, published_at, {_EXTRAS})",
    f"{_VALUES}{', ?' * 19})",
)
_PAYLOAD = ("INSERT INTO payloads (seq, kind, body)", "(?, ?, ?)")
_INSERT_METADATA = "INSERT INTO payloads (seq, kind, body, metadata) VALUES (?, ?, ?, ?)"
STATES = "SELECT task_id, namespace, status, due_at FROM tasks"
_SCHEDULE_STATES = (
    f"SELECT schedule_id, namespace, {int(Status.PENDING)}, "
    "coalesce(next_check_at, settled_at) FROM schedules"
)
_TAKE_KEY = (
    "INSERT INTO idempotency_keys (digest, request_hash, task_id, expires_at) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (digest) DO UPDATE SET request_hash = excluded.request_hash, "
    "task_id = excluded.task_id, expires_at = excluded.expires_at"
)


def insert(db: sqlite3.Connection, now: int, tasks: Sequence[NewTask]) -> list[Inserted]:
    """See TaskStore.insert."""
    if all(task.idempotency is None for task in tasks):
        db.execute("SAVEPOINT first_try")
        try:
            store_rows(db, now, tasks)
        except sqlite3.IntegrityError:  # a repeated id: look at each
            db.execute("ROLLBACK TO first_try")
        else:
            return [
                Inserted(InsertState.INSERTED, task.task_id, task.status, task.due_at)
                for task in tasks
            ]
        finally:
            if db.in_transaction:
                db.execute("RELEASE first_try")
    return _insert_each(db, now, tasks)


def _insert_each(db: sqlite3.Connection, now: int, tasks: Sequence[NewTask]) -> list[Inserted]:
    """One after the other: a key or an id of the batch binds the items behind it."""
    holders = holders_of(db, now, [task.idempotency for task in tasks])
    holding = [task_id for _, task_id in holders.values()]
    standing = {
        row[0]: (Status(row[2]), row[3])
        for row in by_ids(db, STATES, [task.task_id for task in tasks] + holding)
    }
    others = [task_id for task_id in holding if task_id not in standing]
    standing |= {row[0]: (Status(row[2]), row[3]) for row in schedule_states(db, others)}
    fresh: list[NewTask] = []
    answers = []
    for task in tasks:
        state, task_id = InsertState.INSERTED, task.task_id
        key = task.idempotency
        if task_id not in standing:
            request_hash, first = holders.get(key.digest, (b"", b"")) if key else (b"", b"")
            if key is not None and first in standing:
                same = request_hash == key.request_hash
                state = InsertState.EXISTING if same else InsertState.CONFLICT
                task_id = first
            else:  # a key whose task is gone is as free as an expired one
                fresh.append(task)
                standing[task_id] = (task.status, task.due_at)
                if key is not None:
                    holders[key.digest] = (key.request_hash, task_id)
        answers.append(Inserted(state, task_id, *standing[task_id]))
    store_rows(db, now, fresh)
    take_keys(db, fresh)
    return answers


def take_keys(db: sqlite3.Connection, tasks: Sequence[NewTask]) -> None:
    """Note the keys of tasks that are being inserted, in digest order."""
    write_keys(db, ((task.idempotency, task.task_id) for task in tasks if task.idempotency))


def write_keys(db: sqlite3.Connection, keyed: Iterable[tuple[IdempotencyKey, bytes]]) -> None:
    """Note keys with the id that each stands for, in digest order."""
    db.executemany(_TAKE_KEY, (_key_row(key, task_id) for key, task_id in sorted(keyed)))


def schedule_states(db: sqlite3.Connection, ids: Sequence[bytes]) -> Iterator[Row]:
    """(id, namespace, PENDING, next check) of schedules, which share ids and keys with tasks."""
    return by_ids(db, _SCHEDULE_STATES, ids, column="schedule_id")


def holders_of(
    db: sqlite3.Connection, now: int, keys: Iterable[IdempotencyKey | None]
) -> dict[bytes, tuple[bytes, bytes]]:
    """Digest -> (request hash, task id) of the keys that are taken."""
    digests = [key.digest for key in keys if key is not None]
    select = "SELECT digest, request_hash, task_id, expires_at FROM idempotency_keys"
    return {
        row[0]: (row[1], row[2])
        for row in by_ids(db, select, digests, column="digest")
        if row[3] > now
    }


def _key_row(key: IdempotencyKey, task_id: bytes) -> Row:
    return key.digest, key.request_hash, task_id, key.expires_at


def store_rows(db: sqlite3.Connection, now: int, tasks: Sequence[NewTask]) -> None:
    """Insert rows and payloads as they are."""
    seq = db.execute("SELECT coalesce(max(seq), 0) FROM tasks").fetchone()[0]
    ready: list[Row] = []
    waiting: list[Row] = []
    full: list[Row] = []
    bodies: list[Row] = []
    for task in tasks:
        seq += 1
        kind, body, metadata = task.payload
        if metadata is not None:
            db.execute(_INSERT_METADATA, (seq, int(kind), body, metadata))
        elif kind is not PayloadKind.NONE:
            bodies.append((seq, int(kind), bytearray(body)))
        if not _is_plain(task):
            full.append(_full_row(seq, task, now))
            continue
        # bytearray binds quicker than bytes, for which the driver looks up an adapter.
        key = (seq, bytearray(task.task_id), task.namespace, task.task_type, task.queue)
        times = (task.due_at, task.created_at, task.next_check_at)
        if task.status is Status.READY:
            ready.append((*key, task.priority, 3, *times, now, now))
        else:
            waiting.append((*key, task.priority, int(task.status), *times))
    for statement, rows in (
        (_READY, ready),
        (_WAITING, waiting),
        (_FULL, full),
        (_PAYLOAD, bodies),
    ):
        insert_rows(db, *statement, rows)


def _is_plain(task: NewTask) -> bool:
    return (
        task.retry is DEFAULT_RETRY
        and task.timeouts is NO_TIMEOUTS
        and task.labels is None
        and task.trace_context is None
        and task.retry_of is None
        and task.schedule_id is None
        and task.nominal_at is None
        and task.deadline_at is None
        and task.graph_id is None
        and task.waits is None
    )


def _full_row(seq: int, task: NewTask, now: int) -> Row:
    published = now if task.status is Status.READY else None
    retry = task.retry
    return (
        seq,
        task.task_id,
        task.namespace,
        task.task_type,
        task.queue,
        task.priority,
        int(task.status),
        task.due_at,
        task.created_at,
        task.next_check_at,
        retry.max_attempts,
        retry.initial_delay_ms,
        retry.multiplier,
        retry.max_delay_ms,
        published,
        published,
        task.timeouts.queue_ms,
        task.timeouts.run_ms,
        task.timeouts.total_ms,
        task.labels,
        task.trace_context,
        task.retry_of,
        task.schedule_id,
        task.nominal_at,
        task.deadline_at,
        None if task.waits is None else int(task.waits.rule),
        0 if task.waits is None else task.waits.delay_ms,
        task.graph_id,
        task.local_ref,
    )
