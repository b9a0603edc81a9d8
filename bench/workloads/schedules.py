"""Many schedules: how fast they are made, what they weigh, a restart with them, one minute's worth."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mainspring import Client, CronSchedule, NewTask

from ..board import Board
from ..handlers import NOOP
from ..load import submit_all, wait_for_end, wait_until
from ..options import Options
from ..processes import CpuMeter
from ..report import cpu_per_1000
from ..site import Site

TASKS = 20_000
"""Schedules; each is hourly, at a minute of its own."""

MINUTES = 60
SLOTS = 1_000
LEAD_S = 5.0
"""The workers are connected so long before the minute that is measured."""


def run(options: Options) -> dict[str, Any]:
    """Make them, restart the servers, and run what one minute brings."""
    count, slots = options.tasks or TASKS, options.slots or SLOTS
    with Site(options.rung, options.folder / "site", processes=options.processes) as site:
        bare = _memory(site)
        meter = CpuMeter(site.kinds(), load=True)
        started, ended = asyncio.run(
            submit_all(site.address, _schedules(count), options.batch, options.in_flight)
        )
        with Client(site.address, timeout=600) as client:
            wait_until(lambda: client.count("status=PENDING", timeout=600).total, count, site)
        made_s = time.monotonic() - started / 1e9
        seconds, _ = meter.read()
        memory = _memory(site)
        restart_s = site.restart()
        again = _memory(site)
        minute = _one_minute(site, options, count, slots)
        durability = site.synchronous_commit
    return {
        "tasks": minute.pop("tasks"),
        "schedules": count,
        **minute,
        "submit_per_s": round(count * 1e9 / (ended - started), 1),
        "made_per_s": round(count / made_s, 1),
        "cpu_s_per_1000": round(1_000 * sum(seconds.values()) / count, 4),
        "cpu_s_per_1000_by_kind": cpu_per_1000(seconds, count),
        "memory_mib": {"before": bare, "with_schedules": memory, "after_restart": again},
        "restart_s": round(restart_s, 3),
        "batch": {"submit": options.batch, "in_flight": options.in_flight, "slots": slots},
        "synchronous_commit": durability,
    }


def _schedules(count: int) -> Iterator[NewTask]:
    return (
        NewTask(NOOP, cron=CronSchedule(f"{n % MINUTES} * * * *", exact=True)) for n in range(count)
    )


def _one_minute(site: Site, options: Options, count: int, slots: int) -> dict[str, Any]:
    """From a full minute to the end of the last of its instances."""
    board = Board(options.folder / "board", count)
    now = datetime.now(UTC)
    minute = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    if (minute - now).total_seconds() < LEAD_S:
        minute += timedelta(minutes=1)
    # What fell due before, while nobody worked, would be counted as well: so only from then on.
    time.sleep(max(minute.timestamp() - LEAD_S - time.time(), 0.0))
    site.add_workers(board, slots=slots, count=options.workers)
    site.connect_workers()
    due = range(minute.minute, count, MINUTES)
    with Client(site.address, timeout=60) as client:
        wait_until(lambda: 0 if _open(client) else 1, 1, site)
        before = board.ended()
        time.sleep(max(minute.timestamp() - time.time(), 0.0))
        began = time.monotonic_ns()
        ended = wait_for_end(board, before + len(due), site)
    return {
        "tasks": len(due),
        "succeeded": board.ended() - before,
        "minute_s": round((ended - began) / 1e9, 3),
        "tasks_per_s": round(len(due) * 1e9 / (ended - began), 1),
    }


def _open(client: Client) -> int:
    """Instances of earlier minutes that have not ended."""
    return client.count("status=READY").total + client.count("status=RUNNING").total


def _memory(site: Site) -> int:
    """Resident MiB of the server processes."""
    kinds = site.kinds()
    names = [kind for kind in kinds if kind in ("server", "api", "trigger", "dispatch", "sweep")]
    return sum(_resident(pid) for name in names for pid in kinds[name]) // 1_024


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
