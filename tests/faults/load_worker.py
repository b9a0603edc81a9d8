"""The worker of the load: does next to nothing, and leaves a line on disk per start and end."""

from __future__ import annotations

import asyncio
import os
import time

from mainspring_worker import Context, Worker

_OUT = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
WORK_S = 0.02


def note(context: Context, what: str) -> None:
    """One line in one write: complete even if the process is killed right after."""
    line = f"{what} {context.task_id} {context.attempt} {time.time():.6f}\n"
    os.write(_OUT, line.encode())


class Loaded(Worker):
    """Takes the type that the test chose."""

    task_type = os.environ["LOAD_TYPE"]

    async def handle(self, context: Context, given: dict[str, float]) -> None:
        note(context, "start")
        await asyncio.sleep(WORK_S)
        note(context, "end")
