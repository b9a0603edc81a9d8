"""Plans are pinned: the batch leads into the primary key, whatever the statistics say."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from mainspring_server.store.postgres import (
    PostgresStore,
    claims,
    edges,
    insert,
    queries,
    transitions,
)
from mainspring_server.store.postgres.pool import Session

BY_ID = (
    claims.CLAIM,
    claims.CLAIM_LANES,
    transitions.MAKE_READY,
    transitions.SUCCEED,
    transitions.APPLY,
    transitions.EXTEND,
    transitions.ACKNOWLEDGE,
    transitions.DEFER,
    transitions.REPUBLISH,
    queries.LOAD,
    queries.LOAD_FULL,
    edges.LOCK_PREDECESSORS,
    edges.FIND_WAITING,
    edges.LOCK_WAITING,
    edges.MARK_FROM,
    edges.MARK_ALL,
    edges.TOLD,
    edges.HANDED,
)
BY_CHECK = (queries.DUE, queries.OVERDUE, claims.WINDOW)


async def plan(store: PostgresStore, sql: str, arguments: str = "") -> list[str]:
    """The generic plan, on a connection of the store's own; its arguments prune partitions."""
    count = max(int(number) for number in re.findall(r"\$(\d+)", sql))
    arguments = arguments or ", ".join(["NULL"] * count)

    async def work(session: Session) -> list[str]:
        await session.script(f"PREPARE pinned AS {sql}")
        try:
            rows = await session.rows(f"EXPLAIN EXECUTE pinned({arguments})")
        finally:
            await session.script("DEALLOCATE pinned")
        return [row[0] for row in rows]

    return await store._work.run(work)


def check_by_id(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert "Seq Scan" not in text
    assert "Hash Join" not in text
    assert "Merge Join" not in text
    # The tables' own nodes: everything below the batch, through the primary key.
    joined = [
        line for line in lines if re.search(r"Scan (using|on) \S* ?(on )?(tasks|task_pay)", line)
    ]
    looked_up = [line for line in joined if " q" not in line]
    assert looked_up
    assert all("_pkey" in line for line in looked_up), text


@pytest.mark.parametrize("ready_index", [False, True])
async def test_ids_go_through_the_primary_key_on_empty_partitions(
    url: str, ready_index: bool
) -> None:
    store = PostgresStore(url, ready_index=ready_index)
    await store.open()
    try:
        for sql in BY_ID:
            if ready_index or sql is not claims.CLAIM_LANES:  # without the index the store scans
                check_by_id(await plan(store, sql))
    finally:
        await store.close()


async def test_the_plans_stay_when_partitions_are_full_and_analysed(
    indexed: PostgresStore, database: Any, make: Callable[..., Any]
) -> None:
    now = await indexed.now()
    for _ in range(10):
        await indexed.insert([make(now) for _ in range(500)])
    await database.execute("ANALYZE")
    for sql in BY_ID:
        check_by_id(await plan(indexed, sql))


async def test_checks_walk_their_index_in_its_order(store: PostgresStore) -> None:
    for sql in BY_CHECK:
        text = "\n".join(await plan(store, sql))
        assert "Seq Scan" not in text
        assert "shard_next_check_at_idx" in text
        assert "Index Cond: ((shard" in text
        assert re.search(r"Merge Append.*\n.*Sort Key: .*next_check_at\n", text), text


async def test_claim_by_lane_walks_the_ready_index_in_order(indexed: PostgresStore) -> None:
    lines = [line.strip(" ->") for line in await plan(indexed, claims.CLAIM_LANES)]
    nodes = [line.split("  (")[0] for line in lines]
    append = nodes.index("Merge Append")
    assert nodes[append - 1] == "LockRows"
    assert nodes[append + 1] == "Sort Key: q.priority, q.due_at"
    assert "namespace_queue_priority_due_at_idx" in nodes[append + 2]


async def test_the_batch_is_the_outer_side_so_rows_are_locked_in_its_order(
    store: PostgresStore,
) -> None:
    for sql in (
        transitions.SUCCEED,
        transitions.MAKE_READY,
        transitions.APPLY,
        transitions.EXTEND,
        edges.LOCK_PREDECESSORS,
        edges.LOCK_WAITING,
        edges.TOLD,
    ):
        lines = await plan(store, sql)
        batch = next(n for n, line in enumerate(lines) if "Function Scan on u" in line)
        table = next(n for n, line in enumerate(lines) if "Index Scan using" in line)
        assert batch < table
        assert not any("Sort" in line for line in lines)


async def test_keys_are_taken_in_digest_order(store: PostgresStore) -> None:
    text = "\n".join(await plan(store, insert.KEYED))
    assert re.search(r"Insert on idempotency_keys.*\n(.*\n){1,6}?.*Sort Key: x.digest", text), text
    assert "Join" not in text


async def test_edges_are_found_from_either_side_through_an_index(store: PostgresStore) -> None:
    low, high = f"'{bytes(16).hex()}'", f"'{'f' * 32}'"
    one, by_both = "(downstream = u.downstream)", "_predecessor_downstream_idx"
    for sql, arguments, index, condition in (
        (edges.FIND_WAITING, f"NULL, {low}, 9", by_both, "= u.predecessor) AND (downstream >"),
        (edges.MARK_FROM, f"NULL, {low}, {high}, NULL", by_both, ") AND (downstream >= $2) AND ("),
        (edges.MARK_ALL, "NULL", "_pkey", one),
        (edges.COUNT, "NULL", "_pkey", one),
        (edges.HANDED, "NULL", "_pkey", one),
    ):
        lines = await plan(store, sql, arguments)
        scans = [n for n, line in enumerate(lines) if " on task_dependencies" in line]
        found = [n for n in scans if "Scan using" in lines[n]]
        assert found, "\n".join(lines)
        for n in found:
            assert index in lines[n], "\n".join(lines)
            assert condition in lines[n + 1], "\n".join([sql, *lines])
    # One page costs one page: below the limit of each predecessor nothing is sorted.
    text = "\n".join(await plan(store, edges.FIND_WAITING, f"NULL, {low}, 9"))
    assert "Sort" not in text.rpartition("Limit")[2], text


async def test_an_id_prunes_to_one_partition(
    store: PostgresStore, database: Any, make: Callable[..., Any]
) -> None:
    task = make(await store.now())
    await store.insert([task])
    rows = await database.fetch(
        f"EXPLAIN SELECT * FROM tasks WHERE task_id = '{task.task_id.hex()}'::uuid"
    )
    tables = {name for row in rows for name in re.findall(r" on (tasks_\w+)", row[0])}
    assert len(tables) == 1
