"""What the type checker says about uses and misuses of the SDK.

Nothing here runs. `warn_unused_ignores` reports a misuse that starts to type-check, so each
`type: ignore` below is an assertion.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import assert_type

import mainspring
from mainspring import (
    AsyncClient,
    AsyncTaskClient,
    Attempt,
    Client,
    CronSchedule,
    Instance,
    MainspringError,
    NewTask,
    OverlapPolicy,
    RetryPolicy,
    Submitted,
    Task,
    TaskClient,
    TaskStatus,
    Timeouts,
    Transition,
)
from mainspring.testing import AsyncFakeClient, FakeClient
from mainspring.v1 import task_requests_pb2


def uses(client: Client) -> None:
    """The blocking client says what it returns."""
    assert_type(client.submit("mail", {"to": "ada"}, delay=5, labels={"a": "b"}), Submitted)
    client.submit("mail", due_time=datetime.now(UTC), retry=RetryPolicy(max_attempts=2))
    client.submit("mail", cron=CronSchedule("@daily", overlap_policy=OverlapPolicy.SKIP))
    client.submit("mail", b"", timeouts=Timeouts(run_timeout=timedelta(minutes=1)), dedupe=False)
    assert_type(client.submit_batch([NewTask("mail")]), list[Submitted | MainspringError])
    assert_type(client.get("t"), Task)
    assert_type(client.wait("t", timeout=1.5).status, TaskStatus)
    assert_type(client.get("t").due_time, datetime | None)
    assert_type(client.list("status=FAILED"), Iterator[Task])
    assert_type(client.history("t"), Iterator[Attempt | Instance])
    assert_type(client.watch(["t"]), Iterator[Transition])
    assert_type(client.cancel("t"), int)
    assert_type(
        client.raw.scheduler.Status(task_requests_pb2.StatusRequest()),
        task_requests_pb2.StatusResponse,
    )


async def async_uses(client: AsyncClient) -> None:
    """The asyncio client is typed alike."""
    assert_type(await client.submit("mail"), Submitted)
    assert_type(await client.submit_batch([]), list[Submitted | MainspringError])
    assert_type(client.list(), AsyncIterator[Task])
    assert_type(client.watch(["t"]), AsyncIterator[Transition])
    assert_type(
        await client.raw.scheduler.Status(task_requests_pb2.StatusRequest()),
        task_requests_pb2.StatusResponse,
    )


def stand_ins(
    client: Client, fake: FakeClient, other: AsyncClient, other_fake: AsyncFakeClient
) -> None:
    """What code asks of a client, clients and fakes both are."""
    blocking: list[TaskClient] = [client, fake]
    asynchronous: list[AsyncTaskClient] = [other, other_fake]
    wrong: TaskClient = other  # type: ignore[assignment]
    del blocking, asynchronous, wrong


def misuses(client: Client, task: Task) -> None:
    """What must not pass."""
    client.submit(42)  # type: ignore[arg-type]
    client.submit("mail", delay="5m")  # type: ignore[arg-type]
    client.submit("mail", due_time="tomorrow")  # type: ignore[arg-type]
    client.submit("mail", priorty=3)  # type: ignore[call-arg]
    client.submit("mail", priority="high")  # type: ignore[arg-type]
    client.submit("mail", labels={"n": 1})  # type: ignore[dict-item]
    client.submit("mail", retry={"max_attempts": 3})  # type: ignore[arg-type]
    client.submit("mail", local_ref="a")  # type: ignore[call-arg]
    client.submit("mail", {}, 5)  # type: ignore[call-arg, arg-type]
    client.submit_batch(["mail"])  # type: ignore[list-item]
    _ = client.submit_batch([NewTask("mail")])[0].task_id  # type: ignore[union-attr]
    client.get("t", view="FULL")  # type: ignore[arg-type]
    _ = client.get("t").due_time.year  # type: ignore[union-attr]
    client.trigger("s", overlap_policy="SKIP")  # type: ignore[arg-type]
    client.update("s", task_type="other")  # type: ignore[call-arg]
    client.watch(5)  # type: ignore[arg-type]
    RetryPolicy(3)  # type: ignore[call-arg]
    Timeouts(run_timeout="1h")  # type: ignore[arg-type]
    CronSchedule("@daily", overlap_policy="SKIP")  # type: ignore[arg-type]
    task.status = TaskStatus.FAILED  # type: ignore[misc]
    _ = mainspring.TaskStatus.DONE  # type: ignore[attr-defined]


async def async_misuses(client: AsyncClient) -> None:
    """What must not pass, with asyncio."""
    client.submit("mail")  # type: ignore[unused-coroutine]
    await client.list()  # type: ignore[misc]
    for _ in client.list():  # type: ignore[attr-defined]
        pass
