"""Workers that behave badly on demand; each appends a line per start to the file RECORD."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from datetime import timedelta
from pathlib import Path

from mainspring_worker import Context, Worker

_LOCK = threading.Lock()


def note(context: Context, what: str = "start") -> None:
    """One line, on disk before the handler goes on."""
    with _LOCK, Path(os.environ["RECORD"]).open("a") as out:
        out.write(f"{what} {context.task_id} {context.attempt} {time.time():.6f}\n")


class Nap(Worker):
    """Sleeps for `seconds` without holding the loop."""

    task_type = "nap"

    async def handle(self, context: Context, given: dict[str, float]) -> None:
        note(context)
        await asyncio.sleep(given["seconds"])
        note(context, "end")


class Block(Worker):
    """Holds its event loop on the first attempt."""

    task_type = "block"

    async def handle(self, context: Context, given: dict[str, float]) -> None:
        note(context)
        if context.attempt == 1:
            time.sleep(given["seconds"])  # noqa: ASYNC251 - that is the fault
        note(context, "end")


class Silent(Worker):
    """A sync handler that makes no progress on its first attempt."""

    task_type = "silent"
    stall_timeout = timedelta(seconds=0.5)

    def handle(self, context: Context, given: dict[str, float]) -> None:
        note(context)
        until = time.monotonic() + (given["seconds"] if context.attempt == 1 else 0)
        while time.monotonic() < until:
            time.sleep(0.05)
        note(context, "end")


class Talking(Worker):
    """A sync handler that is as slow but says how far it is."""

    task_type = "talking"
    stall_timeout = timedelta(seconds=0.5)

    def handle(self, context: Context, given: dict[str, float]) -> None:
        note(context)
        until = time.monotonic() + given["seconds"]
        while time.monotonic() < until:
            context.progress(0.5, "still at it")
            time.sleep(0.05)
        note(context, "end")
