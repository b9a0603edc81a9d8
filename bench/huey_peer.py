"""huey (SqliteHuey) under the same load: one thread, polling each millisecond.

As shipped it polls at 0.1 s and up, so that its latency would be that wait and nothing else.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .board import Board
from .processes import BenchError, Child, CpuMeter, python
from .report import cpu_per_1000, spread

STUCK_AFTER_S = 60.0
POLLING = ("--delay", "0.001", "--max-delay", "0.001")


def latency(folder: Path, tasks: int, rate: float) -> dict[str, Any]:
    """Enqueue call to task body on an idle consumer, in ms."""
    with _peer(folder, tasks, rate) as (board, load, _):
        calls = json.loads(load.line(tasks / rate + 30))["calls"]
        starts = _wait(board)
        return spread(
            [(start - call) / 1e6 for call, start in zip(calls, starts, strict=True)], "ms"
        )


def drain(folder: Path, tasks: int) -> dict[str, Any]:
    """Tasks a second while they are enqueued, one call each, and processor time."""
    with _peer(folder, tasks, 0.0) as (board, load, meter):
        sent = json.loads(load.line(tasks / 100 + 30))
        starts = _wait(board)
        seconds, _ = meter.read()
        return {
            "tasks": tasks,
            "tasks_per_s": round(tasks * 1e9 / (max(starts) - sent["calls"][0]), 1),
            "enqueue_per_s": round(tasks * 1e9 / (sent["ended"] - sent["calls"][0]), 1),
            "cpu_s_per_1000": round(1_000 * sum(seconds.values()) / tasks, 4),
            "cpu_s_per_1000_by_kind": cpu_per_1000(seconds, tasks),
            "synchronous": _synchronous(folder),
        }


@contextmanager
def _peer(folder: Path, tasks: int, rate: float) -> Iterator[tuple[Board, Child, CpuMeter]]:
    """A consumer that is up, and a load that has begun."""
    folder.mkdir(parents=True)
    board = Board(folder / "board", tasks)
    env = {
        "BENCH_HUEY_FILE": str(folder / "huey.db"),
        "BENCH_BOARD": str(board.path),
        "BENCH_TASKS": str(tasks),
    }
    children: list[Child] = []
    try:
        load = Child("huey's load", python("-m", "bench.huey_load", str(rate)), env)
        children.append(load)
        load.line()  # it has made the file: the consumer would make it at the same time
        consumer = Child("huey's consumer", [_program(), "bench.huey_app.huey", *POLLING], env)
        children.append(consumer)
        _wait_for_consumer(consumer)
        meter = CpuMeter({"consumer": [consumer.pid], "load": [load.pid]})
        load.tell()
        yield board, load, meter
    finally:
        for child in children:
            # It would finish its wait for the next poll first, up to 10 s; all is measured.
            child.stop(signal.SIGKILL)
        board.close()


def _program() -> str:
    from sys import executable  # noqa: PLC0415 - beside the interpreter, wherever that is

    return str(Path(executable).with_name("huey_consumer"))


def _wait_for_consumer(consumer: Child) -> None:
    until = time.monotonic() + 30
    while "Huey consumer started" not in consumer.last_words():
        consumer.check()
        if time.monotonic() > until:
            raise BenchError("huey's consumer does not start")
        time.sleep(0.05)


def _wait(board: Board) -> list[int]:
    """When each body started, once all have."""
    last, since = -1, time.monotonic()
    while True:
        starts = [stamp[0] for stamp in board.stamps()]
        done = sum(map(bool, starts))
        if done == board.tasks:
            return starts
        if done != last:
            last, since = done, time.monotonic()
        elif time.monotonic() - since > STUCK_AFTER_S:
            raise BenchError(f"huey: {done} of {board.tasks} tasks ran, and none for a minute")
        time.sleep(0.02)


def _synchronous(folder: Path) -> str:
    """How durable its commits are: its default is SQLite's."""
    db = sqlite3.connect(folder / "huey.db")
    try:
        (level,) = db.execute("PRAGMA synchronous").fetchone()
    finally:
        db.close()
    return ("OFF", "NORMAL", "FULL", "EXTRA")[level]
