"""Schedules that tick each second while the server is killed: the chain goes on, tick for tick."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring import (
    CatchUp,
    CatchUpPolicy,
    Client,
    CronSchedule,
    Instance,
    OverlapPolicy,
    RetryPolicy,
)
from mainspring.enums import InstanceOutcome

from .processes import Site, eventually, site

KILLS = 20 if os.environ.get("MAINSPRING_FAULTS") == "long" else 2
SCHEDULES = 20
CRON = CronSchedule(
    "* * * * * *",
    exact=True,
    overlap_policy=OverlapPolicy.ALLOW_ALL,
    catch_up=CatchUp(policy=CatchUpPolicy.ALL, max_runs=1_000),
)

RETRY = RetryPolicy(max_attempts=100, initial_delay=0.1, max_delay=1)
"""Each kill costs what ran an attempt."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as running:
        yield running


def test_i6_no_tick_is_lost_or_doubled_by_kills(here: Site) -> None:
    here.worker("naps", "Nap", slots=200)
    chance = random.Random(1)
    with Client(here.address) as client:
        ids = [
            client.submit("nap", {"seconds": 0.0}, cron=CRON, retry=RETRY).task_id
            for _ in range(SCHEDULES)
        ]
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.3, 1.5))  # the fault comes at any instant
            here.server.kill()
            here.server.restart()
            here.healthy()
        last = {task_id: client.pause(task_id).pause_time for task_id in ids}
        eventually(lambda: not any(live(client, task_id) for task_id in ids), 60, "all have ended")
        for task_id in ids:
            check(client, task_id, str(last[task_id]))


CALLS = ("visit", "due_schedules", "make_ready", "claim_lanes", "succeed")
FAILPOINTS = [f"{where} {call}" for call in CALLS for where in ("before", "after")]
ROUNDS = 20 if os.environ.get("MAINSPRING_FAULTS") == "long" else 1
"""Of each failpoint."""


def test_i6_killed_at_each_step_of_making_and_firing(here: Site) -> None:
    """A real SIGKILL, at the very call: by its own store's hand."""
    here.worker("naps", "Nap", slots=200)
    chance = random.Random(2)
    plain = here.server.args
    deadly = [sys.executable, str(Path(__file__).with_name("failpoint_server.py")), *plain[1:]]
    with Client(here.address) as client:
        ids = [
            client.submit("nap", {"seconds": 0.0}, cron=CRON, retry=RETRY).task_id
            for _ in range(SCHEDULES)
        ]
        here.server.kill()
        for failpoint in FAILPOINTS * ROUNDS:
            env = {"FAILPOINT": failpoint, "CALLS": str(chance.randint(1, 3))}
            here.server.args, here.server.env = deadly, {**here.env, **env}
            here.server.restart()
            assert here.server.child.wait(30) == -signal.SIGKILL, failpoint
        here.server.args, here.server.env = plain, here.env
        here.server.restart()
        here.healthy()
        last = {task_id: client.pause(task_id).pause_time for task_id in ids}
        eventually(lambda: not any(live(client, task_id) for task_id in ids), 60, "all have ended")
        for task_id in ids:
            check(client, task_id, str(last[task_id]))


def live(client: Client, schedule: str) -> int:
    """Its tasks that have not ended, one that waits for another attempt too."""
    where = f'schedule_id="{schedule}"'
    ended = (
        client.count(f"{where} AND status={status}").total
        for status in ("SUCCEEDED", "FAILED", "CANCELLED")
    )
    return client.count(where).total - sum(ended)


def check(client: Client, schedule: str, paused: str) -> None:
    """Each second from the first to the pause fired once, and each of its tasks ran."""
    rows = [row for row in client.history(schedule) if isinstance(row, Instance)]
    rows = [row for row in rows if row.outcome is InstanceOutcome.FIRED][::-1]
    seconds = [round(row.nominal_time.timestamp()) for row in rows if row.nominal_time]
    assert seconds == list(range(seconds[0], seconds[-1] + 1)), paused
    assert len(seconds) >= KILLS
    tasks = list(client.list(f'schedule_id="{schedule}"', page_size=1_000))
    made = Counter(task.nominal_time for task in tasks if task.status.name == "SUCCEEDED")
    assert max(made.values()) == 1
    assert len(made) == len(seconds)
