"""`mainspring …` whose store ends the process by SIGKILL, before or after the n-th call of a kind.

FAILPOINT is "before visit" and the like, CALLS the n.
"""

from __future__ import annotations

import inspect
import os
import signal
from itertools import count
from typing import Any

from mainspring_server import app
from mainspring_server.cli.app import main

WHERE, _, CALL = os.environ["FAILPOINT"].partition(" ")
TURNS = count(1)
LAST = int(os.environ["CALLS"])


class Deadly:
    """A store that is as it was, but for the one call."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "schedules":
            return Deadly(found)
        if name != CALL or not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            last = next(TURNS) == LAST
            if last and WHERE == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = await found(*args, **options)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return call


open_store = app.open_store
app.open_store = lambda settings, clock: Deadly(open_store(settings, clock))
main()
