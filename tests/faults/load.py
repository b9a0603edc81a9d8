"""A steady load of immediate and delayed tasks, and the check that nothing of it was lost."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mainspring import Client, NewTask, Task
from mainspring.enums import CountGroupBy
from mainspring.errors import MainspringError
from mainspring.submission import Submitted

THREADS = 2
TICK_S = 0.1
EARLY_S = 0.005
"""How exact the worker's clock reading is, against the server's rounding up."""


@dataclass(frozen=True, slots=True)
class Run:
    """One line pair of a worker: an attempt that began, at `start` seconds since the epoch."""

    attempt: int
    start: float


def runs(record: Path) -> dict[str, list[Run]]:
    """What workers began, by task id."""
    found: dict[str, list[Run]] = defaultdict(list)
    for line in record.read_text().splitlines():
        what, task_id, attempt, when = line.split()
        if what == "start":
            found[task_id].append(Run(int(attempt), float(when)))
    return found


class Load:
    """Submits `rate` tasks a second, half of them at once and half delayed, until stopped.

    Each submission has an idempotency key, so the client repeats what was UNAVAILABLE: `errors`
    are those that reached the caller all the same.
    """

    def __init__(self, server: str, rate: int = 300) -> None:
        self.task_type = f"load-{secrets.token_hex(4)}"
        self.accepted: dict[str, float] = {}
        """Due time by task id."""
        self.delayed: set[str] = set()
        self.errors: list[Exception] = []
        self._server = server
        self._batch = max(1, round(rate * TICK_S / THREADS))
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._submit) for _ in range(THREADS)]

    def start(self) -> Load:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """End; a second call does nothing."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _submit(self) -> None:
        with Client(self._server) as client:
            at = time.monotonic()
            while not self._stop.is_set():
                at = max(at + TICK_S, time.monotonic())
                self._one_batch(client)
                self._stop.wait(at - time.monotonic())

    def _one_batch(self, client: Client) -> None:
        delays = [random.choice([None, random.uniform(0.2, 3.0)]) for _ in range(self._batch)]
        tasks = [NewTask(self.task_type, {}, delay=delay) for delay in delays]
        try:
            results = client.submit_batch(tasks, dedupe=True)
        except MainspringError as error:
            self.errors.append(error)
            return
        for delay, result in zip(delays, results, strict=True):
            if isinstance(result, Submitted):
                assert result.due_time is not None
                self.accepted[result.task_id] = result.due_time.timestamp()
                if delay is not None:
                    self.delayed.add(result.task_id)
            else:
                self.errors.append(result)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a load: its rows and what workers did with each."""

    rows: Mapping[str, Task]
    runs: Mapping[str, Sequence[Run]]
    late: float
    """Seconds that the latest first start came after its due time."""


def finish(client: Client, load: Load, record: Path, timeout: float = 60) -> Outcome:
    """Stop the load, wait until all of it has ended, and check what holds whatever the fault was:
    every accepted task SUCCEEDED, none began before it was due, attempts are those that began.
    """
    load.stop()
    assert load.accepted, load.errors
    wait_until_ended(client, load, timeout)
    rows = {
        task.task_id: task for task in client.list(f"task_type={load.task_type}", page_size=1000)
    }
    assert load.accepted.keys() <= rows.keys()
    assert {task.status.name for task in rows.values()} == {"SUCCEEDED"}
    began = runs(record)
    late = 0.0
    for task_id, due in load.accepted.items():
        starts = [run.start for run in began[task_id]]
        assert starts, f"{task_id} SUCCEEDED, and no worker began it"
        assert min(starts) >= due - EARLY_S, f"{task_id} began {due - min(starts):.3f} s early"
        late = max(late, min(starts) - due)
        attempts = {run.attempt for run in began[task_id]}
        assert max(attempts) == rows[task_id].attempts
    return Outcome(rows, began, late)


def wait_until_ended(client: Client, load: Load, timeout: float) -> None:
    """Until no task of the load is under way."""
    until = time.monotonic() + timeout
    while True:
        counted = client.count(f"task_type={load.task_type}", group_by=[CountGroupBy.STATUS])
        ended = sum(
            group.count
            for group in counted.groups
            if group.status is not None
            and group.status.name in ("SUCCEEDED", "FAILED", "CANCELLED")
        )
        if ended == counted.total:
            return
        assert time.monotonic() < until, f"not ended within {timeout} s: {counted.groups}"
        time.sleep(0.5)
