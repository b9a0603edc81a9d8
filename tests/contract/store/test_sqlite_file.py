"""What only a file can show: durability, exclusive use, faults, and calls that share a commit."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from mainspring_server.clock import VirtualClock
from mainspring_server.domain.errors import Unavailable
from mainspring_server.domain.leases import Seat, Success, Want
from mainspring_server.domain.task import (
    InsertState,
    NewTask,
    Payload,
    PayloadKind,
    Status,
    shard_of,
)
from mainspring_server.store.port import All, ListQuery
from mainspring_server.store.sqlite import SqliteStore
from mainspring_server.store.sqlite import claims as claims_module
from mainspring_server.store.sqlite import writer as writer_module

WRITER = """
import asyncio, secrets, sys
from mainspring_server.clock import SystemClock
from mainspring_server.domain.task import NewTask, Status
from mainspring_server.store.sqlite import SqliteStore

async def insert(store, clock):
    while True:
        now = clock.now()
        batch = [
            NewTask(now.to_bytes(6, "big") + secrets.token_bytes(10), "default", "t", "t", 5,
                    Status.READY, now, now, next_check_at=now)
            for _ in range(7)
        ]
        await store.insert(batch)
        print("\\n".join(task.task_id.hex() for task in batch), flush=True)

async def main():
    clock = SystemClock()
    store = SqliteStore(sys.argv[1], clock)
    await store.open()
    await asyncio.gather(*(insert(store, clock) for _ in range(3)))

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "folder" / "tasks.db")


@pytest.fixture
async def opened(path: str) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, VirtualClock())
    await store.open()
    yield store
    await store.close()


def size(path: str) -> int:
    """Bytes of a file; 0 where there is none."""
    file = Path(path)
    return file.stat().st_size if file.exists() else 0


def task(store: SqliteStore, n: int, body: bytes = b"") -> NewTask:
    now = store._clock.now()
    task_id = now.to_bytes(6, "big") + n.to_bytes(10, "big")
    return NewTask(
        task_id, "default", "t", "t", 5, Status.READY, now, now,
        labels=body.decode() or None, next_check_at=now,
    )  # fmt: skip


def test_sigkill_loses_nothing_that_was_answered(path: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    answered = [process.stdout.readline().strip() for _ in range(400)]
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()
    process.wait()
    process.stdout.close()
    answered += [line for line in rest.splitlines() if len(line) == 32]

    async def find() -> int:
        store = SqliteStore(path, VirtualClock())
        await store.open()
        found = await store.load([bytes.fromhex(task_id) for task_id in answered])
        await store.close()
        return sum(row is not None for row in found)

    assert asyncio.run(find()) == len(answered) >= 400


async def test_second_server_is_refused_by_name(opened: SqliteStore, path: str) -> None:
    second = SqliteStore(path, VirtualClock())
    with pytest.raises(Unavailable, match=rf"in use by another server \(process {os.getpid()}\)"):
        await second.open()
    assert (await opened.insert([task(opened, 1)]))[0].state is InsertState.INSERTED


async def test_file_is_free_after_close_and_whole_after_reopening(path: str) -> None:
    for n in range(3):
        store = SqliteStore(path, VirtualClock())
        await store.open()
        await store.insert([task(store, n)])
        assert await store.count_tasks("default", All(()), None) == [(None, n + 1)]
        await store.close()
    assert size(f"{path}-wal") == 0


async def test_durable_settings(opened: SqliteStore) -> None:
    assert opened._open is not None
    db = opened._open._db
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_foreign_files_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database at all, but long enough for a header" * 20)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE something (a)")
    db.close()
    newer = tmp_path / "newer.db"
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    for path, message in (
        (text, "not a database"),
        (other, "another program's file"),
        (newer, "layout 99"),
        (tmp_path, "unable to open"),
    ):
        with pytest.raises(Unavailable, match=message):
            await SqliteStore(str(path), VirtualClock()).open()
    assert sqlite3.connect(other).execute("SELECT count(*) FROM sqlite_schema").fetchone() == (1,)


async def test_closed_store_is_unavailable(path: str) -> None:
    store = SqliteStore(path, VirtualClock())
    with pytest.raises(Unavailable, match="not open"):
        await store.insert([])
    await store.close()


async def test_full_disk_is_unavailable_and_leaves_nothing_half_done(opened: SqliteStore) -> None:
    assert opened._open is not None
    db = opened._open._db
    await opened.insert([task(opened, 1)])
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages + 2}")
    big = [task(opened, n, b"x" * 3_000) for n in range(2, 40)]
    with pytest.raises(Unavailable, match="full"):
        await opened.insert(big)
    assert await opened.count_tasks("default", All(()), None) == [(None, 1)]
    db.execute("PRAGMA max_page_count = 1000000")
    assert len(await opened.insert(big)) == len(big)
    assert await opened.count_tasks("default", All(()), None) == [(None, 39)]


async def test_locked_file_is_unavailable_at_once(opened: SqliteStore, path: str) -> None:
    intruder = sqlite3.connect(path, isolation_level=None)
    intruder.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        await opened.insert([task(opened, 1)])
    intruder.execute("ROLLBACK")
    intruder.close()
    assert (await opened.insert([task(opened, 1)]))[0].state is InsertState.INSERTED


