"""Ending a task of one's own for certain."""

from __future__ import annotations

import asyncio

_AGAIN_S = 0.05


async def end(task: asyncio.Task[None]) -> None:
    """Cancel until it has ended; its outcome is nobody's business any more.

    Once may not be enough: before Python 3.12, `wait_for`, which the driver uses, loses a
    cancellation that arrives together with its result.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_AGAIN_S)
    if not task.cancelled():
        task.exception()
