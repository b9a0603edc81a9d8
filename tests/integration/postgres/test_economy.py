"""What the hot path costs: HOT updates, statements, and the scan that needs no index."""

from collections.abc import Callable
from typing import Any

import pytest

from mainspring_server.domain.leases import Success
from mainspring_server.domain.task import Status
from mainspring_server.store.postgres import PostgresStore, claims

Make = Callable[..., Any]


async def test_ready_and_claim_are_hot(store: PostgresStore, database: Any, make: Make) -> None:
    """Of the three updates only the last, which clears next_check_at, touches an index."""
    now = await store.now()
    for _ in range(10):
        tasks = [make(now, status=Status.PENDING) for _ in range(500)]
        await store.insert(tasks)
        answers = await store.make_ready([task.task_id for task in tasks])
        want = claims.Want(("default/work",), (claims.Seat("w1", 500),), 5_000)
        grants = await store.claim([answer.ref for answer in answers if answer.ref], want)
        assert all(await store.succeed([Success(g.task_id, g.token, None) for g in grants]))
    await store.close()  # a backend reports its counts when it ends
    updates, hot = 0, 0
    while updates < 15_000:
        await database.execute("SELECT pg_stat_clear_snapshot()")
        updates, hot = await database.fetchrow(
            "SELECT sum(n_tup_upd)::int, sum(n_tup_hot_upd)::int FROM pg_stat_user_tables "
            "WHERE relname LIKE 'tasks\\_%'"
        )
    assert hot / updates > 0.62


async def test_one_statement_a_batch(store: PostgresStore, make: Make) -> None:
    now = await store.now()
    tasks = [make(now) for _ in range(49)]
    for expected, call in (
        (1, lambda: store.insert(tasks)),
        (1, lambda: store.load([task.task_id for task in tasks], payload=True)),
        (1, lambda: store.succeed([Success(task.task_id, 1, None) for task in tasks])),
        (2, lambda: store.make_ready([task.task_id for task in tasks])),  # and who lost
    ):
        before = store.statements
        await call()
        assert store.statements - before == expected


async def test_statements_agree_with_the_servers_count(
    store: PostgresStore, database: Any, make: Make, want: Any
) -> None:
    await database.execute("SELECT pg_stat_statements_reset()")
    now = await store.now()
    before = store.statements
    for _ in range(5):
        await store.insert([make(now) for _ in range(100)])
        grants = await store.claim_lanes([want(100)], 1)
        await store.succeed([Success(g.task_id, g.token, None) for g in grants])
    counted = await database.fetchval(
        "SELECT sum(calls)::int FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid "
        "WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%' "
        "AND query !~ 'typinfo|pg_catalog.pg_type|LIMIT \\$?1'"
    )
    # The driver looks types up once a connection, which the door does not count.
    assert abs(counted - (store.statements - before)) <= 12


async def test_the_scan_finds_every_ready_row_window_by_window(
    store: PostgresStore, make: Make, want: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "WINDOW_ROWS", 7)
    now = await store.now()
    tasks = [make(now, due_in=n % 3 * 60_000) for n in range(150)]
    ready = {task.task_id for task in tasks if task.status is Status.READY}
    await store.insert(tasks)
    found: set[bytes] = set()
    for _ in range(60):
        grants = await store.claim_lanes([want(5)], 1)
        assert len(grants) <= 5
        assert not found & {grant.task_id for grant in grants}
        found |= {grant.task_id for grant in grants}
    assert found == ready


async def test_the_index_is_a_fact_of_the_database(
    url: str, indexed: PostgresStore, make: Make, want: Any
) -> None:
    plain = PostgresStore(url)
    await plain.open()
    assert plain._indexed
    now = await plain.now()
    await plain.insert([make(now, 5_000), make(now)])
    assert len(await indexed.claim_lanes([want(5)], 1)) == 1
    assert len(await indexed.due(range(64), now + 6_000, 10)) == 1
    await plain.close()
