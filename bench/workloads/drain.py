"""No-op tasks at full speed: submitted and run at the same time, then the running alone."""

from __future__ import annotations

import asyncio
import time
from itertools import repeat
from typing import Any

from mainspring import NewTask

from .. import huey_peer
from ..board import Board
from ..handlers import NOOP
from ..load import submit_all, succeeded, wait_for_end, warm_up
from ..options import Options
from ..processes import CpuMeter
from ..raw import raw_life_cycles
from ..report import cpu_per_1000
from ..site import Site

TASKS = {"embedded": 20_000, "postgres": 50_000, "distributed": 50_000}
PEER_TASKS = 5_000
SLOTS = 1_000


def run(options: Options) -> dict[str, Any]:
    """One drain, the raw figure before it, the peer after it."""
    tasks = options.tasks or TASKS[options.rung]
    slots = options.slots or SLOTS
    with Site(options.rung, options.folder / "site", processes=options.processes) as site:
        raw = raw_life_cycles(site, options.folder, tasks, options.batch)
        board = Board(options.folder / "board", tasks)
        site.add_workers(board, slots=slots, count=options.workers)
        site.connect_workers()
        warm_up(site.address)
        together = _together(site, board, options, tasks)
        site.stop_workers()
        alone = _alone(site, options, tasks, slots)
        done = succeeded(site.address, NOOP, 2 * tasks)
        # Again, for others may have used the disk the first time: the higher one is the measure.
        again = raw_life_cycles(site, options.folder, tasks, options.batch)
        raw = {key: max(value, again[key]) for key, value in raw.items()}
        durability = site.synchronous_commit
    result = {
        "tasks": tasks,
        "succeeded": done - tasks,
        **together,
        **raw,
        "ratio": round(together["tasks_per_s"] / raw["raw_life_cycle_per_s"], 4),
        "alone": alone,
        "batch": {"submit": options.batch, "in_flight": options.in_flight, "slots": slots},
        "synchronous_commit": durability,
    }
    peer_tasks = PEER_TASKS if options.peer_tasks is None else options.peer_tasks
    if options.rung == "embedded" and peer_tasks:
        result["huey"] = huey_peer.drain(options.folder / "huey", peer_tasks)
    return result


def _together(site: Site, board: Board, options: Options, tasks: int) -> dict[str, Any]:
    """Submit while the workers run what was submitted."""
    meter = CpuMeter(site.kinds(), load=True)
    started, submitted = asyncio.run(
        submit_all(site.address, repeat(NewTask(NOOP), tasks), options.batch, options.in_flight)
    )
    ended = wait_for_end(board, tasks, site)
    seconds, others = meter.read()
    return {
        "tasks_per_s": round(tasks * 1e9 / (ended - started), 1),
        "seconds": round((ended - started) / 1e9, 3),
        "submit_per_s": round(tasks * 1e9 / (submitted - started), 1),
        "cpu_s_per_1000": round(1_000 * sum(seconds.values()) / tasks, 4),
        "cpu_s_per_1000_by_kind": cpu_per_1000(seconds, tasks),
        "cores_taken_by_others": round(others * 1e9 / (ended - started), 2),
    }


def _alone(site: Site, options: Options, tasks: int, slots: int) -> dict[str, Any]:
    """Submit while no worker is there, then let the workers in."""
    started, submitted = asyncio.run(
        submit_all(site.address, repeat(NewTask(NOOP), tasks), options.batch, options.in_flight)
    )
    board = Board(options.folder / "board-alone", tasks)
    site.add_workers(board, slots=slots, count=options.workers)
    meter = CpuMeter(site.kinds())
    begun = time.monotonic_ns()
    site.connect_workers()
    ended = wait_for_end(board, tasks, site)
    seconds, _ = meter.read()
    return {
        "submit_per_s": round(tasks * 1e9 / (submitted - started), 1),
        "tasks_per_s": round(tasks * 1e9 / (ended - begun), 1),
        "cpu_s_per_1000": round(1_000 * sum(seconds.values()) / tasks, 4),
        "cpu_s_per_1000_by_kind": cpu_per_1000(seconds, tasks),
    }
