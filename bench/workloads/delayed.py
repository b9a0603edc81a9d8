"""Tasks that fall due within one second: how late their handlers start, and that none is early."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from mainspring import NewTask

from ..board import Board
from ..handlers import STAMP
from ..load import submit_all, succeeded, wait_for_end
from ..options import Options
from ..processes import BenchError
from ..report import spread
from ..site import Site

TASKS = 2_000
AHEAD_S = 4.0
"""From the first submission to the first due time."""
SPREAD_S = 1.0


def run(options: Options) -> dict[str, Any]:
    """Due times evenly over one second."""
    return measure(options, SPREAD_S)


def measure(options: Options, spread_s: float) -> dict[str, Any]:
    """Submit ahead, let them fall due, compare the starts with the due times."""
    tasks = options.tasks or TASKS
    slots = options.slots or TASKS
    board = Board(options.folder / "board", tasks)
    with Site(options.rung, options.folder / "site", processes=options.processes) as site:
        site.add_workers(board, slots=slots, count=options.workers)
        site.connect_workers()
        base = datetime.now(UTC) + timedelta(seconds=AHEAD_S)
        due = [base + timedelta(seconds=spread_s * n / tasks) for n in range(tasks)]
        news = (NewTask(STAMP, n, due_time=at) for n, at in enumerate(due))
        asyncio.run(submit_all(site.address, news, options.batch, options.in_flight))
        if datetime.now(UTC) > base - timedelta(seconds=0.5):
            raise BenchError("the tasks were not submitted ahead of their due time")
        wait_for_end(board, tasks, site)
        done = succeeded(site.address, STAMP, tasks)
        durability = site.synchronous_commit
    late = [
        wall / 1e6 - at.timestamp() * 1e3 for (_, wall), at in zip(board.stamps(), due, strict=True)
    ]
    early = sum(value < 0 for value in late)
    if early:
        raise BenchError(f"{early} of {tasks} tasks started early, by up to {-min(late):.3f} ms")
    return {
        "tasks": tasks,
        "succeeded": done,
        "early": early,
        **spread(late, "late_ms"),
        "tasks_per_s": round(tasks / (spread_s + max(late) / 1e3), 1),
        "spread_s": spread_s,
        "measured_at": int(time.time()),
        "batch": {"submit": options.batch, "slots": slots},
        "synchronous_commit": durability,
    }
