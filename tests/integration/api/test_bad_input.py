"""Bad input: each with the right code, reason and field, and nothing stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from mainspring.v1 import (
    admin_service_pb2,
    lease_pb2,
    query_requests_pb2,
    schedule_requests_pb2,
    task_pb2,
    task_requests_pb2,
    worker_service_pb2,
)
from mainspring_server.ids import mint, text_of

from .conftest import NOW, Api, from_status, refusal

INVALID = grpc.StatusCode.INVALID_ARGUMENT
UNKNOWN = text_of(mint(NOW, 1)[0])
MIB = 1_024 * 1_024


def submission(change: Callable[[Any], object] = lambda _: None) -> Any:
    request = task_requests_pb2.SubmitRequest(task_type="resize")
    request.schedule.immediate.SetInParent()
    change(request)
    return request


def _payload(**fields: Any) -> Callable[[Any], object]:
    return lambda request: request.payload.CopyFrom(task_pb2.Payload(**fields))


def _delay(**fields: int) -> Callable[[Any], object]:
    return lambda request: request.schedule.delay.CopyFrom(Duration(**fields))


def _due(**fields: int) -> Callable[[Any], object]:
    return lambda request: request.schedule.due_time.CopyFrom(Timestamp(**fields))


SUBMISSIONS: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "no type": (lambda r: r.ClearField("task_type"), "FIELD_REQUIRED", "task_type"),
    "no schedule": (lambda r: r.ClearField("schedule"), "FIELD_REQUIRED", "schedule"),
    "empty schedule": (lambda r: r.schedule.ClearField("immediate"), "FIELD_REQUIRED", "schedule"),
    "negative delay": (_delay(seconds=-1), "DUE_TIME_OUT_OF_RANGE", "schedule.delay"),
    "long delay": (_delay(seconds=3_654 * 86_400), "DUE_TIME_OUT_OF_RANGE", "schedule.delay"),
    "no duration": (_delay(nanos=1_000_000_000), "DUE_TIME_OUT_OF_RANGE", "schedule.delay"),
    "seconds of a duration": (_delay(seconds=2**63 - 1), "DUE_TIME_OUT_OF_RANGE", "schedule.delay"),
    "year 9999": (_due(seconds=253_402_300_799), "DUE_TIME_OUT_OF_RANGE", "schedule.due_time"),
    "year 10000": (_due(seconds=253_402_300_800), "DUE_TIME_OUT_OF_RANGE", "schedule.due_time"),
    "year 0": (_due(seconds=-(2**62)), "DUE_TIME_OUT_OF_RANGE", "schedule.due_time"),
    "json past the limit": (
        _payload(json='"' + "x" * (MIB - 1) + '"'),
        "PAYLOAD_TOO_LARGE",
        "payload.json",
    ),
    "data past the limit": (_payload(data=b"x" * (MIB + 1)), "PAYLOAD_TOO_LARGE", "payload.data"),
    "no json": (_payload(json="{"), "FIELD_INVALID", "payload.json"),
    "10,000 labels": (
        lambda r: r.labels.update({f"k{n}": "v" for n in range(10_000)}),
        "FIELD_INVALID",
        "labels",
    ),
    "long key": (
        lambda r: setattr(r, "idempotency_key", "k" * 257),
        "FIELD_INVALID",
        "idempotency_key",
    ),
    "priority": (lambda r: setattr(r, "priority", 10), "FIELD_INVALID", "priority"),
    "no attempts": (
        lambda r: setattr(r.retry, "max_attempts", 0),
        "FIELD_INVALID",
        "retry.max_attempts",
    ),
    "no timeout": (
        lambda r: r.timeouts.run_timeout.CopyFrom(Duration()),
        "FIELD_INVALID",
        "timeouts.run_timeout",
    ),
    "local_ref": (lambda r: setattr(r, "local_ref", "a"), "LOCAL_REF_INVALID", "local_ref"),
    "NUL in type": (lambda r: setattr(r, "task_type", "a\0"), "FIELD_INVALID", "task_type"),
    "NUL in queue": (lambda r: setattr(r, "queue", "a\0"), "FIELD_INVALID", "queue"),
    "NUL in a label": (lambda r: r.labels.update({"k": "\0"}), "FIELD_INVALID", "labels.k"),
    "NUL in a label's key": (lambda r: r.labels.update({"\0": "v"}), "FIELD_INVALID", "labels"),
    "NUL in json": (_payload(json='"\0"'), "FIELD_INVALID", "payload.json"),
    "NUL in metadata": (
        _payload(metadata={"k": "\0"}),
        "FIELD_INVALID",
        "payload.metadata.k",
    ),
    "NUL in the key": (
        lambda r: setattr(r, "idempotency_key", "\0"),
        "FIELD_INVALID",
        "idempotency_key",
    ),
    "NUL in trace_context": (
        lambda r: setattr(r, "trace_context", "\0"),
        "FIELD_INVALID",
        "trace_context",
    ),
}


@pytest.mark.parametrize("case", SUBMISSIONS)
async def test_submit(api: Api, case: str) -> None:
    change, reason, field = SUBMISSIONS[case]
    found = await refusal(api.scheduler.Submit(submission(change)))
    assert (found.code, found.reason, found.field) == (INVALID, reason, field)
    assert (await api.scheduler.Count(query_requests_pb2.CountRequest())).total == 0


async def test_the_same_in_a_batch_spares_the_others(api: Api) -> None:
    cases = list(SUBMISSIONS.values())
    requests = [submission(), *(submission(change) for change, _, _ in cases), submission()]
    batch = task_requests_pb2.SubmitBatchRequest(requests=requests)
    results = (await api.scheduler.SubmitBatch(batch)).results
    assert [result.WhichOneof("result") for result in (results[0], results[-1])] == [
        "submitted"
    ] * 2
    for n, (result, (_, reason, field)) in enumerate(zip(results[1:-1], cases, strict=True), 1):
        found = from_status(result.error)
        assert (found.code, found.reason) == (INVALID, reason)
        assert found.field == f"requests[{n}].{field}"
    assert (await api.scheduler.Count(query_requests_pb2.CountRequest())).total == 2


async def test_accepted_at_the_bounds(api: Api) -> None:
    far = await api.scheduler.Submit(submission(_delay(seconds=400 * 86_400)))
    assert far.status == task_pb2.TASK_STATUS_PENDING
    assert far.due_time.ToMilliseconds() == NOW + 400 * 86_400_000
    for fields in ({"json": '"' + "x" * (MIB - 2) + '"'}, {"data": b"\0" * MIB}):
        done = await api.scheduler.Submit(submission(_payload(**fields)))
        full = task_requests_pb2.StatusRequest(task_id=done.task_id, view=task_pb2.TASK_VIEW_FULL)
        payload = (await api.scheduler.Status(full)).task.payload
        assert payload == task_pb2.Payload(**fields)
    labels = {f"{n:063}": "v" * 256 for n in range(64)}
    assert (await api.scheduler.Submit(submission(lambda r: r.labels.update(labels)))).task_id


@pytest.mark.parametrize("rpc", ["Pause", "Resume", "Trigger", "Backfill", "Update", "Preview"])
async def test_calls_of_schedules_need_one_that_exists(api: Api, rpc: str) -> None:
    made = getattr(schedule_requests_pb2, f"{rpc}Request")
    found = await refusal(getattr(api.scheduler, rpc)(made()))
    assert (found.code, found.reason) == (INVALID, "FIELD_REQUIRED")
    found = await refusal(getattr(api.scheduler, rpc)(made(task_id="none")))
    assert found.code is INVALID
    request = made(task_id=UNKNOWN)
    if rpc == "Backfill":
        request.start_time.FromSeconds(NOW // 1_000 - 60)
        request.end_time.FromSeconds(NOW // 1_000)
    if rpc == "Update":
        request.submission.priority = 1
        request.update_mask.paths.append("priority")
    found = await refusal(getattr(api.scheduler, rpc)(request))
    assert (found.code, found.reason) == (grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")


# --- Batches ----------------------------------------------------------------------------------


async def test_batches_at_their_bounds(api: Api) -> None:
    batch = task_requests_pb2.SubmitBatchRequest
    found = await refusal(api.scheduler.SubmitBatch(batch()))
    assert (found.reason, found.field) == ("FIELD_REQUIRED", "requests")
    full = await api.scheduler.SubmitBatch(batch(requests=[submission()] * 1_000))
    assert len(full.results) == 1_000
    assert len({result.submitted.task_id for result in full.results}) == 1_000
    found = await refusal(api.scheduler.SubmitBatch(batch(requests=[submission()] * 1_001)))
    assert (found.code, found.reason, found.field) == (INVALID, "BATCH_TOO_LARGE", "requests")


@pytest.mark.parametrize("past", [0, 1])
async def test_bytes_of_a_batch(api: Api, past: int) -> None:
    requests = [submission(_payload(data=b"x" * MIB)) for _ in range(14)]
    last = submission(_payload(data=b""))
    batch = task_requests_pb2.SubmitBatchRequest(requests=[*requests, last])
    # A payload this long has a longer length prefix than an empty one, at three levels.
    room = 15 * MIB - batch.ByteSize()
    for size in range(room - 12, room + 1):
        batch.requests[14].payload.data = b"x" * size
        if batch.ByteSize() >= 15 * MIB + past:
            break
    assert batch.ByteSize() == 15 * MIB + past
    if past:
        found = await refusal(api.scheduler.SubmitBatch(batch))
        assert (found.code, found.reason) == (INVALID, "BATCH_TOO_LARGE")
    else:
        results = (await api.scheduler.SubmitBatch(batch)).results
        assert {result.WhichOneof("result") for result in results} == {"submitted"}


# --- Bytes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe", b"\x0a\x7fshort"], ids=["junk", "no utf-8", "cut"]
)
@pytest.mark.parametrize("rpc", ["Submit", "SubmitBatch", "List"])
async def test_bytes_that_do_not_parse(api: Api, raw: bytes, rpc: str) -> None:
    call = api.channel.unary_unary(
        f"/mainspring.v1.SchedulerService/{rpc}",
        request_serializer=bytes,
        response_deserializer=bytes,
    )
    found = await refusal(call(raw))
    assert (found.code, found.reason) == (INVALID, "MALFORMED_REQUEST")


async def test_bytes_that_do_not_parse_on_a_stream(api: Api) -> None:
    call = api.channel.unary_stream(
        "/mainspring.v1.SchedulerService/Watch",
        request_serializer=bytes,
        response_deserializer=bytes,
    )
    found = await refusal(call(b"\x0a\x02\xff\xfe").read())
    assert (found.code, found.reason) == (INVALID, "MALFORMED_REQUEST")


async def test_bytes_that_do_not_parse_on_a_lease_stream(api: Api) -> None:
    call = api.channel.stream_stream(
        "/mainspring.v1.WorkerService/Lease", request_serializer=bytes, response_deserializer=bytes
    )()
    await call.write(b"\xff\xff\xff")
    found = await refusal(call.read())
    assert (found.code, found.reason) == (INVALID, "MALFORMED_REQUEST")


async def test_a_wrong_lease_token_changes_nothing(api: Api) -> None:
    task_id = await api.submit()
    (grant,) = await api.claim()
    result = lease_pb2.TaskResult(task_id=task_id, lease_token=grant.token + 1)
    result.succeeded.outcome = b"late"
    complete = worker_service_pb2.CompleteRequest(worker_id="w", results=[result])
    found = await refusal(api.worker.Complete(complete))
    assert found.code is grpc.StatusCode.FAILED_PRECONDITION
    assert found.reason == "LEASE_LOST"
    read = await api.scheduler.Status(task_requests_pb2.StatusRequest(task_id=task_id))
    assert (read.task.status, read.task.version) == (task_pb2.TASK_STATUS_RUNNING, grant.token)


# --- Ids, pages, filters ----------------------------------------------------------------------

BY_ID = {
    "Status": task_requests_pb2.StatusRequest,
    "Cancel": task_requests_pb2.CancelRequest,
    "History": task_requests_pb2.HistoryRequest,
    "Retry": task_requests_pb2.RetryRequest,
    "Explain": query_requests_pb2.ExplainRequest,
    "Reschedule": task_requests_pb2.RescheduleRequest,
}


@pytest.mark.parametrize("rpc", BY_ID)
async def test_ids(api: Api, rpc: str) -> None:
    async def ask(task_id: str) -> Any:
        request = BY_ID[rpc](task_id=task_id)
        if rpc == "Reschedule":
            request.delay.SetInParent()
        return await refusal(getattr(api.scheduler, rpc)(request))

    found = await ask(UNKNOWN)
    assert (found.code, found.reason) == (grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")
    assert found.metadata["task_id"] == UNKNOWN
    for malformed in (UNKNOWN.upper(), UNKNOWN[:-1], "x", "\0" * 36, UNKNOWN.replace("-", "")):
        found = await ask(malformed)
        assert (found.code, found.reason, found.field) == (INVALID, "TASK_ID_INVALID", "task_id")
    found = await ask("")
    assert (found.code, found.reason, found.field) == (INVALID, "FIELD_REQUIRED", "task_id")


async def test_watched_ids(api: Api) -> None:
    watch = query_requests_pb2.WatchRequest
    found = await refusal(api.scheduler.Watch(watch(task_ids=[UNKNOWN])).read())
    assert (found.code, found.reason) == (grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")
    known = await api.submit()
    found = await refusal(api.scheduler.Watch(watch(task_ids=[known, "x"])).read())
    assert (found.reason, found.field) == ("TASK_ID_INVALID", "task_ids[1]")
    found = await refusal(api.scheduler.Watch(watch()).read())
    assert (found.reason, found.field) == ("FIELD_REQUIRED", "task_ids")
    found = await refusal(api.scheduler.Watch(watch(task_ids=[known] * 1_001)).read())
    assert (found.reason, found.field) == ("FIELD_INVALID", "task_ids")


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"filter": "colour = red"}, "FILTER_INVALID", "filter"),
        ({"filter": "status = DONE"}, "FILTER_INVALID", "filter"),
        ({"filter": "x" * 4_097}, "FIELD_INVALID", "filter"),
        ({"filter": "queue = 'a\0'"}, "FIELD_INVALID", "filter"),
        ({"page_size": -1}, "FIELD_INVALID", "page_size"),
        ({"page_token": "foreign"}, "PAGE_TOKEN_INVALID", "page_token"),
        ({"page_token": "\0"}, "PAGE_TOKEN_INVALID", "page_token"),
        ({"order_by": "size"}, "FIELD_INVALID", "order_by"),
        ({"order_by": "due_time\0"}, "FIELD_INVALID", "order_by"),
        ({"view": 9}, "FIELD_INVALID", "view"),
    ],
    ids=range(10),
)
async def test_lists(api: Api, fields: dict[str, Any], reason: str, field: str) -> None:
    found = await refusal(api.scheduler.List(query_requests_pb2.ListRequest(**fields)))
    assert (found.code, found.reason, found.field) == (INVALID, reason, field)


async def test_a_token_of_another_list_is_foreign(api: Api) -> None:
    for _ in range(2):
        await api.submit()
    first = await api.scheduler.List(query_requests_pb2.ListRequest(page_size=1))
    for other in ({"filter": "queue = resize"}, {"order_by": "due_time"}):
        request = query_requests_pb2.ListRequest(page_token=first.next_page_token, **other)
        found = await refusal(api.scheduler.List(request))
        assert (found.code, found.reason) == (INVALID, "PAGE_TOKEN_INVALID")
    queues = admin_service_pb2.ListQueuesRequest(page_token=first.next_page_token)
    assert (await refusal(api.admin.ListQueues(queues))).reason == "PAGE_TOKEN_INVALID"


@pytest.mark.parametrize("groups", [[0], [1, 1], [9]], ids=["zero", "twice", "unknown"])
async def test_counts(api: Api, groups: list[int]) -> None:
    request = query_requests_pb2.CountRequest()
    request.group_by.extend(groups)
    found = await refusal(api.scheduler.Count(request))
    assert (found.code, found.reason) == (INVALID, "FIELD_INVALID")
    assert found.field == f"group_by[{len(groups) - 1}]"


async def test_reasons_of_people(api: Api) -> None:
    task_id = await api.submit()
    for reason in ("a\0b", "x" * 1_025):
        cancel = task_requests_pb2.CancelRequest(task_id=task_id, reason=reason)
        found = await refusal(api.scheduler.Cancel(cancel))
        assert (found.reason, found.field) == ("FIELD_INVALID", "reason")
        pause = admin_service_pb2.PauseQueueRequest(queue="resize", reason=reason)
        found = await refusal(api.admin.PauseQueue(pause))
        assert (found.reason, found.field) == ("FIELD_INVALID", "reason")
    for name, expected in (("", "FIELD_REQUIRED"), ("a b", "FIELD_INVALID")):
        pause = admin_service_pb2.PauseQueueRequest(queue=name)
        found = await refusal(api.admin.PauseQueue(pause))
        assert (found.reason, found.field) == (expected, "queue")


async def test_new_due_times(api: Api) -> None:
    delay = Duration(seconds=60)
    task_id = await api.submit(schedule={"delay": delay})
    request = task_requests_pb2.RescheduleRequest
    found = await refusal(api.scheduler.Reschedule(request(task_id=task_id)))
    assert (found.reason, found.field) == ("FIELD_REQUIRED", "when")
    past = request(task_id=task_id, delay=Duration(seconds=-1))
    found = await refusal(api.scheduler.Reschedule(past))
    assert (found.reason, found.field) == ("DUE_TIME_OUT_OF_RANGE", "delay")
    far = request(task_id=task_id, due_time=Timestamp(seconds=253_402_300_799))
    found = await refusal(api.scheduler.Reschedule(far))
    assert (found.reason, found.field) == ("DUE_TIME_OUT_OF_RANGE", "due_time")
    stale = request(task_id=task_id, delay=delay, version=7)
    found = await refusal(api.scheduler.Reschedule(stale))
    assert (found.code, found.reason) == (grpc.StatusCode.ABORTED, "VERSION_MISMATCH")


# --- Idempotency ------------------------------------------------------------------------------


async def test_the_same_key_with_another_body(api: Api) -> None:
    keyed = submission(lambda r: setattr(r, "idempotency_key", "k"))
    first = await api.scheduler.Submit(keyed)
    again = await api.scheduler.Submit(keyed)
    assert (again.task_id, again.existing, first.existing) == (first.task_id, True, False)
    keyed.priority = 1
    found = await refusal(api.scheduler.Submit(keyed))
    assert found.code is grpc.StatusCode.ALREADY_EXISTS
    assert (found.reason, found.metadata["task_id"]) == ("IDEMPOTENCY_KEY_REUSED", first.task_id)
    batch = task_requests_pb2.SubmitBatchRequest(requests=[keyed, submission()])
    refused, accepted = (await api.scheduler.SubmitBatch(batch)).results
    assert from_status(refused.error).reason == "IDEMPOTENCY_KEY_REUSED"
    assert accepted.submitted.task_id
    keyed.task_type = "other"
    assert (await api.scheduler.Submit(keyed)).existing is False


async def test_a_defect_is_internal_and_shows_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_args: object, **_named: object) -> None:
        raise RuntimeError("SELECT password")

    monkeypatch.setattr(api.store, "load", broken)
    found = await refusal(api.scheduler.Status(task_requests_pb2.StatusRequest(task_id=UNKNOWN)))
    assert (found.code, found.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "password" not in str(found)
    assert found.metadata["error_id"] in caplog.text


async def test_a_draining_server_takes_nothing_new(api: Api) -> None:
    task_id = await api.submit()
    api.interceptor.draining = True
    found = await refusal(api.scheduler.Submit(submission()))
    assert (found.code, found.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
    status = await api.scheduler.Status(task_requests_pb2.StatusRequest(task_id=task_id))
    assert status.task.task_id == task_id
