"""One run of the job: submit a task for each file, follow them, collect what they returned."""

import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from files import Listing
from worker import FileToIndex, IndexFile

from mainspring import Client, CountGroupBy, MainspringError, NewTask, RetryPolicy, TaskStatus

LONGEST_DELAY_S = 2.0
DELAYED_EVERY = 4
STUMBLES_EVERY = 10
RETRY = RetryPolicy(initial_delay=0.2, max_delay=1.0)
LOOK_EVERY_S = 0.2
ENDED = (TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELLED)

Progress = Callable[[dict[str, int]], None]


@dataclass
class Run:
    """What came of one run."""

    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: float = field(default_factory=time.monotonic)
    task_ids: dict[str, str] = field(default_factory=dict)
    """Task id → path."""
    contents: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Path → what its task returned."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Path → attempts that its task took."""
    failures: dict[str, str] = field(default_factory=dict)
    """Path → why there is nothing about it."""

    @property
    def filter(self) -> str:
        """What `mainspring list --filter` takes to show this run's tasks."""
        return f'task_type={IndexFile.task_type} AND labels.run="{self.run_id}"'

    @property
    def retries(self) -> int:
        """Attempts beyond the first."""
        return sum(attempts - 1 for attempts in self.attempts.values())


def tasks_of(run: Run, listing: Listing) -> list[NewTask]:
    """A task for each file: most at once, some later, some that stumble once."""
    return [
        NewTask(
            IndexFile.task_type,
            FileToIndex(str(listing.folder), path, stumble=number % STUMBLES_EVERY == 1),
            delay=_delay(number),
            # A batch whose answer was lost is sent again; the key keeps it from doubling.
            idempotency_key=f"{run.run_id}-{number}",
            labels={"run": run.run_id},
            retry=RETRY,
        )
        for number, path in enumerate(listing.paths, 1)
    ]


def _delay(number: int) -> float | None:
    if number % DELAYED_EVERY:
        return None
    # Spread over the two seconds, in tenths, in an order of its own.
    return (number * 7 % 20 + 1) * LONGEST_DELAY_S / 20


def submit(client: Client, run: Run, listing: Listing) -> None:
    """Hand in all tasks, 1,000 in a call; a file whose task is refused is a failure."""
    answers = client.submit_batch(tasks_of(run, listing))
    for path, answer in zip(listing.paths, answers, strict=True):
        if isinstance(answer, MainspringError):
            run.failures[path] = f"not submitted: {answer}"
        else:
            run.task_ids[answer.task_id] = path


def follow(client: Client, run: Run, progress: Progress, check: Callable[[], None]) -> None:
    """Until every task has ended; `check` raises when there is no point in going on."""
    never = threading.Event()
    while True:
        check()
        asked = time.monotonic()
        count = client.count(run.filter, group_by=[CountGroupBy.STATUS])
        by_status = {str(group.status): group.count for group in count.groups}
        progress(by_status)
        if sum(by_status.get(status, 0) for status in ENDED) >= len(run.task_ids):
            return
        # On a large folder a look costs more; it must stay a small part of the work.
        never.wait(max(LOOK_EVERY_S, 4 * (time.monotonic() - asked)))


def collect(client: Client, run: Run) -> None:
    """Read what the tasks returned: the small result travels with the task."""
    for task in client.list(run.filter, page_size=1_000):
        path = run.task_ids.get(task.task_id)
        if path is None:
            continue
        run.attempts[path] = task.attempts
        if task.status is TaskStatus.SUCCEEDED:
            run.contents[path] = json.loads(task.outcome)
        else:
            first_line = (task.last_error or task.status_reason).partition("\n")[0]
            run.failures[path] = f"{task.status}: {first_line}"
    for path in set(run.task_ids.values()) - run.contents.keys() - run.failures.keys():
        run.failures[path] = "its task is not in the list"


def printable(path: str) -> str:
    """A path for a terminal: bytes that are no UTF-8, and control characters, are escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
