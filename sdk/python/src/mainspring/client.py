"""The blocking client. `aio` has the same for asyncio."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

import grpc

from . import _task_calls
from ._batch import Batch
from ._channel import Settings
from ._convert import Seconds
from ._sync import Connection, Stubs
from ._sync_admin import AdminMethods
from ._sync_schedules import ScheduleMethods
from ._task_calls import BatchResults
from ._watch import Watch
from .enums import CountGroupBy, TaskView
from .errors import MainspringError
from .schedules import CronSchedule, Instance
from .submission import NewTask, Submitted, SubmittedGraph, TaskOptions
from .tasks import Attempt, Count, Explanation, GraphState, Retried, Task, Transition


class Client(ScheduleMethods, AdminMethods):
    """Submits tasks and schedules, follows them, cancels them.

    Safe between threads; one per process is enough. Use it as a context manager, or close it.
    Every call raises a class of `mainspring.errors`, is tried again where that is safe (see
    `mainspring.retry`), and takes a `timeout` in seconds for all its tries together.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remember where the servers are; the first call connects.

        Args:
            server: HOST:PORT, several by comma: calls go in turn to those that answer. Default
                the environment variable MAINSPRING_SERVER, else 127.0.0.1:7400.
            token: Sent as a bearer token with each call.
            credentials: For TLS; default plain text.
            timeout: Seconds for each call, in place of 10 (30 for batches).
        """
        self._connection = Connection(Settings.of(server, token, credentials, timeout))

    @property
    def raw(self) -> Stubs:
        """The generated stubs: every field of every call, without retries and conversions."""
        return self._connection.stubs

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def submit(
        self,
        task_type: str,
        payload: object = None,
        *,
        dedupe: bool = True,
        timeout: float | None = None,
        **options: Unpack[TaskOptions],
    ) -> Submitted:
        """Submit one task, or with `cron` a schedule; it is stored durably when this returns.

        Options: see `NewTask`. It is due at once unless one of `delay`, `due_time` and `cron` is
        given.

        With `dedupe` a task without an idempotency key gets a random one, so that a call whose
        answer was lost is repeated without making a second task. The key costs the server a row
        for a day; `dedupe=False` saves it, and `Unavailable` is then raised at the first failure.
        """
        task = NewTask(task_type, payload, **options)
        return self._connection.run(_task_calls.submit(task, dedupe=dedupe), timeout)

    def submit_batch(
        self,
        tasks: Iterable[NewTask],
        *,
        atomic: bool = False,
        dedupe: bool = False,
        timeout: float | None = None,
    ) -> BatchResults:
        """Submit many tasks; answers for each, in order, `Submitted` or the error that refused it.

        Unless `atomic`, any number is taken: each 1,000 tasks or 15 MiB are a call of its own,
        with its own timeout. When a call fails after others were answered, its tasks and those
        after it get its error; when the first one fails it is raised. With `atomic` all are
        accepted in one call, or the refusal of the first one at fault is raised.

        A batch is repeated after `Unavailable` only if each task has an idempotency key. The
        default leaves tasks as they are: a key costs the server a row for a day, and a batch is
        where that counts. `dedupe=True` gives a random key to those that have none.
        """
        if atomic:
            requests = [_task_calls.submit_request(task, dedupe=dedupe) for task in tasks]
            return self._connection.run(_task_calls.submit_batch(requests, atomic=True), timeout)
        batch = Batch(list(tasks), dedupe=dedupe)
        for part in batch.parts():
            try:
                batch.accept(part, self._connection.run(part.call, timeout))
            except MainspringError as error:
                batch.fail(error)
                break
        return batch.results()

    def submit_graph(
        self,
        tasks: Iterable[NewTask],
        *,
        cron: CronSchedule | str | None = None,
        dedupe: bool = False,
        timeout: float | None = None,
    ) -> SubmittedGraph:
        """Submit tasks that depend on each other, all or nothing; with `cron` again and again.

        `Dependencies.local_refs` name other tasks of the graph by their `local_ref`. About
        `dedupe` see `submit_batch`; a recurring graph is never repeated after `Unavailable`.
        """
        call = _task_calls.submit_graph(list(tasks), cron, dedupe=dedupe)
        return self._connection.run(call, timeout)

    def get(
        self, task_id: str, *, view: TaskView = TaskView.BASIC, timeout: float | None = None
    ) -> Task:
        """Read one task; with `TaskView.FULL` also payload, retry, timeouts and dependencies."""
        return self._connection.run(_task_calls.get(task_id, view), timeout)

    def get_graph(self, graph_id: str, *, timeout: float | None = None) -> GraphState:
        """Read how many tasks of a graph are in each status."""
        return self._connection.run(_task_calls.get_graph(graph_id), timeout)

    def cancel(self, task_id: str, reason: str = "", *, timeout: float | None = None) -> int:
        """Cancel a task, a schedule with its live instances, a graph, or the rest of a backfill.

        Answers how many tasks were cancelled by it: 0 when it had ended already.
        """
        return self._connection.run(_task_calls.cancel(task_id, reason), timeout)

    def history(
        self, task_id: str, *, page_size: int = 0, timeout: float | None = None
    ) -> Iterator[Attempt | Instance]:
        """Go through the attempts of a task, or the instances of a schedule, newest first."""
        return self._connection.pages(_task_calls.history(task_id, page_size), timeout)

    def list(
        self,
        filter: str = "",  # noqa: A002  # the name in the API
        *,
        order_by: str = "",
        view: TaskView = TaskView.BASIC,
        page_size: int = 0,
        timeout: float | None = None,
    ) -> Iterator[Task]:
        """Go through the tasks that a filter (AIP-160) matches, newest first by default.

        For example `status=FAILED AND labels.team=web`; the grammar is at `ListRequest.filter`
        in the protos. `order_by` is `create_time` or `due_time`, with ` desc` for newest first.
        """
        pages = _task_calls.list_tasks(filter, order_by, view, page_size)
        return self._connection.pages(pages, timeout)

    def count(
        self,
        filter: str = "",  # noqa: A002  # the name in the API
        group_by: Iterable[CountGroupBy] = (),
        *,
        timeout: float | None = None,
    ) -> Count:
        """Count the tasks that a filter matches, in groups if asked."""
        return self._connection.run(_task_calls.count(filter, group_by), timeout)

    def watch(
        self,
        task_ids: Iterable[str],
        *,
        until_terminal: bool = True,
        timeout: float | None = None,
    ) -> Iterator[Transition]:
        """Follow tasks: first where each stands, then each change, until all have ended.

        With `until_terminal=False` it goes on until the caller leaves it. A server that goes away
        is replaced by another without a transition coming twice; a gap in the versions of a task
        means that changes in between were left out. At most 1,000 ids.

        Raises `DeadlineExceeded` when `timeout` is over; the default is to wait for ever.
        """
        watch = Watch(task_ids, until_terminal=until_terminal, timeout=timeout)
        return self._connection.watch(watch)

    def wait(self, task_id: str, timeout: float | None = None) -> Task:
        """Wait until a task has ended, and read it; look at its `status`, it may have failed.

        Raises `DeadlineExceeded` (a `TimeoutError`) when `timeout` is over; the default is to
        wait for ever. A schedule ends only when it is cancelled or has made its last run.
        """
        watch = Watch([task_id], until_terminal=True, timeout=timeout)
        for _ in self._connection.watch(watch):
            pass
        return self.get(task_id)

    def explain(self, task_id: str, *, timeout: float | None = None) -> Explanation:
        """Say why a task is not running, and since when."""
        return self._connection.run(_task_calls.explain(task_id), timeout)

    def reschedule(
        self,
        task_id: str,
        *,
        due_time: datetime | None = None,
        delay: Seconds | None = None,
        version: int | None = None,
        timeout: float | None = None,
    ) -> Task:
        """Give a PENDING or READY task another due time: one of `due_time` and `delay`.

        With `version` only if the task is still at it, else it raises `Aborted`.
        """
        call = _task_calls.reschedule(task_id, due_time, delay, version)
        return self._connection.run(call, timeout)

    def retry(self, task_id: str, *, timeout: float | None = None) -> Retried:
        """Submit a copy of a FAILED or CANCELLED task, and of the dependents that it took down."""
        return self._connection.run(_task_calls.retry(task_id), timeout)
