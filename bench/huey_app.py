"""The peer of the embedded rung: huey on a SQLite file, as its consumer loads it."""

from __future__ import annotations

import os
from pathlib import Path

from huey import SqliteHuey  # type: ignore[import-untyped]

from .board import Board

huey = SqliteHuey(filename=os.environ["BENCH_HUEY_FILE"])
board = Board(Path(os.environ["BENCH_BOARD"]), int(os.environ["BENCH_TASKS"]))


@huey.task()  # type: ignore[untyped-decorator]
def stamp(number: int) -> None:
    """Note when the task's body starts."""
    board.stamp(number)
