"""A cluster under load whose PostgreSQL, Redis and Kafka are stopped, emptied and crashed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from .cluster import LONG, Cluster, flush
from .load import Load, finish
from .processes import eventually

OUTAGE_S = 60 if LONG else 8
UNDER_WAY = 200

pytestmark = pytest.mark.timeout(900 if LONG else 300)

ROLE_OF = {"redis": "trigger", "kafka": "dispatch"}
LOWER, UPPER = {"STORE"}, {"redis": {"WHEEL"}, "kafka": {"BROKER"}}


def begun(record: Path) -> int:
    return record.read_bytes().count(b"start ") if record.exists() else 0


@pytest.mark.parametrize("names", [("redis",), ("kafka",), ("redis", "kafka")], ids="+".join)
def test_without_redis_or_kafka_tasks_go_on(
    here: Cluster, load: Load, record: Path, names: tuple[str, ...]
) -> None:
    eventually(lambda: begun(record) >= UNDER_WAY, 30, "work is under way")
    for name in names:
        here.services.kill(name)
    try:
        stopped_at = time.monotonic()
        for name in names:
            role = ROLE_OF[name]
            eventually(lambda role=role: here.rungs(role) == LOWER, 15, f"{role} steps down")
        # Half-way through the outage what was queued before it is long done: this is new work.
        time.sleep(max(0.0, stopped_at + OUTAGE_S / 2 - time.monotonic()))
        half = begun(record)
        time.sleep(max(0.0, stopped_at + OUTAGE_S - time.monotonic()))
        assert begun(record) - half >= 100 * OUTAGE_S / 2
    finally:
        for name in names:
            here.services.restart(name)
    for name in names:
        role = ROLE_OF[name]
        eventually(lambda n=name, r=role: here.rungs(r) == UPPER[n], 60, f"{role} steps up again")
    outcome = finish(here.client, load, record)
    assert load.errors == []
    assert {task.attempts for task in outcome.rows.values()} == {1}
    assert outcome.late <= 10


def test_an_emptied_redis_makes_no_task_late(here: Cluster, load: Load, record: Path) -> None:
    for n in range(1, 4):
        eventually(lambda n=n: begun(record) >= n * 3 * UNDER_WAY, 30, "work goes on")
        flush(here.services.wheel)
    outcome = finish(here.client, load, record)
    assert load.errors == []
    assert outcome.late <= 5


def test_a_crash_of_postgresql_loses_nothing(here: Cluster, load: Load, record: Path) -> None:
    eventually(lambda: begun(record) >= UNDER_WAY, 30, "work is under way")
    here.services.kill("postgresql", signal.SIGQUIT)
    here.services.restart("postgresql")
    before = begun(record)
    eventually(lambda: begun(record) >= before + UNDER_WAY, 40, "work goes on")
    finish(here.client, load, record)
    assert load.errors == []
