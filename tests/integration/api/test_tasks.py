"""The calls about tasks, on their good days: what each answers as tasks move on."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from mainspring.v1 import query_requests_pb2, task_pb2, task_requests_pb2
from mainspring_server.domain.leases import Failure, Success

from .conftest import NOW, Api, refusal

FULL = task_pb2.TASK_VIEW_FULL


async def status(api: Api, task_id: str, view: int = 0) -> Any:
    request = task_requests_pb2.StatusRequest(task_id=task_id, view=view)  # type: ignore[arg-type]
    return (await api.scheduler.Status(request)).task


async def fail_all(api: Api, *, retryable: bool = False) -> None:
    results = [
        Failure(grant.task_id, grant.token, "boom", "ValueError", retryable=retryable)
        for grant in await api.claim()
    ]
    await api.engine.complete(list(results))


# --- Submit -----------------------------------------------------------------------------------


async def test_what_was_submitted_is_read_again(api: Api) -> None:
    request = task_requests_pb2.SubmitRequest(
        task_type="resize",
        queue="images",
        payload=task_pb2.Payload(json='{"n":1}', metadata={"codec": "none"}),
        labels={"team": "core"},
        priority=2,
        retry=task_pb2.RetryPolicy(max_attempts=2),
        timeouts=task_pb2.Timeouts(run_timeout=Duration(seconds=30)),
    )
    request.schedule.delay.FromSeconds(5)
    answer = await api.scheduler.Submit(request)
    assert answer.status == task_pb2.TASK_STATUS_PENDING
    assert answer.due_time.ToMilliseconds() == NOW + 5_000
    basic = await status(api, answer.task_id)
    assert (basic.task_type, basic.queue, basic.priority) == ("resize", "images", 2)
    assert (basic.version, basic.attempts, basic.max_attempts) == (1, 0, 2)
    assert dict(basic.labels) == {"team": "core"}
    assert basic.create_time.ToMilliseconds() == NOW
    assert basic.namespace == "default"
    assert not basic.HasField("payload")
    full = await status(api, answer.task_id, FULL)
    assert full.payload == request.payload
    assert full.retry.max_attempts == 2
    assert full.timeouts.run_timeout.seconds == 30
    assert not full.timeouts.HasField("queue_timeout")


async def test_due_in_the_past_is_due_now(api: Api) -> None:
    request = task_requests_pb2.SubmitRequest(task_type="resize")
    request.schedule.due_time.CopyFrom(Timestamp(seconds=1))
    answer = await api.scheduler.Submit(request)
    assert answer.status == task_pb2.TASK_STATUS_READY
    assert answer.due_time.ToMilliseconds() == NOW


async def test_the_trace_of_the_call_reaches_the_worker(api: Api) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    request = task_requests_pb2.SubmitRequest(task_type="resize")
    request.schedule.immediate.SetInParent()
    await api.scheduler.Submit(request, metadata=(("traceparent", trace),))
    assert (await api.claim())[0].trace_context == trace


async def test_keys_within_one_batch(api: Api) -> None:
    request = task_requests_pb2.SubmitRequest(task_type="resize", idempotency_key="k")
    request.schedule.immediate.SetInParent()
    batch = task_requests_pb2.SubmitBatchRequest(requests=[request, request])
    first, second = (await api.scheduler.SubmitBatch(batch)).results
    assert first.submitted.task_id == second.submitted.task_id
    assert (first.submitted.existing, second.submitted.existing) == (False, True)


async def test_a_key_ends_after_a_day(api: Api) -> None:
    first = await api.submit(idempotency_key="k")
    api.clock.advance(86_400_000 + 1)
    assert await api.submit(idempotency_key="k", priority=1) != first


# --- Cancel, Reschedule, Retry ----------------------------------------------------------------


async def test_cancel_counts_once(api: Api) -> None:
    task_id = await api.submit()
    cancel = task_requests_pb2.CancelRequest(task_id=task_id, reason="not needed")
    assert (await api.scheduler.Cancel(cancel)).cancelled_instances == 1
    assert (await api.scheduler.Cancel(cancel)).cancelled_instances == 0
    task = await status(api, task_id)
    assert task.status == task_pb2.TASK_STATUS_CANCELLED
    assert task.status_reason == "not needed"
    assert task.complete_time.ToMilliseconds() == NOW


async def test_reschedule(api: Api) -> None:
    task_id = await api.submit()
    request = task_requests_pb2.RescheduleRequest(
        task_id=task_id, delay=Duration(seconds=9), version=1
    )
    task = (await api.scheduler.Reschedule(request)).task
    assert (task.status, task.version) == (task_pb2.TASK_STATUS_PENDING, 2)
    assert task.due_time.ToMilliseconds() == NOW + 9_000
    sooner = task_requests_pb2.RescheduleRequest(task_id=task_id, due_time=Timestamp(seconds=1))
    task = (await api.scheduler.Reschedule(sooner)).task
    assert task.due_time.ToMilliseconds() == NOW
    await api.settle()
    await api.claim()
    found = await refusal(api.scheduler.Reschedule(sooner))
    assert found.code is grpc.StatusCode.FAILED_PRECONDITION
    assert (found.reason, found.metadata["status"]) == ("STATUS_CONFLICT", "RUNNING")


async def test_retry_makes_one_copy(api: Api) -> None:
    payload = task_pb2.Payload(data=b"\0\1")
    task_id = await api.submit(payload=payload, labels={"a": "b"}, priority=1)
    request = task_requests_pb2.RetryRequest(task_id=task_id)
    found = await refusal(api.scheduler.Retry(request))
    assert found.code is grpc.StatusCode.FAILED_PRECONDITION
    assert (found.reason, found.metadata["status"]) == ("STATUS_CONFLICT", "READY")
    await fail_all(api)
    answers = await asyncio.gather(*(api.scheduler.Retry(request) for _ in range(5)))
    copies = {answer.new_task_ids[task_id] for answer in answers}
    assert len(copies) == 1
    assert sorted(answer.existing for answer in answers) == [False, True, True, True, True]
    api.clock.advance(2 * 86_400_000)
    later = await api.scheduler.Retry(request)
    assert (later.existing, set(later.new_task_ids.values())) == (True, copies)
    copy = await status(api, copies.pop(), FULL)
    assert copy.retry_of == task_id
    assert copy.payload == payload
    assert (copy.status, copy.priority, dict(copy.labels)) == (
        task_pb2.TASK_STATUS_READY,
        1,
        {"a": "b"},
    )
    listed = query_requests_pb2.ListRequest(filter=f"retry_of = {task_id}")
    assert [t.task_id for t in (await api.scheduler.List(listed)).tasks] == [copy.task_id]


# --- History ----------------------------------------------------------------------------------


async def attempts(api: Api, task_id: str, size: int = 0) -> list[Any]:
    found: list[Any] = []
    token = ""
    while True:
        page = await api.scheduler.History(
            task_requests_pb2.HistoryRequest(task_id=task_id, page_size=size, page_token=token)
        )
        found += page.attempts
        token = page.next_page_token
        if not token:
            return found


@pytest.mark.parametrize("size", [1, 2, 100])
async def test_history_is_newest_first_and_whole(api: Api, size: int) -> None:
    task_id = await api.submit()
    assert await attempts(api, task_id, size) == []
    for _ in range(3):
        await fail_all(api, retryable=True)
        api.clock.advance(600_000)
        await api.settle()
    grant = (await api.claim())[0]
    running = await attempts(api, task_id, size)
    assert [a.attempt for a in running] == [4, 3, 2, 1]
    assert running[0].outcome == task_pb2.ATTEMPT_OUTCOME_RUNNING
    assert not running[0].HasField("end_time")
    await api.engine.complete([Success(grant.task_id, grant.token, b"done")])
    ended = await attempts(api, task_id, size)
    assert [a.outcome for a in ended] == [
        task_pb2.ATTEMPT_OUTCOME_SUCCEEDED,
        *[task_pb2.ATTEMPT_OUTCOME_FAILED] * 3,
    ]
    assert ended[0].lease_token == running[0].lease_token
    assert (ended[1].error_message, ended[1].error_type) == ("boom", "ValueError")
    assert (await status(api, task_id)).outcome == b"done"


async def test_history_says_when_the_next_attempt_is_due(api: Api) -> None:
    task_id = await api.submit()
    await fail_all(api, retryable=True)
    task = await status(api, task_id)
    first = (await attempts(api, task_id))[0]
    assert first.next_due_time == task.due_time


async def test_a_foreign_token_of_history(api: Api) -> None:
    one, two = await api.submit(), await api.submit()
    await fail_all(api, retryable=True)
    api.clock.advance(600_000)
    await api.settle()
    await fail_all(api, retryable=True)
    request = task_requests_pb2.HistoryRequest
    page = await api.scheduler.History(request(task_id=one, page_size=1))
    assert page.next_page_token
    other = request(task_id=two, page_size=1, page_token=page.next_page_token)
    assert (await refusal(api.scheduler.History(other))).reason == "PAGE_TOKEN_INVALID"


# --- List, Count ------------------------------------------------------------------------------


async def pages(api: Api, **fields: Any) -> list[list[str]]:
    found: list[list[str]] = []
    token = ""
    while True:
        page = await api.scheduler.List(query_requests_pb2.ListRequest(page_token=token, **fields))
        found.append([task.task_id for task in page.tasks])
        token = page.next_page_token
        if not token:
            return found


@pytest.mark.parametrize(
    "order", ["", "create_time", "create_time desc", "due_time", "due_time desc"]
)
async def test_pages_are_whole_and_in_order(api: Api, order: str) -> None:
    ids = []
    for n in range(7):
        delay = Duration(seconds=100 - n)
        ids.append(await api.submit(schedule={"delay": delay}))
        api.clock.advance(n % 2)
    expected = ids if order in ("create_time", "due_time desc") else ids[::-1]
    found = await pages(api, order_by=order, page_size=3)
    assert [len(page) for page in found] == [3, 3, 1]
    assert sorted(task for page in found for task in page) == sorted(ids)
    if order.startswith("due_time"):
        assert [task for page in found for task in page] == expected


async def test_filters_reach_the_store(api: Api) -> None:
    red = await api.submit(labels={"colour": "red"}, priority=1)
    blue = await api.submit(labels={"colour": "blue"}, queue="other")
    later = await api.submit(schedule={"delay": Duration(seconds=60)})
    cases = {
        "labels.colour = red": {red},
        "labels.colour = red OR labels.colour = blue": {red, blue},
        "NOT labels.colour = red status = READY": {blue},
        "priority < 5": {red},
        "queue = other": {blue},
        "status = PENDING": {later},
        'due_time > "2023-11-14T22:13:20Z"': {later},
        'due_time <= "2023-11-14T22:13:20Z"': {red, blue},
        f"graph_id = {red}": set(),
        "": {red, blue, later},
    }
    for text, expected in cases.items():
        found = await api.scheduler.List(query_requests_pb2.ListRequest(filter=text))
        assert {task.task_id for task in found.tasks} == expected, text
        count = await api.scheduler.Count(query_requests_pb2.CountRequest(filter=text))
        assert count.total == len(expected), text


async def test_a_page_of_large_tasks_ends_early(api: Api) -> None:
    payload = task_pb2.Payload(data=b"x" * 1_000_000)
    ids = {await api.submit(payload=payload) for _ in range(5)}
    found = await pages(api, view=FULL, page_size=5)
    assert [len(page) for page in found] == [3, 2]
    assert {task for page in found for task in page} == ids


async def test_counts_by_group(api: Api) -> None:
    for task_type, times in (("a", 3), ("b", 1)):
        for _ in range(times):
            await api.submit(task_type)
    await api.submit("a", schedule={"delay": Duration(seconds=60)})
    request = query_requests_pb2.CountRequest(
        group_by=[
            query_requests_pb2.COUNT_GROUP_BY_TASK_TYPE,
            query_requests_pb2.COUNT_GROUP_BY_STATUS,
        ]
    )
    answer = await api.scheduler.Count(request)
    assert answer.total == 5
    largest = answer.groups[0]
    assert (largest.task_type, largest.status) == ("a", task_pb2.TASK_STATUS_READY)
    assert largest.count == 3
    assert sum(group.count for group in answer.groups) == 5
    assert {group.queue for group in answer.groups} == {""}
    single = query_requests_pb2.CountRequest(group_by=[query_requests_pb2.COUNT_GROUP_BY_QUEUE])
    groups = (await api.scheduler.Count(single)).groups
    assert [(group.queue, group.count) for group in groups] == [("a", 4), ("b", 1)]
