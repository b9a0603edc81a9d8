"""Following tasks to their end: what `watch` and `submit --wait` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from mainspring.v1.query_requests_pb2 import WatchRequest
from mainspring.v1.task_pb2 import TASK_STATUS_SUCCEEDED
from mainspring.v1.task_requests_pb2 import StatusRequest

from .exits import CliError, ExitCode
from .views import TERMINAL, status_name, transition_text

if TYPE_CHECKING:
    from mainspring.v1.task_pb2 import Task, Transition

    from .connection import Connection

Show = Callable[[str], None]


def follow(
    connection: Connection,
    task_ids: Sequence[str],
    limit_ms: int | None,
    *,
    show: Show | None = None,
    record: Callable[[Transition], None] | None = None,
    forever: bool = False,
) -> dict[str, int]:
    """Read transitions until every task is terminal; the last status of each.

    Raises:
        CliError: The time is over, with exit code 124, or the server went away for good.
    """
    request = WatchRequest(task_ids=task_ids, until_terminal=not forever)
    limit_s = None if limit_ms is None else max(limit_ms, 1) / 1_000
    last: dict[str, int] = {}
    # The longest id in front keeps the lines of several tasks apart.
    several = len(task_ids) > 1
    for transition in _transitions(connection, request, limit_s):
        last[transition.task_id] = transition.status
        if record is not None:
            record(transition)
        if show is not None:
            prefix = f"{transition.task_id}  " if several else ""
            show(f"{prefix}{status_name(transition.status)}  {transition_text(transition)}")
    return last


def _transitions(
    connection: Connection, request: WatchRequest, limit_s: float | None
) -> Iterable[Transition]:
    """The stream's transitions, each once: opened again when a server restarts."""
    seen: dict[str, int] = {}
    end = None if limit_s is None else time.monotonic() + limit_s
    while True:
        left = None if end is None else max(end - time.monotonic(), 0.001)
        try:
            for response in connection.stream("Watch", request, timeout_s=left):
                for transition in response.transitions:
                    if transition.version > seen.get(transition.task_id, 0):
                        seen[transition.task_id] = transition.version
                        yield transition
            return
        except CliError as error:
            if end is not None and time.monotonic() >= end:
                raise _too_late(len(request.task_ids)) from None
            # Before the first answer there is nothing to resume: the address may be wrong.
            if error.code is not ExitCode.UNAVAILABLE or not seen:
                raise
            connection.wait_until_ready(left)


def _too_late(tasks: int) -> CliError:
    what = "the task has" if tasks == 1 else "the tasks have"
    return CliError(
        f"the time to wait is over and {what} not ended",
        ExitCode.TIMED_OUT,
        hint="It goes on by itself; `mainspring explain TASK_ID` says what it waits for.",
    )


def read_task(connection: Connection, task_id: str) -> Task:
    """One task, without its payload."""
    task: Task = connection.call("Status", StatusRequest(task_id=task_id)).task
    return task


def exit_by_status(statuses: Iterable[int]) -> None:
    """Exit 1 if a task ended in another way than SUCCEEDED."""
    if any(status in TERMINAL and status != TASK_STATUS_SUCCEEDED for status in statuses):
        raise typer.Exit(ExitCode.TASK_FAILED)
