"""What a task costs at a steady rate: statements, commands, records and messages for each."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from mainspring import NewTask

from ..board import Board
from ..counters import Counters
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
        before = asyncio.run(counters.read())
        frames = board.frames()
        meter = CpuMeter(site.kinds(), load=True)
        parts = _parts(tasks)
        started, latest = asyncio.run(submit_at_rate(site.address, parts, BATCH / rate))
        ended = wait_for_end(board, tasks, site)
        seconds, _ = meter.read()
        after = asyncio.run(counters.read())
        done = succeeded(site.address, NOOP, tasks)
        durability = site.synchronous_commit
        messages = board.frames() - frames
    spent = {key: after[key] - before[key] for key in after}
    return {
        "tasks": tasks,
        "succeeded": done,
        "tasks_per_s": round(tasks * 1e9 / (ended - started), 1),
        "submitted_per_s": rate,
        "latest_batch_s": round(latest, 3),
        **{f"{key}_per_task": round(value / tasks, 5) for key, value in spent.items()},
        "grpc_per_task": round(messages / tasks, 5),
        "cpu_s_per_1000": round(1_000 * sum(seconds.values()) / tasks, 4),
        "cpu_s_per_1000_by_kind": cpu_per_1000(seconds, tasks),
        "batch": {"submit": BATCH, "slots": slots},
        "synchronous_commit": durability,
        "measured_at": int(time.time()),
    }


def _parts(tasks: int) -> list[list[NewTask]]:
    """Every other task is delayed; the same delays in every run."""
    chance = random.Random(7)
    made = [
        NewTask(NOOP, delay=round(chance.uniform(*DELAY_S), 3) if n % 2 else None)
        for n in range(tasks)
    ]
    return [made[first : first + BATCH] for first in range(0, tasks, BATCH)]
