"""What code that submits tasks needs of a client, so that its tests can pass another one.

`Client` and `testing.FakeClient` are `TaskClient`s, `AsyncClient` and `testing.AsyncFakeClient`
are `AsyncTaskClient`s.
"""

from collections.abc import Iterable
from typing import Protocol, Unpack

from ._task_calls import BatchResults
from .enums import TaskView
from .submission import NewTask, Submitted, TaskOptions
from .tasks import Task


class TaskClient(Protocol):
    """Submits, reads, awaits and cancels tasks, blocking."""

    def submit(
        self,
        task_type: str,
        payload: object = None,
        *,
        dedupe: bool = True,
        timeout: float | None = None,
        **options: Unpack[TaskOptions],
    ) -> Submitted:
        """As `Client.submit`."""
        ...

    def submit_batch(
        self,
        tasks: Iterable[NewTask],
        *,
        atomic: bool = False,
        dedupe: bool = False,
        timeout: float | None = None,
    ) -> BatchResults:
        """As `Client.submit_batch`."""
        ...

    def get(
        self, task_id: str, *, view: TaskView = TaskView.BASIC, timeout: float | None = None
    ) -> Task:
        """As `Client.get`."""
        ...

    def cancel(self, task_id: str, reason: str = "", *, timeout: float | None = None) -> int:
        """As `Client.cancel`."""
        ...

    def wait(self, task_id: str, timeout: float | None = None) -> Task:
        """As `Client.wait`."""
        ...


class AsyncTaskClient(Protocol):
    """Submits, reads, awaits and cancels tasks, for asyncio."""

    async def submit(
        self,
        task_type: str,
        payload: object = None,
        *,
        dedupe: bool = True,
        timeout: float | None = None,
        **options: Unpack[TaskOptions],
    ) -> Submitted:
        """As `AsyncClient.submit`."""
        ...

    async def submit_batch(
        self,
        tasks: Iterable[NewTask],
        *,
        atomic: bool = False,
        dedupe: bool = False,
        timeout: float | None = None,
    ) -> BatchResults:
        """As `AsyncClient.submit_batch`."""
        ...

    async def get(
        self, task_id: str, *, view: TaskView = TaskView.BASIC, timeout: float | None = None
    ) -> Task:
        """As `AsyncClient.get`."""
        ...

    async def cancel(self, task_id: str, reason: str = "", *, timeout: float | None = None) -> int:
        """As `AsyncClient.cancel`."""
        ...

    async def wait(self, task_id: str, timeout: float | None = None) -> Task:
        """As `AsyncClient.wait`."""
        ...
