"""The trigger: takes what falls due from the wheel and has the engine make it READY, in batches.

Peek, swap and publish, remove: nothing leaves the wheel before the store has taken it over, so a
crash at any point fires again what was under way, and the second time loses the swap. Whatever
arrives during a pass and the short gap after it makes up the next batch; an idle trigger has no
gap to wait for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from ..batching import Pace
from ..clock import Clock
from ..domain.errors import Unavailable
from ..domain.task import ReadyAnswer, ReadyState
from ..service import Service
from ..store.port import DueEntry
from ..wheel.port import Wheel

log = logging.getLogger(__name__)

BATCH = 1_000
"""The most entries of one pass."""

GAP_MS = 6
"""The most that the next batch waits under load where a round trip costs little; and the pause
while the wheel catches up."""

BEHIND_MS = 20
"""The pause when the store's clock says that what is due here is not due yet."""

BROKEN_MS = 50
"""The pause after a batch that broke."""

RETRY_MS = 250
"""The pause when the store or the wheel is away."""

MAX_WAIT_MS = 1_000
"""The longest sleep towards a due time: a clock that is stepped forward is noticed after it."""


class ReadyMaker(Protocol):
    """What the trigger needs of the engine."""

    async def make_ready(self, ids: list[bytes]) -> list[ReadyAnswer]:
        """Swap PENDING to READY and publish; an answer per id, in order."""


class TriggerService(Service):
    """Fires the entries of one wheel. It listens to `wheel.changed`: one trigger per wheel."""

    name = "trigger"

    def __init__(
        self,
        engine: ReadyMaker,
        wheel: Wheel,
        clock: Clock,
        *,
        batch: int = BATCH,
        linger_ms: int = GAP_MS,
        allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(clock)
        # The loop clears its event before each pass, which is when the wheel wants it cleared.
        self.wake = wheel.changed
        self._engine = engine
        self._wheel = wheel
        self._batch = batch
        self._allowed = allowed  # false while this machine's clock is off
        self._limit = batch
        self._resume_at = clock.monotonic()  # no pass before
        self._pace = Pace(linger_ms)

    def watermark(self) -> int:
        """Everything due before this has been fired: the oldest due that was not, or now."""
        now = self.clock.now()
        due = self._wheel.next_due()
        return now if due is None else min(due, now)

    async def run_once(self) -> int | None:
        """Fire one batch, unless the gap after the last pass is not over."""
        if not self._allowed():
            return self.clock.now() + MAX_WAIT_MS
        started = self.clock.monotonic()
        wait = max(self._resume_at - started, self._pace.wait(started))
        if wait > 0:
            return self.clock.now() + wait
        try:
            entries = await self._wheel.peek(self.clock.now(), self._limit)
            held = await self._fire(entries) if entries else False
        except Unavailable as error:
            log.warning("trigger: %s; what is due stays and is tried again", error.message)
            return self._pause(RETRY_MS)
        except Exception:
            log.exception("trigger: a pass failed; what is due stays and is tried again")
            return self._pause(BROKEN_MS)
        if held:
            return self._pause(BEHIND_MS)
        return self._next(len(entries), started)

    async def _fire(self, entries: Sequence[DueEntry]) -> bool:
        """Make them READY; True if some must stay because the store's clock is behind this one."""
        # A task that was moved may stand in two slots of a shared wheel for a moment.
        ids = list(dict.fromkeys(entry.task_id for entry in entries))
        answers = dict(zip(ids, await self._make_ready(ids), strict=True))
        moved: list[DueEntry] = []
        done: list[DueEntry] = []
        for entry in entries:
            answer = answers[entry.task_id]
            if answer is not None and answer.state is ReadyState.EARLY:
                assert answer.due_at is not None
                if answer.due_at == entry.due_at:
                    continue
                moved.append(DueEntry(answer.due_at, entry.priority, entry.task_id))
            done.append(entry)
        # First into its own slot, then out of the wrong one: a crash between leaves both.
        if moved:
            await self._wheel.add(moved)
        if done:
            await self._wheel.remove(done)
        return len(done) < len(entries)

    async def _make_ready(self, ids: list[bytes]) -> Sequence[ReadyAnswer | None]:
        """Ask the engine. A batch that breaks is halved from pass to pass.

        So one bad task never holds up those behind it: alone in its batch it is dropped (None),
        and the sweeper, which looks at each row by itself, will meet it.
        """
        try:
            answers = await self._engine.make_ready(ids)
        except Unavailable:
            raise
        except Exception:
            self._limit = max(len(ids) // 2, 1)
            if len(ids) > 1:
                raise
            log.exception("trigger: task %s cannot be made ready, left out", ids[0].hex())
            return [None]
        self._limit = min(2 * self._limit, self._batch)
        return answers

    def _pause(self, pause_ms: int) -> int:
        self._resume_at = self.clock.monotonic() + pause_ms
        return self.clock.now() + pause_ms

    def _next(self, fired: int, started: int) -> int | None:
        """When to look again: at once after a full batch, else when something is due."""
        now, due = self.clock.now(), self._wheel.next_due()
        if fired >= self._limit:
            return now
        if fired:
            self._pace.started(started, fired)
        elif due is not None and due <= now:
            self._pause(GAP_MS)  # nothing found though something is due: the wheel catches up
        if due is None:
            return None
        monotonic = self.clock.monotonic()
        wait = max(self._resume_at - monotonic, self._pace.wait(monotonic))
        return min(max(due, now + wait), now + MAX_WAIT_MS)
