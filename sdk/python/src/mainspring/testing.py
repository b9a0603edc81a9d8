"""Stand-ins for the clients in unit tests: no server, no network, no waiting.

Code that takes a `TaskClient` or `AsyncTaskClient` gets one of these in its tests:

    client = FakeClient()
    sign_up(client, "ada@example.org")
    assert [task.task_type for task in client.submitted] == ["welcome-mail"]

They record what is submitted, encode it as the real clients do (so a payload without a JSON form
fails here too), answer repeated idempotency keys as the server does, and run nothing: a test
settles a task itself.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Unpack

from ._convert import decode
from ._payload import json_text
from ._task_calls import BatchResults, submit_request
from .enums import TaskStatus, TaskView
from .errors import AlreadyExists, DeadlineExceeded, MainspringError, NotFound
from .submission import NewTask, Submitted, TaskOptions
from .tasks import Payload, Task
from .v1 import task_requests_pb2


class Recorder:
    """What both fakes share: the tasks submitted so far, and what a test does to them."""

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        """Start empty.

        Args:
            now: The clock for create and due times; default the machine's.
        """
        self.submitted: list[NewTask] = []
        """What was submitted, in order; repetitions of a key are left out."""
        self.tasks: dict[str, Task] = {}
        """The tasks by id, as they stand."""
        self._now = now or (lambda: datetime.now(UTC))
        self._keys: dict[tuple[str, str], tuple[bytes, str]] = {}
        self._failures: list[MainspringError] = []

    def fail_next(self, error: MainspringError) -> None:
        """Let the next call raise this; several times for several calls."""
        self._failures.append(error)

    def succeed(self, task_id: str, result: object = None) -> Task:
        """Let a task be SUCCEEDED, with what its handler is to have returned."""
        outcome = b"" if result is None else json_text(result).encode()
        return self._end(task_id, TaskStatus.SUCCEEDED, outcome=outcome)

    def fail(self, task_id: str, error: str) -> Task:
        """Let a task be FAILED, with the message of its last attempt."""
        return self._end(task_id, TaskStatus.FAILED, last_error=error)

    def _end(
        self, task_id: str, status: TaskStatus, *, outcome: bytes = b"", last_error: str = ""
    ) -> Task:
        task = self._find(task_id)
        if task.status.is_terminal:
            raise ValueError(f"{task_id} is {task.status} already, which is final")
        self.tasks[task_id] = dataclasses.replace(
            task,
            status=status,
            version=task.version + 1,
            outcome=outcome,
            last_error=last_error,
            complete_time=self._now(),
        )
        return self.tasks[task_id]

    def _check(self) -> None:
        if self._failures:
            raise self._failures.pop(0)

    def _find(self, task_id: str) -> Task:
        if task_id not in self.tasks:
            raise NotFound(f"no task {task_id}", reason="TASK_NOT_FOUND")
        return self.tasks[task_id]

    def _accept(self, task: NewTask) -> Submitted:
        request = submit_request(task, dedupe=False)
        if task.idempotency_key:
            body = request.SerializeToString(deterministic=True)
            key = (task.task_type, task.idempotency_key)
            first_body, task_id = self._keys.get(key, (body, ""))
            if first_body != body:
                raise AlreadyExists(
                    f"idempotency key {task.idempotency_key!r} was used for {task_id}",
                    reason="IDEMPOTENCY_KEY_REUSED",
                    metadata={"task_id": task_id},
                )
            if task_id:
                return self._submitted(self.tasks[task_id], existing=True)
        stored = self._store(task, request)
        if task.idempotency_key:
            self._keys[key] = (body, stored.task_id)
        return self._submitted(stored, existing=False)

    def _store(self, task: NewTask, request: task_requests_pb2.SubmitRequest) -> Task:
        number = len(self.tasks) + 1
        now = self._now()
        stored = Task(
            task_id=f"00000000-0000-7000-8000-{number:012x}",
            task_type=task.task_type,
            queue=task.queue or task.task_type,
            status=_first_status(task),
            version=1,
            priority=5 if task.priority is None else task.priority,
            create_time=now,
            due_time=_first_due(task, now),
            labels=dict(task.labels),
            max_attempts=(task.retry.max_attempts if task.retry else None) or 4,
            payload=decode(Payload, request.payload),
            local_ref=task.local_ref,
            retry=task.retry,
            timeouts=task.timeouts,
            dependencies=task.dependencies,
        )
        self.tasks[stored.task_id] = stored
        self.submitted.append(task)
        return stored

    @staticmethod
    def _submitted(task: Task, *, existing: bool) -> Submitted:
        return Submitted(
            task_id=task.task_id, status=task.status, due_time=task.due_time, existing=existing
        )

    def _submit_batch(self, tasks: Sequence[NewTask], *, atomic: bool) -> BatchResults:
        self._check()
        before = (list(self.submitted), dict(self.tasks), dict(self._keys))
        results: BatchResults = []
        for task in tasks:
            try:
                results.append(self._accept(task))
            except MainspringError as error:
                if atomic:
                    self.submitted, self.tasks, self._keys = before
                    raise
                results.append(error)
        return results

    def _get(self, task_id: str, view: TaskView) -> Task:
        self._check()
        task = self._find(task_id)
        if view == TaskView.FULL:
            return task
        return dataclasses.replace(task, payload=None, retry=None, timeouts=None, dependencies=None)

    def _cancel(self, task_id: str, reason: str) -> int:
        self._check()
        task = self._find(task_id)
        if task.status.is_terminal:
            return 0
        cancelled = self._end(task_id, TaskStatus.CANCELLED)
        self.tasks[task_id] = dataclasses.replace(cancelled, status_reason=reason)
        return 1

    def _wait(self, task_id: str) -> Task:
        task = self._get(task_id, TaskView.BASIC)
        if not task.status.is_terminal:
            raise DeadlineExceeded(
                f"{task_id} is {task.status}, and nothing here runs it: settle it with succeed() "
                "or fail() before it is awaited"
            )
        return task


def _first_status(task: NewTask) -> TaskStatus:
    if task.dependencies is not None:
        return TaskStatus.CREATED
    if task.delay is not None or task.due_time is not None or task.cron is not None:
        return TaskStatus.PENDING
    return TaskStatus.READY


def _first_due(task: NewTask, now: datetime) -> datetime | None:
    if task.dependencies is not None or task.cron is not None:
        return None
    if task.due_time is not None:
        return task.due_time.astimezone(UTC)
    delay = task.delay or 0
    return now + (delay if isinstance(delay, timedelta) else timedelta(seconds=delay))


class FakeClient(Recorder):
    """Stands in for `Client` where a `TaskClient` is wanted."""

    def submit(
        self,
        task_type: str,
        payload: object = None,
        *,
        dedupe: bool = True,  # noqa: ARG002  # nothing is lost on the way here
        timeout: float | None = None,  # noqa: ARG002  # nothing takes time here
        **options: Unpack[TaskOptions],
    ) -> Submitted:
        """Record a task and answer an id for it."""
        self._check()
        return self._accept(NewTask(task_type, payload, **options))

    def submit_batch(
        self,
        tasks: Iterable[NewTask],
        *,
        atomic: bool = False,
        dedupe: bool = False,  # noqa: ARG002
        timeout: float | None = None,  # noqa: ARG002
    ) -> BatchResults:
        """Record many tasks."""
        return self._submit_batch(list(tasks), atomic=atomic)

    def get(
        self,
        task_id: str,
        *,
        view: TaskView = TaskView.BASIC,
        timeout: float | None = None,  # noqa: ARG002
    ) -> Task:
        """Read a task as it stands."""
        return self._get(task_id, view)

    def cancel(
        self,
        task_id: str,
        reason: str = "",
        *,
        timeout: float | None = None,  # noqa: ARG002
    ) -> int:
        """Cancel a task that has not ended."""
        return self._cancel(task_id, reason)

    def wait(
        self,
        task_id: str,
        timeout: float | None = None,  # noqa: ARG002
    ) -> Task:
        """Read a task that has ended; raises `DeadlineExceeded` at once for one that has not."""
        return self._wait(task_id)


class AsyncFakeClient(Recorder):
    """Stands in for `AsyncClient` where an `AsyncTaskClient` is wanted."""

    async def submit(
        self,
        task_type: str,
        payload: object = None,
        *,
        dedupe: bool = True,  # noqa: ARG002  # nothing is lost on the way here
        timeout: float | None = None,  # noqa: ARG002  # nothing takes time here
        **options: Unpack[TaskOptions],
    ) -> Submitted:
        """Record a task and answer an id for it."""
        self._check()
        return self._accept(NewTask(task_type, payload, **options))

    async def submit_batch(
        self,
        tasks: Iterable[NewTask],
        *,
        atomic: bool = False,
        dedupe: bool = False,  # noqa: ARG002
        timeout: float | None = None,  # noqa: ARG002
    ) -> BatchResults:
        """Record many tasks."""
        return self._submit_batch(list(tasks), atomic=atomic)

    async def get(
        self,
        task_id: str,
        *,
        view: TaskView = TaskView.BASIC,
        timeout: float | None = None,  # noqa: ARG002
    ) -> Task:
        """Read a task as it stands."""
        return self._get(task_id, view)

    async def cancel(
        self,
        task_id: str,
        reason: str = "",
        *,
        timeout: float | None = None,  # noqa: ARG002
    ) -> int:
        """Cancel a task that has not ended."""
        return self._cancel(task_id, reason)

    async def wait(
        self,
        task_id: str,
        timeout: float | None = None,  # noqa: ARG002
    ) -> Task:
        """Read a task that has ended; raises `DeadlineExceeded` at once for one that has not."""
        return self._wait(task_id)
