"""Run a handler without a server: for the tests of those who write workers."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from mainspring.v1 import lease_pb2

from .attempt import Attempt
from .handler import Handler
from .held import Held
from .outcomes import Failed, Outcome, Snoozed, StopReason, Succeeded
from .payloads import encode_json
from .worker import Worker

__all__ = ["Failed", "HandlerRun", "Snoozed", "Succeeded", "run_handler"]


@dataclass(slots=True)
class HandlerRun:
    """What one run of a handler came to.

    `outcome` is what would have been reported: `Succeeded`, `Failed` (a `Retry` with its
    `retry_delay`, a `Fail` as not retryable) or `Snoozed`.
    """

    outcome: Outcome = field(default_factory=Succeeded)
    progress: list[tuple[float | None, str]] = field(default_factory=list)
    checkpoints: list[bytes] = field(default_factory=list)
    waiting: dict[Held, Attempt] = field(default_factory=dict, repr=False)

    @property
    def value(self) -> Any:
        """What the handler returned, as a reader of the outcome sees it; None unless it succeeded."""
        if not isinstance(self.outcome, Succeeded) or not self.outcome.outcome:
            return None
        try:
            return json.loads(self.outcome.outcome)
        except ValueError:
            return self.outcome.outcome

    def finish(self, batch: list[tuple[Attempt, Outcome]]) -> None:
        """Take the outcome, as a session does."""
        for _, self.outcome in batch:
            pass

    def report(
        self, held: Held, progress: tuple[float | None, str] | None, checkpoint: bytes | None
    ) -> None:
        """Record progress or a checkpoint, as a session takes them."""
        del held
        if progress is not None:
            self.progress.append(progress)
        if checkpoint is not None:
            self.checkpoints.append(checkpoint)


def run_handler(
    worker: Worker,
    payload: Any = None,
    *,
    attempt: int = 1,
    checkpoint: Any = None,
    metadata: Mapping[str, str] | None = None,
    stop: StopReason | None = None,
) -> HandlerRun:
    """Run a worker's handler once, as the runtime would, and answer what came of it.

    `payload` takes the way of a real one: bytes as data, None as no body, anything else as
    JSON. `checkpoint` is what an earlier attempt has left. `stop` tells the handler from the
    start to stop, as a cancellation would: one that does not look at its context runs on. May
    be called where an event loop runs; an async handler then has a loop of its own.
    """
    handler = Handler(worker)
    lease = lease_pb2.Lease(
        task_id=str(uuid.uuid4()),
        lease_token=attempt,
        task_type=(*handler.task_types, "test")[0],
        queue=(*handler.queues, *handler.task_types)[0],
        attempt=attempt,
        max_attempts=max(4, attempt),
        checkpoint=b"" if checkpoint is None else encode_json(checkpoint),
    )
    lease.due_time.GetCurrentTime()
    if isinstance(payload, bytes):
        lease.payload.data = payload
    elif payload is not None:
        lease.payload.json = encode_json(payload).decode()
    lease.payload.metadata.update(metadata or {})
    record = HandlerRun()
    run = Attempt(Held(lease, inf, inf, inf), handler, record)
    run.context.last_report = time.monotonic()
    if stop is not None:
        run.context.stop(stop)
    record.finish([(run, _outcome(run))])
    return record


def _outcome(run: Attempt) -> Outcome:
    if not run.handler.is_async:
        return run.call()
    outcomes: list[Outcome] = []
    # A thread of its own: the caller's may already run a loop.
    thread = threading.Thread(target=lambda: outcomes.append(asyncio.run(run.call_async())))
    thread.start()
    thread.join()
    return outcomes[0]
