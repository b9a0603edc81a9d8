"""The end of a worker: finish or give back what it holds, within a deadline."""

import logging
import time
from collections.abc import Sequence
from typing import Final

from .link import Link

log = logging.getLogger("mainspring.worker")

STOP_TIMEOUT: Final = 2.0
"""What handlers get to stop once the deadline has passed, and the server to answer."""


def drain(links: Sequence[Link], reason: str, timeout: float) -> bool:
    """Drain sessions; True if every handler ended and everything was answered.

    Nothing more is taken, what has not begun is handed back, and what runs has `timeout`
    seconds. What runs longer is told to stop: what does is handed back without counting the
    attempt, what does not is left behind for its lease to lapse.
    """
    deadline = time.monotonic() + timeout
    for link in links:
        link.begin_drain(reason, timeout)
    _settle(links, deadline)
    for link in links:
        link.stop_running()
    settled = _settle(links, time.monotonic() + STOP_TIMEOUT)
    left = sum(link.close(STOP_TIMEOUT) for link in links)
    if left:
        log.warning("%d handlers did not stop; their leases will lapse", left)
    return settled


def _settle(links: Sequence[Link], deadline: float) -> bool:
    # Each is waited for, whatever came of the one before.
    settled = [link.settled.wait(max(0.0, deadline - time.monotonic())) for link in links]
    return all(settled)
