"""What SubmitBatch makes of the engine's answers."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.v1 import schedule_pb2, task_requests_pb2
from mainspring_server.admission.limits import Limits
from mainspring_server.api.submissions import Submissions
from mainspring_server.clock import SystemClock
from mainspring_server.domain.errors import Unavailable
from mainspring_server.domain.task import Inserted, InsertState, NewTask, Status

AWAY = Unavailable("STORE_UNAVAILABLE", "the store does not answer")


class Answering:
    """An engine whose first `failing` tasks of a call do not reach the store."""

    def __init__(self, failing: int) -> None:
        self.failing = failing

    async def submit(self, tasks: list[NewTask]) -> list[Inserted | Exception]:
        return [
            AWAY
            if n < self.failing
            else Inserted(InsertState.INSERTED, task.task_id, Status.READY, task.due_at)
            for n, task in enumerate(tasks)
        ]


def batch(count: int, task_type: str = "greet") -> task_requests_pb2.SubmitBatchRequest:
    schedule = schedule_pb2.Schedule()
    schedule.immediate.SetInParent()
    request = task_requests_pb2.SubmitRequest(task_type=task_type, schedule=schedule)
    return task_requests_pb2.SubmitBatchRequest(requests=[request] * count)


def submissions(failing: int) -> Submissions:
    engine: Any = Answering(failing)
    return Submissions(engine, SystemClock(), Limits())


async def test_a_store_that_took_nothing_fails_the_call() -> None:
    with pytest.raises(Unavailable):
        await submissions(3).many(batch(3), "default", None)


async def test_a_store_that_took_a_part_answers_for_each() -> None:
    answer = await submissions(2).many(batch(3), "default", None)
    assert [result.WhichOneof("result") for result in answer.results] == [
        "error",
        "error",
        "submitted",
    ]


async def test_a_batch_of_bad_requests_is_no_outage() -> None:
    answer = await submissions(3).many(batch(2, "no spaces"), "default", None)
    assert [result.WhichOneof("result") for result in answer.results] == ["error", "error"]