async def test_failing_call_rolls_back_alone_within_a_shared_commit(opened: SqliteStore) -> None:
    good = task(opened, 1)
    bad = [task(opened, 2), task(opened, 3)]
    bad[1].priority = None  # type: ignore[assignment]
    results = await asyncio.gather(
        opened.insert([good]),
        opened.insert(bad),
        opened.insert([task(opened, 4)]),
        return_exceptions=True,
    )
    assert [isinstance(result, sqlite3.IntegrityError) for result in results] == [
        False, True, False,
    ]  # fmt: skip
    found = await opened.load([task(opened, n).task_id for n in (1, 2, 3, 4)])
    assert [row is not None for row in found] == [True, False, False, True]
    with pytest.raises(sqlite3.IntegrityError):
        await opened.insert(bad)
    assert await opened.count_tasks("default", All(()), None) == [(None, 2)]


async def test_calls_that_wait_share_commits(
    opened: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened._open is not None
    writer = opened._open.writer
    commits = 0
    commit = writer._commit

    def counted() -> None:
        nonlocal commits
        commits += 1
        commit()

    monkeypatch.setattr(writer, "_commit", counted)
    await asyncio.gather(*(opened.insert([task(opened, n)]) for n in range(100)))
    assert commits == 1
    monkeypatch.setattr(writer_module, "GROUP_ITEMS", 10)
    await asyncio.gather(*(opened.insert([task(opened, n)]) for n in range(100, 200)))
    assert commits == 11
    assert await opened.claim_lanes([], 1) == []
    assert commits == 11  # nothing was written, nothing is flushed


async def test_cancelled_caller_harms_no_other(opened: SqliteStore) -> None:
    given_up = asyncio.create_task(opened.insert([task(opened, 1)]))
    kept = asyncio.create_task(opened.insert([task(opened, 2)]))
    await asyncio.sleep(0)
    given_up.cancel()
    assert (await kept)[0].state is InsertState.INSERTED
    found = await opened.load([task(opened, n).task_id for n in (1, 2)])
    assert all(row is not None for row in found)


async def test_close_finishes_what_waits(path: str) -> None:
    store = SqliteStore(path, VirtualClock())
    await store.open()
    writes = [asyncio.create_task(store.insert([task(store, n)])) for n in range(5)]
    await asyncio.sleep(0)
    await store.close()
    assert [answer[0].state for answer in await asyncio.gather(*writes)] == [
        InsertState.INSERTED
    ] * 5


async def test_log_is_copied_back_beside_the_writer(
    opened: SqliteStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "CHECKPOINT_ITEMS", 10)
    assert opened._open is not None
    before = size(path)
    await opened.insert([task(opened, n, b"x" * 500) for n in range(200)])
    checkpoint = opened._open.writer._checkpoint
    assert checkpoint is not None
    await checkpoint
    assert size(path) > before


async def test_a_claim_stops_at_its_bytes(
    opened: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims_module, "CLAIM_BYTES", 250)
    body = Payload(PayloadKind.DATA, bytes(100), None)
    await opened.insert([replace(task(opened, n), payload=body) for n in range(7)])
    wants = [Want(("default/t",), (Seat("w", 10),), 60_000, True)] * 2
    # two whole ones are below the bound, the third passes it; nothing is left for a second want
    assert [len(await opened.claim_lanes(wants, turn)) for turn in range(1, 4)] == [3, 3, 1]


async def test_plans_follow_the_indexes(opened: SqliteStore) -> None:
    """No hot statement and no default list may scan the table."""
    plans: list[str] = []
    assert opened._open is not None

    traced: list[tuple[sqlite3.Connection, list[str]]] = []
    for db in (opened._open._db, opened._open.lookups, opened._open.scans):
        statements: list[str] = []
        db.set_trace_callback(statements.append)
        traced.append((db, statements))
    one = task(opened, 1)
    await opened.insert([one])
    await opened.make_ready([one.task_id])
    grants = await opened.claim_lanes([Want(("default/t",), (Seat("w", 1),), 5_000)], 1)
    await opened.succeed([Success(grants[0].task_id, grants[0].token, None)])
    await opened.due(range(64), 0, 1)
    await opened.due([shard_of(one.task_id)], 0, 1)
    await opened.overdue(range(64), 0, (0, b""), 1)
    await opened.list_tasks(ListQuery("default", All(()), "create_time", True, (1, b""), 10))
    await opened.lane_counts("default")
    await opened.purge(0, 10)
    for db, statements in traced:
        db.set_trace_callback(None)
        for statement in statements:
            if not statement.startswith(("SELECT", "UPDATE", "DELETE")):
                continue
            rows = db.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            plans += [f"{row[3]} | {statement}" for row in rows]
    assert len(plans) > 10
    scans = [plan for plan in plans if plan.startswith("SCAN") and "USING" not in plan]
    # A handful of rows, read whole.
    assert [plan for plan in scans if not plan.startswith("SCAN shard_leases")] == []
