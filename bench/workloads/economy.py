"""What a task costs at a steady rate: statements, commands, records and messages for each."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any

from mainspring import NewTask

from ..board import Board
from ..counters import OWN, Counters, counted_by_servers
from ..handlers import NOOP
from ..load import submit_at_rate, succeeded, wait_for_end, warm_up
from ..options import Options
from ..processes import BenchError, CpuMeter
from ..report import cpu_per_1000
from ..site import Site

RATE = 2_000.0
SECONDS = 20.0
BATCH = 100
SLOTS = 1_000
DELAY_S = (1.0, 5.0)
SLACK = 60
"""What goes on while one reading follows the other: leases, the pager, the connections' own."""


def run(options: Options) -> dict[str, Any]:
    """Half of the tasks at once, half of them delayed by 1 to 5 s."""
    if options.rung == "embedded":
        raise BenchError("economy counts at services: take the postgres or the distributed rung")
    rate, slots = options.rate or RATE, options.slots or SLOTS
    tasks = options.tasks or round(rate * (options.seconds or SECONDS))
    with Site(options.rung, options.folder / "site", processes=options.processes) as site:
        board = Board(options.folder / "board", tasks)
        site.add_workers(board, slots=slots, count=options.workers, count_frames=True)
        site.connect_workers()
        warm_up(site.address)
        counters = Counters(site)
        before, own_before = asyncio.run(counters.read()), counted_by_servers(site)
        frames = board.frames()
        meter = CpuMeter(site.kinds(), load=True)
        parts = _parts(tasks)
        started, latest = asyncio.run(submit_at_rate(site.address, parts, BATCH / rate))
        ended = wait_for_end(board, tasks, site)
        seconds, _ = meter.read()
        after, own_after = asyncio.run(counters.read()), counted_by_servers(site)
        done = succeeded(site.address, NOOP, tasks)
        durability = site.synchronous_commit
        messages = board.frames() - frames
    spent = {key: after[key] - before[key] for key in after}
    own = {key: own_after[name] - own_before[name] for key, name in OWN.items() if key in spent}
    _check(spent, own)
    return {
        "tasks": tasks,
        "succeeded": done,
        "tasks_per_s": round(tasks * 1e9 / (ended - started), 1),
        "submitted_per_s": rate,
        "latest_batch_s": round(latest, 3),
        **{f"{key}_per_task": round(value / tasks, 5) for key, value in spent.items()},
        "grpc_per_task": round(messages / tasks, 5),
        "counted_by_servers": own,
        "counted_by_services": {key: spent[key] for key in own},
        "cpu_s_per_1000": round(1_000 * sum(seconds.values()) / tasks, 4),
        "cpu_s_per_1000_by_kind": cpu_per_1000(seconds, tasks),
        "batch": {"submit": BATCH, "slots": slots},
        "synchronous_commit": durability,
        "measured_at": int(time.time()),
    }


def _check(spent: Mapping[str, int], own: Mapping[str, int]) -> None:
    """The servers' own counters are as good as the services', but for moments between readings."""
    for key, count in own.items():
        if abs(count - spent[key]) > SLACK + spent[key] // 50:
            raise BenchError(f"{key}: the servers counted {count}, the service {spent[key]}")


def _parts(tasks: int) -> list[list[NewTask]]:
    """Every other task is delayed; the same delays in every run."""
    chance = random.Random(7)
    made = [
        NewTask(NOOP, delay=round(chance.uniform(*DELAY_S), 3) if n % 2 else None)
        for n in range(tasks)
    ]
    return [made[first : first + BATCH] for first in range(0, tasks, BATCH)]
