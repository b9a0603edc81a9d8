"""A cluster under load whose processes are killed, frozen, doubled and restarted."""

from __future__ import annotations

import itertools
import signal
import time
from pathlib import Path

import pytest

from tests.services import RealServices

from .cluster import LONG, ROLES, Cluster, cluster
from .load import Load, finish
from .processes import eventually

KILLS = 10 if LONG else 2
"""Of each role."""
FROZEN_S = 8
"""Longer than a lease, and than the hold on a shard."""
UNDER_WAY = 200
"""Tasks that have begun before the fault: the system is warm."""

pytestmark = pytest.mark.timeout(3_600 if LONG else 300)


def begun(record: Path) -> int:
    return record.read_bytes().count(b"start ") if record.exists() else 0


def under_way(record: Path) -> None:
    eventually(lambda: begun(record) >= UNDER_WAY, 30, "work is under way")


@pytest.mark.parametrize("role", ROLES)
def test_a_killed_process_loses_nothing(here: Cluster, load: Load, record: Path, role: str) -> None:
    under_way(record)
    names = itertools.cycle(here.names(role))
    for _ in range(KILLS):
        here.kill(next(names))
    outcome = finish(here.client, load, record)
    assert {task.attempts for task in outcome.rows.values()} <= {1, 2}
    assert load.errors == []


def test_the_shards_of_a_killed_owner_are_fired_by_another(
    here: Cluster, load: Load, record: Path
) -> None:
    under_way(record)
    name = here.names("trigger")[0]
    before = here.info(name)
    assert before is not None
    theirs = {shard.shard for shard in before.shards if shard.owner == before.node_id}
    assert theirs
    killed_at = time.time()
    here.kill(name)
    outcome = finish(here.client, load, record)
    due_then = {
        task_id for task_id in load.delayed if killed_at <= load.accepted[task_id] <= killed_at + 5
    }
    assert due_then
    assert outcome.late <= 5
    after = here.info(here.names("trigger")[1])
    assert after is not None
    assert len({shard.shard for shard in after.shards if shard.owner != before.node_id}) == 64


def test_two_owners_of_every_shard_fire_each_task_once(
    services: RealServices, tmp_path: Path, record: Path
) -> None:
    counts = "api=1,dispatch=1,sweep=1"
    with cluster(tmp_path, services, counts, MAINSPRING_OWN_ALL_SHARDS="1") as doubled:
        load = doubled.load()
        doubled.worker(load, record)
        load.start()
        try:
            eventually(lambda: begun(record) >= 10 * UNDER_WAY, 60, "enough has run")
            outcome = finish(doubled.client, load, record)
        finally:
            load.stop()
    for task_id, task in outcome.rows.items():
        assert len(outcome.runs[task_id]) == 1
        # Submitted (1), fired if it was delayed (+1), claimed (+1), ended (+1): nothing twice.
        assert task.version == (4 if task_id in load.delayed else 3)


def test_a_rolling_restart_is_not_noticed(here: Cluster, load: Load, record: Path) -> None:
    under_way(record)
    for role in ROLES:
        for name in here.names(role):
            here.restart(name)
    outcome = finish(here.client, load, record)
    assert load.errors == []
    assert {task.attempts for task in outcome.rows.values()} == {1}


def test_the_tasks_of_a_killed_worker_are_done_by_another(
    here: Cluster, load: Load, record: Path
) -> None:
    for _ in range(KILLS):
        doomed = here.worker(load, record)
        time.sleep(1)  # the fault comes at an instant, in the middle of the work
        doomed.kill()
    outcome = finish(here.client, load, record)
    assert {task.attempts for task in outcome.rows.values()} <= {1, 2}
    assert load.errors == []


@pytest.mark.parametrize("role", ["trigger", "dispatch"])
def test_a_frozen_process_changes_nothing_when_it_wakes(
    here: Cluster, load: Load, record: Path, role: str
) -> None:
    under_way(record)
    name = here.names(role)[0]
    here.signal(name, signal.SIGSTOP)
    began = time.monotonic()
    try:
        before = begun(record)
        time.sleep(FROZEN_S)
        eventually(lambda: begun(record) - before >= 100 * FROZEN_S, 30, "work goes on")
    finally:
        here.signal(name, signal.SIGCONT)
    frozen_s = time.monotonic() - began
    outcome = finish(here.client, load, record)
    assert load.errors == []
    assert outcome.late <= frozen_s
    assert {task.attempts for task in outcome.rows.values()} <= {1, 2}
