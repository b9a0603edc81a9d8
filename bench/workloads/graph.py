"""Graphs: how many edges a second at full speed, and how soon a dependent starts at light load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

from mainspring import AsyncClient, Dependencies, NewTask

from ..board import Board
from ..handlers import NOOP, STAMP
from ..load import succeeded, wait_for_end, warm_up
from ..options import Options
from ..processes import CpuMeter
from ..report import cpu_per_1000, spread
from ..site import Site

TASKS = {"embedded": 10_000, "postgres": 20_000, "distributed": 20_000}
WIDTH, LAYERS, DEGREE = 10, 10, 3
"""Of one graph: each task waits for so many of the layer above."""
EDGES = WIDTH * (LAYERS - 1) * DEGREE
SLOTS = 1_000
RATE = 20.0
SECONDS = 10.0
WARM_UP = 10
"""Pairs that are not counted: the first ones open connections and fill caches."""


def run(options: Options) -> dict[str, Any]:
    """Pairs at an even rate on an idle system, then layered graphs as fast as they go."""
    slots = options.slots or SLOTS
    with Site(options.rung, options.folder / "site", processes=options.processes) as site:
        latency = _latency(site, options, slots)
        full = _full_speed(site, options, slots)
        durability = site.synchronous_commit
    return {
        **full,
        **latency,
        "graph": {"width": WIDTH, "layers": LAYERS, "predecessors": DEGREE},
        "batch": {"submit": WIDTH * LAYERS, "in_flight": options.in_flight, "slots": slots},
        "synchronous_commit": durability,
    }


# --- At light load ----------------------------------------------------------------------------


def _latency(site: Site, options: Options, slots: int) -> dict[str, Any]:
    """From the start of a predecessor, which ends at once, to the start of its dependent.

    So the way of the result to the server and of the lease to the worker are parts of it.
    """
    rate = options.rate or RATE
    pairs = max(round(rate * (options.seconds or SECONDS)), 1)
    warm_up = min(WARM_UP, pairs)
    tasks = 2 * (pairs + warm_up)
    board = Board(options.folder / "board-pairs", tasks)
    site.add_workers(board, slots=slots, count=options.workers)
    site.connect_workers()
    asyncio.run(_submit_pairs(site.address, pairs + warm_up, rate))
    wait_for_end(board, tasks, site)
    succeeded(site.address, STAMP, tasks)
    site.stop_workers()
    starts = [stamp[0] for stamp in board.stamps()][2 * warm_up :]
    after = [(b - a) / 1e6 for a, b in zip(starts[::2], starts[1::2], strict=True)]
    return {"pairs": pairs, "rate_per_s": rate, **spread(after, "ms")}


async def _submit_pairs(address: str, pairs: int, rate: float) -> None:
    """One graph of two tasks every 1 / rate seconds."""
    async with AsyncClient(address, timeout=60) as client:
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for n in range(pairs):
                await asyncio.sleep(max(started + n / rate - time.monotonic(), 0.0))
                first = NewTask(STAMP, 2 * n, local_ref="a")
                after = Dependencies(local_refs=["a"])
                second = NewTask(STAMP, 2 * n + 1, dependencies=after)
                group.create_task(client.submit_graph([first, second]))


# --- At full speed ----------------------------------------------------------------------------


def _full_speed(site: Site, options: Options, slots: int) -> dict[str, Any]:
    """Submit graphs while the workers run what is released."""
    graphs = max((options.tasks or TASKS[options.rung]) // (WIDTH * LAYERS), 1)
    tasks = graphs * WIDTH * LAYERS
    board = Board(options.folder / "board-graphs", tasks)
    site.add_workers(board, slots=slots, count=options.workers)
    site.connect_workers()
    warm_up(site.address)
    meter = CpuMeter(site.kinds(), load=True)
    started = asyncio.run(_submit_graphs(site.address, graphs, options.in_flight))
    ended = wait_for_end(board, tasks, site)
    seconds, _ = meter.read()
    done = succeeded(site.address, NOOP, tasks)
    return {
        "tasks": tasks,
        "succeeded": done,
        "edges": graphs * EDGES,
        "edges_per_s": round(graphs * EDGES * 1e9 / (ended - started), 1),
        "tasks_per_s": round(tasks * 1e9 / (ended - started), 1),
        "seconds": round((ended - started) / 1e9, 3),
        "cpu_s_per_1000": round(1_000 * sum(seconds.values()) / tasks, 4),
        "cpu_s_per_1000_by_kind": cpu_per_1000(seconds, tasks),
    }


async def _submit_graphs(address: str, graphs: int, in_flight: int) -> int:
    """One call a graph, several on their way at a time; answers when the first began."""
    layered = _layered()
    turns: Iterator[int] = iter(range(graphs))
    async with AsyncClient(address, timeout=60) as client:
        # The channel is open before the clock runs: connecting is no part of a graph.
        await client.count("status=FAILED")
        started = time.monotonic_ns()

        async def sender() -> None:
            for _ in turns:
                await client.submit_graph(layered)

        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(sender())
    return started


def _layered() -> Sequence[NewTask]:
    """Layers of tasks, each of which waits for its neighbours in the layer above."""
    made = [NewTask(NOOP, local_ref=f"0.{n}") for n in range(WIDTH)]
    for layer in range(1, LAYERS):
        for n in range(WIDTH):
            above = [f"{layer - 1}.{(n + k) % WIDTH}" for k in range(DEGREE)]
            waits = Dependencies(local_refs=above)
            made.append(NewTask(NOOP, local_ref=f"{layer}.{n}", dependencies=waits))
    return made
