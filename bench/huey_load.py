"""Enqueues tasks into huey: as fast as it goes, or one at a time at a rate."""

from __future__ import annotations

import json
import sys
import time

from .huey_app import board, stamp


def main() -> None:
    """Print "loaded", wait for a line, enqueue, print the times, wait for the end of stdin."""
    rate = float(sys.argv[1])
    print("loaded", flush=True)
    sys.stdin.readline()
    calls = []
    due = time.monotonic()
    for number in range(board.tasks):
        if rate:
            due += 1 / rate
            time.sleep(max(due - time.monotonic(), 0.0))
        calls.append(time.monotonic_ns())
        stamp(number)
    print(json.dumps({"calls": calls, "ended": time.monotonic_ns()}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
