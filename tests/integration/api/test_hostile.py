"""Clients that are broken or mean: each gets an answer, nobody else notices."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest

from mainspring.v1 import (
    lease_pb2,
    lease_stream_pb2,
    query_requests_pb2,
    task_pb2,
    task_requests_pb2,
    worker_service_pb2,
)
from mainspring_server.api.lease_stream import AGAIN_MS
from mainspring_server.domain.errors import Unavailable
from mainspring_server.domain.leases import ResultState, WorkerResult

from .conftest import Api, refusal

ID = "018bcfe5-6800-7d20-94a0-513b36e4fe72"
MIB = 1_024 * 1_024


def frame(**content: Any) -> lease_stream_pb2.LeaseRequest:
    """A frame as a worker writes it."""
    message = lease_stream_pb2.LeaseRequest(**content)
    if not message.HasField("monotonic_time"):
        message.monotonic_time.seconds = 1
    return message


def hello(**more: Any) -> lease_stream_pb2.LeaseRequest:
    """The first frame."""
    said = {"worker_id": "w", "task_types": ["resize"], "slots": 100, "protocol_version": 1}
    return frame(hello=lease_stream_pb2.Hello(**(said | more)))


async def said(api: Api, *frames: lease_stream_pb2.LeaseRequest) -> list[str]:
    """What the server answers to a stream of these frames, to its end."""
    return [str(answer.WhichOneof("frame")) async for answer in api.worker.Lease(iter(frames))]


@pytest.fixture
async def running(api: Api) -> AsyncIterator[Api]:
    """With the dispatcher at work."""
    await api.dispatcher.start()
    yield api
    await api.dispatcher.stop()


# --- The stream -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["heartbeat", "ack", "hand_back", "results"])
async def test_a_frame_of_too_many_items_ends_the_stream(api: Api, kind: str) -> None:
    item: dict[str, Any] = {"task_id": ID, "lease_token": 1}
    name = "results" if kind == "results" else "leases"
    found = await refusal(said(api, hello(), frame(**{kind: {name: [item] * 1_001}})))
    assert found[:3] == (grpc.StatusCode.INVALID_ARGUMENT, "BATCH_TOO_LARGE", kind)


@pytest.mark.parametrize(
    "clock",
    [
        {"seconds": 2**63 - 1},
        {"seconds": -(2**63)},
        {"seconds": 1, "nanos": -1},
        {"nanos": 2_000_000_000},
    ],
)
async def test_a_clock_that_is_none_ends_the_stream(api: Api, clock: dict[str, int]) -> None:
    bad = frame(credits={"max_leases": 1}, monotonic_time=clock)
    found = await refusal(said(api, hello(), bad))
    assert found[:3] == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", "monotonic_time")


async def test_a_beat_for_no_lease_is_answered(api: Api) -> None:
    beat = frame(heartbeat={})
    beat.heartbeat.SetInParent()
    assert await said(api, hello(), beat) == ["welcome", "replies"]


async def test_a_result_that_cannot_be_stored_is_answered_as_invalid(api: Api) -> None:
    results = {"results": [{"task_id": ID, "lease_token": 1}]}
    answers = [a async for a in api.worker.Lease(iter([hello(), frame(results=results)]))]
    (reply,) = answers[-1].replies.results
    assert reply.state == lease_pb2.RESULT_STATE_INVALID
    assert "succeeded, failed, snoozed" in reply.error


async def test_a_result_waits_for_a_store_that_is_away(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = await api.submit()
    (grant,) = await api.claim()
    complete = api.engine.complete
    tries: list[int] = []

    async def flaky(results: list[WorkerResult]) -> list[ResultState | Exception]:
        tries.append(len(results))
        if len(tries) < 3:
            return [Unavailable("STORE_UNAVAILABLE", "the disk is full")] * len(results)
        return await complete(results)

    async def pause(event: Any, until: int | None) -> bool:
        waits.append((until or 0) - api.clock.now())
        return bool(event.is_set())

    waits: list[int] = []
    monkeypatch.setattr(api.engine, "complete", flaky)
    monkeypatch.setattr(api.clock, "wait", pause)
    result = {"task_id": task_id, "lease_token": grant.token, "succeeded": {}}
    answers = [
        a async for a in api.worker.Lease(iter([hello(), frame(results={"results": [result]})]))
    ]
    states = [reply.state for a in answers for reply in a.replies.results]
    assert states == [lease_pb2.RESULT_STATE_APPLIED]
    assert tries == [1, 1, 1]
    assert waits == [AGAIN_MS, AGAIN_MS]


async def test_complete_fails_as_a_whole_where_the_store_is_away(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(results: list[WorkerResult]) -> Sequence[Exception]:
        return [Unavailable("STORE_UNAVAILABLE", "the disk is full")] * len(results)

    monkeypatch.setattr(api.engine, "complete", away)
    results = [{"task_id": ID, "lease_token": 1, "succeeded": {}}] * 2
    call = api.worker.Complete(
        worker_service_pb2.CompleteRequest(worker_id="w", results=results)  # type: ignore[arg-type]
    )
    assert (await refusal(call))[:2] == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")


# --- Sizes ------------------------------------------------------------------------------------


async def test_a_poll_for_large_tasks_fits_what_clients_take_by_default(running: Api) -> None:
    ids = {
        await running.submit(payload=task_pb2.Payload(data=bytes(MIB - 1_000))) for _ in range(6)
    }
    seen: set[str] = set()
    ask = worker_service_pb2.PollRequest(worker_id="w", task_types=["resize"], max_tasks=6)
    while len(seen) < 6:
        answer = await running.worker.Poll(ask)
        assert answer.ByteSize() < 4 * MIB
        assert all(lease.attempt == 1 for lease in answer.leases)
        seen |= {lease.task_id for lease in answer.leases}
    assert seen == ids


async def test_a_stream_for_large_tasks_gets_them_all(running: Api) -> None:
    for _ in range(20):
        await running.submit(payload=task_pb2.Payload(data=bytes(MIB - 1_000)))
    stream = running.worker.Lease()
    await stream.write(hello())
    await stream.write(frame(credits={"max_leases": 100}))
    got = 0
    while got < 20:
        answer = await stream.read()
        assert answer.ByteSize() < 4 * MIB
        leases = answer.leases.leases
        got += len(leases)
        results = [
            {"task_id": x.task_id, "lease_token": x.lease_token, "succeeded": {}} for x in leases
        ]
        if results:
            await stream.write(frame(results={"results": results}))
    await stream.done_writing()
    applied = 0
    while (answer := await stream.read()) is not grpc.aio.EOF:
        applied += len(answer.replies.results)
    assert applied <= 20


# --- One against the other ---------------------------------------------------------------------


async def test_a_late_failure_of_an_older_lease_does_not_refuse_the_real_one(api: Api) -> None:
    task_id = await api.submit()
    (grant,) = await api.claim()
    stale = {"task_id": task_id, "lease_token": grant.token - 1, "failed": {"message": "old"}}
    real = {"task_id": task_id, "lease_token": grant.token, "failed": {"message": "new"}}
    answer = await api.worker.Complete(
        worker_service_pb2.CompleteRequest(worker_id="w", results=[stale, real])  # type: ignore[list-item]
    )
    assert [reply.state for reply in answer.results] == [
        lease_pb2.RESULT_STATE_STALE,
        lease_pb2.RESULT_STATE_APPLIED,
    ]
    status = await api.scheduler.Status(task_requests_pb2.StatusRequest(task_id=task_id))
    assert status.task.last_error == "new"


# --- Questions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ['a"b', "c\\d", "line\nbreak", "\x01", "é", "a.b/c", "it's", "[0]"])
async def test_any_label_that_is_accepted_can_be_asked_for(api: Api, key: str) -> None:
    task_id = await api.submit(labels={key: "yes"})
    await api.submit(labels={key: "no"})
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    found = await api.scheduler.List(
        query_requests_pb2.ListRequest(filter=f'labels."{escaped}" = yes')
    )
    assert [task.task_id for task in found.tasks] == [task_id]


def forged(scope: Sequence[str], key: Sequence[Any]) -> str:
    """A token whose digest is right and whose key no page ever had."""
    raw = json.dumps(list(key), separators=(",", ":")).encode()
    text = json.dumps(list(scope)).encode() + b"\0" + raw
    digest = hashlib.sha256(text).digest()[:12]
    return base64.urlsafe_b64encode(digest + raw).rstrip(b"=").decode()


@pytest.mark.parametrize("number", [10**30, -(10**30)])
async def test_a_forged_token_of_list(api: Api, number: int) -> None:
    token = forged(("List", "default", "", "create_time", "True"), (number, "00"))
    call = api.scheduler.List(query_requests_pb2.ListRequest(page_token=token))
    assert (await refusal(call)).reason == "PAGE_TOKEN_INVALID"


async def test_a_forged_token_of_history_is_no_defect(api: Api) -> None:
    task_id = await api.submit()
    token = forged(("History", "default", task_id), (0, "²"))
    request = task_requests_pb2.HistoryRequest(task_id=task_id, page_token=token)
    assert not (await api.scheduler.History(request)).attempts
