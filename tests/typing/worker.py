"""What the type checker says about uses and misuses of the worker runtime; nothing here runs."""

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from mainspring_worker import Context, Fail, Retry, Runner, Snooze, Stats, StopReason, Worker
from mainspring_worker.testing import HandlerRun, run_handler


@dataclass
class Image:
    """What the payload is read as."""

    path: str


class Thumbnail(Worker):
    """A handler in a thread."""

    task_type = "thumbnail"
    slots = 4
    stall_timeout = timedelta(seconds=30)

    def handle(self, context: Context, image: Image) -> dict[str, int]:
        """Every part of the context has a type."""
        assert_type(context.lease_token, int)
        assert_type(context.attempt, int)
        assert_type(context.stop_reason, StopReason | None)
        assert_type(context.cancelled, bool)
        context.progress(0.5, "half")
        if not image.path:
            raise Fail("no path")
        if context.attempt == 1:
            raise Retry(delay=1.5)
        raise Snooze(delay=timedelta(minutes=1))


class Fetch(Worker):
    """A handler in the event loop."""

    task_types = ("fetch", "fetch-again")

    async def handle(self, context: Context, payload: bytes) -> bytes:
        """Async is as good."""
        return payload


def uses() -> None:
    """Several classes run in one process."""
    runner = Runner([Thumbnail(), Fetch()], slots=8, drain_timeout=5)
    assert_type(runner.stats, Stats)
    assert_type(run_handler(Fetch(), b"x"), HandlerRun)


def misuses() -> None:
    """Each of these is an error."""
    Runner(Thumbnail())  # type: ignore[arg-type]
    Runner([Thumbnail])  # type: ignore[list-item]
    Retry()  # type: ignore[call-arg]
    Thumbnail().run(slots="4")  # type: ignore[arg-type]
