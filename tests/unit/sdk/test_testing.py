"""The stand-ins for users' unit tests."""

from datetime import UTC, datetime, timedelta

import pytest

from mainspring import (
    AlreadyExists,
    AsyncTaskClient,
    DeadlineExceeded,
    Dependencies,
    NewTask,
    NotFound,
    Submitted,
    TaskClient,
    TaskStatus,
    TaskView,
    Unavailable,
)
from mainspring.testing import AsyncFakeClient, FakeClient

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def sign_up(client: TaskClient, address: str) -> str:
    return client.submit("welcome-mail", {"to": address}, delay=60).task_id


def test_submissions_are_recorded() -> None:
    client = FakeClient(now=lambda: NOON)
    task_id = sign_up(client, "ada")
    assert client.submitted == [NewTask("welcome-mail", {"to": "ada"}, delay=60)]
    task = client.get(task_id, view=TaskView.FULL)
    assert (task.status, task.queue, task.priority) == (TaskStatus.PENDING, "welcome-mail", 5)
    assert task.due_time == NOON + timedelta(minutes=1)
    assert task.payload is not None
    assert task.payload.value() == {"to": "ada"}
    assert client.get(task_id).payload is None


@pytest.mark.parametrize(
    ("task", "status", "due"),
    [
        (NewTask("a"), TaskStatus.READY, NOON),
        (NewTask("a", due_time=NOON), TaskStatus.PENDING, NOON),
        (NewTask("a", cron="@daily"), TaskStatus.PENDING, None),
        (NewTask("a", dependencies=Dependencies(task_ids=["x"])), TaskStatus.CREATED, None),
    ],
)
def test_where_a_task_begins(task: NewTask, status: TaskStatus, due: datetime | None) -> None:
    (submitted,) = FakeClient(now=lambda: NOON).submit_batch([task])
    assert isinstance(submitted, Submitted)
    assert (submitted.status, submitted.due_time) == (status, due)


def test_a_payload_that_no_server_would_take() -> None:
    client = FakeClient()
    with pytest.raises(TypeError, match="no JSON form"):
        client.submit("mail", object())
    assert client.submitted == []


def test_keys_work_as_on_the_server() -> None:
    client = FakeClient()
    first = client.submit("mail", 1, idempotency_key="k")
    again = client.submit("mail", 1, idempotency_key="k")
    assert (again.task_id, again.existing) == (first.task_id, True)
    assert not client.submit("other", 1, idempotency_key="k").existing
    with pytest.raises(AlreadyExists, match=first.task_id):
        client.submit("mail", 2, idempotency_key="k")
    assert len(client.submitted) == 2


def test_a_batch_answers_one_by_one_unless_atomic() -> None:
    client = FakeClient()
    client.submit("mail", 1, idempotency_key="k")
    tasks = [NewTask("mail", 2, idempotency_key="k"), NewTask("mail")]
    refused, accepted = client.submit_batch(tasks)
    assert isinstance(refused, AlreadyExists)
    assert isinstance(accepted, Submitted)
    with pytest.raises(AlreadyExists):
        client.submit_batch(tasks, atomic=True)


def test_an_atomic_batch_that_is_refused_leaves_nothing() -> None:
    client = FakeClient()
    client.submit("mail", 1, idempotency_key="k")
    tasks = [NewTask("mail"), NewTask("mail", 2, idempotency_key="k")]
    with pytest.raises(AlreadyExists):
        client.submit_batch(tasks, atomic=True)
    assert len(client.submitted) == len(client.tasks) == 1


def test_a_test_settles_tasks() -> None:
    client = FakeClient()
    done, failed, cancelled = (client.submit("mail").task_id for _ in range(3))
    client.succeed(done, {"sent": 1})
    client.fail(failed, "bounced")
    assert client.cancel(cancelled, "not needed") == 1
    assert client.cancel(cancelled) == 0
    assert client.wait(done).result() == {"sent": 1}
    assert client.wait(failed).last_error == "bounced"
    assert client.wait(cancelled).status_reason == "not needed"
    with pytest.raises(ValueError, match="final"):
        client.succeed(failed)


def test_waiting_does_not_wait() -> None:
    client = FakeClient()
    with pytest.raises(DeadlineExceeded, match=r"succeed\(\)"):
        client.wait(client.submit("mail").task_id)


def test_failures_to_order() -> None:
    client = FakeClient()
    client.fail_next(Unavailable("gone"))
    with pytest.raises(Unavailable):
        client.submit("mail")
    assert client.submit("mail").task_id
    with pytest.raises(NotFound):
        client.get("nothing")


async def test_async() -> None:
    async def use(client: AsyncTaskClient) -> TaskStatus:
        submitted = await client.submit("mail")
        await client.submit_batch([NewTask("mail")])
        await client.cancel(submitted.task_id)
        await client.get(submitted.task_id)
        return (await client.wait(submitted.task_id)).status

    client = AsyncFakeClient()
    assert await use(client) is TaskStatus.CANCELLED
    assert len(client.submitted) == 2
