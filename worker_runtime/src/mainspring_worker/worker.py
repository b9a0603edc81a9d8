"""The class to subclass: one kind of work."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from .context import Context


class Worker:
    """One kind of work: name what to take, and write `handle`.

    For example::

        class ThumbnailWorker(Worker):
            task_type = "thumbnail"

            async def handle(self, context: Context, image: Image) -> Thumbnail: ...

    Handlers of one class run concurrently on one object of it, up to its slots.
    """

    task_type: ClassVar[str] = ""
    """The type of task that it takes."""

    task_types: ClassVar[Sequence[str]] = ()
    """Several types, in place of one."""

    queue: ClassVar[str] = ""
    """A named queue to take from: with no task type, every type in it."""

    queues: ClassVar[Sequence[str]] = ()
    """Several queues, in place of one."""

    slots: ClassVar[int | None] = None
    """Tasks at a time, for this class alone. None: it shares the runner's slots."""

    stall_timeout: ClassVar[float | timedelta | None] = None
    """Within this time `context.progress` must be called, or the lease is left to lapse.

    None: a handler in a thread is presumed alive for as long as it runs.
    """

    def handle(self, context: Context, payload: Any, /) -> Any:
        """Do one task; the second parameter's annotation says what the payload is read as.

        `async def` runs in the handlers' event loop, `def` in a thread. What it returns is
        kept as the task's outcome: bytes as they are, anything else as JSON, at most 64 KiB.
        `Retry`, `Snooze` and `Fail` say how to go on; any other exception is a failure that
        is retried while attempts remain. A task may be seen twice: be idempotent.
        """
        raise NotImplementedError(f"{type(self).__name__} has no handle(self, context, input)")

    def run(self, server: str | None = None, *, slots: int | None = None) -> None:
        """Run this class alone until SIGTERM or SIGINT, then drain. See `Runner`."""
        from .runner import Runner  # noqa: PLC0415 - the runner knows workers, not the reverse

        Runner([self], server=server, slots=slots).run()
