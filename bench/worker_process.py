"""A worker process of the bench: `mainspring_worker` as users run it, and a thread that counts.

It starts its stream when a line comes in on stdin, so that imports are no part of a measurement,
and drains when stdin is closed.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from mainspring_worker import Runner

from .board import Board
from .frames import FrameCount
from .handlers import NoOp, Stamp

COUNT_EVERY_S = 0.01


def main() -> None:
    """Run until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--board", type=Path, required=True)
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--count-frames", action="store_true")
    arguments = parser.parse_args()

    board = Board(arguments.board, arguments.tasks)
    frames = FrameCount()
    if arguments.count_frames:
        frames.install()
    runner = Runner([NoOp(), Stamp(board)], server=arguments.server, slots=arguments.slots)
    print("loaded", flush=True)
    if not sys.stdin.readline():
        return
    runner.start()
    over = threading.Event()

    def count() -> None:
        while not over.wait(COUNT_EVERY_S):
            board.count(arguments.index, runner.stats.applied, frames.sent, frames.received)

    counter = threading.Thread(target=count, name="bench-count")
    counter.start()
    sys.stdin.read()
    runner.stop(5.0)
    over.set()
    counter.join()


if __name__ == "__main__":
    main()
