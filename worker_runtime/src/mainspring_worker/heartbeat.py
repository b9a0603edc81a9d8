"""Signs of life from outside the handlers, per task, and the watchdog that withholds them."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from .attempt import Attempt
from .link import Link
from .loop import HandlerLoop

log = logging.getLogger("mainspring.worker")

LOOP_PATIENCE: Final = 1.0
"""A loop that is silent for longer gets no further tasks."""


class LoopWatch:
    """Finds the handler that holds the loop: the same one in every look while a ping is open.

    A loop that is merely busy answers late, but its current task changes; then nobody is blamed.
    """

    def __init__(self) -> None:
        self._silent_since: float | None = None
        self._suspect: Attempt | None = None
        self._suspect_since = 0.0

    def look(self, now: float, *, answered: bool, current: Attempt | None) -> None:
        """Take one look: whether the last ping was answered, and who is in the middle of a step."""
        if answered:
            self._silent_since = self._suspect = None
            return
        if self._silent_since is None:
            self._silent_since = now
        if current is not self._suspect:
            self._suspect, self._suspect_since = current, now

    def silence(self, now: float) -> float:
        """How long the loop has not answered, in seconds."""
        return 0.0 if self._silent_since is None else now - self._silent_since

    def blamed(self, now: float, bound: float) -> Attempt | None:
        """Name the handler that has held the loop for longer than `bound` seconds."""
        return (
            self._suspect
            if self._suspect is not None and now - self._suspect_since > bound
            else None
        )


class Heartbeat:
    """The thread that beats, watches the loop, and stops what is past its time."""

    def __init__(self, links: Sequence[Link], loop: HandlerLoop) -> None:
        self._links = links
        self._loop = loop
        self._watch = LoopWatch()
        self._noted: Attempt | None = None
        self._wake = threading.Event()
        self._ending = False
        self._next = 0.0
        self._thread = threading.Thread(
            target=self._serve, name="mainspring-heartbeat", daemon=True
        )
        for link in links:
            link.due = self.due

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread."""
        self._ending = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def due(self, moment: float) -> None:
        """Look no later than at `moment`, on the monotonic clock."""
        if moment < self._next:
            self._next = moment
            self._wake.set()

    def _serve(self) -> None:
        while not self._ending:
            self._wake.clear()
            try:
                again = self._beat(time.monotonic())
            except Exception:
                # Without beats every lease would lapse: go on, whatever it was.
                log.exception("a round of beats ended by a defect")
                again = time.monotonic() + 1.0
            self._next = again
            self._wake.wait(max(0.002, again - time.monotonic()))

    def _beat(self, now: float) -> float:
        self._observe(now)
        again = now + min(link.interval for link in self._links)
        for link in self._links:
            blamed = self._watch.blamed(now, link.heartbeat_interval)
            if blamed is not None and blamed is not self._noted:
                self._note(blamed)
            patience = min(LOOP_PATIENCE, link.heartbeat_interval / 2)
            silent = self._watch.silence(now) > patience
            again = min(again, link.tick(now, blamed, loop_silent=silent))
        return again

    def _observe(self, now: float) -> None:
        loop = self._loop
        if loop.answered:
            self._watch.look(now, answered=True, current=None)
            self._noted = None
            loop.ping()
        else:
            running = [attempt for link in self._links for attempt in link.attempts()]
            self._watch.look(now, answered=False, current=loop.current_attempt(running))

    def _note(self, blamed: Attempt) -> None:
        self._noted = blamed
        log.warning(
            "task %s (%s) holds the handlers' event loop: no beats for it, its lease lapses. "
            "Write a handler that blocks as `def handle`: it then runs in a thread",
            blamed.held.task_id,
            blamed.handler.name,
        )
