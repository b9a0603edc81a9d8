"""Single Submit calls on an idle system: from the call to the start of the handler."""

from __future__ import annotations

import time
from typing import Any

from mainspring import Client

from .. import huey_peer
from ..board import Board
from ..handlers import STAMP
from ..load import succeeded, wait_for_end
from ..options import Options
from ..report import spread
from ..site import Site

RATE = 40.0
SECONDS = 10.0
SLOTS = 32
WARM_UP = 20
"""Calls that are not counted: the first ones open connections and fill caches."""
PEER_TASKS = 200


def run(options: Options) -> dict[str, Any]:
    """Calls at an even rate, one at a time, on the blocking client."""
    rate = options.rate or RATE
    counted = options.tasks or round(rate * (options.seconds or SECONDS))
    warm_up = min(WARM_UP, counted)
    tasks = counted + warm_up
    slots = options.slots or SLOTS
    board = Board(options.folder / "board", tasks)
    with Site(options.rung, options.folder / "site", processes=options.processes) as site:
        site.add_workers(board, slots=slots, count=options.workers)
        site.connect_workers()
        calls, answers = _calls(site.address, tasks, rate)
        wait_for_end(board, tasks, site)
        succeeded(site.address, STAMP, tasks)
        durability = site.synchronous_commit
    starts = [stamp[0] for stamp in board.stamps()]
    result = {
        "tasks": counted,
        "succeeded": counted,
        "rate_per_s": rate,
        **spread(_ms(calls, starts)[warm_up:], "ms"),
        **spread(_ms(calls, answers)[warm_up:], "submit_ms"),
        "tasks_per_s": round(tasks * 1e9 / (max(starts) - calls[0]), 1),
        "batch": {"submit": 1, "slots": slots},
        "synchronous_commit": durability,
    }
    peer_tasks = PEER_TASKS if options.peer_tasks is None else options.peer_tasks
    if options.rung == "embedded" and peer_tasks:
        result["huey"] = huey_peer.latency(options.folder / "huey", peer_tasks, rate)
    return result


def _calls(address: str, tasks: int, rate: float) -> tuple[list[int], list[int]]:
    """When each call began and when it was answered, in monotonic ns."""
    calls, answers = [], []
    with Client(address) as client:
        due = time.monotonic()
        for number in range(tasks):
            due += 1 / rate
            time.sleep(max(due - time.monotonic(), 0.0))
            calls.append(time.monotonic_ns())
            client.submit(STAMP, number)
            answers.append(time.monotonic_ns())
    return calls, answers


def _ms(before: list[int], after: list[int]) -> list[float]:
    return [(b - a) / 1e6 for a, b in zip(before, after, strict=True)]
