"""Watch: where tasks stand, then each change; slow readers, other processes, a server that stops."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from mainspring.v1 import query_requests_pb2, task_pb2
from mainspring_server.domain.leases import Success
from mainspring_server.engine import Engine
from mainspring_server.ids import parse
from mainspring_server.queue.claimed import ClaimedQueue
from mainspring_server.wheel.polled import PolledWheel

from .conftest import NOW, Api, refusal


def watch(api: Api, *ids: str, until_terminal: bool = False) -> Any:
    request = query_requests_pb2.WatchRequest(task_ids=ids, until_terminal=until_terminal)
    return api.scheduler.Watch(request)


async def following(call: Any) -> Any:
    return (await call.read()).transitions


async def test_each_change_is_told_and_the_end_ends_it(api: Api) -> None:
    one, two = await api.submit(), await api.submit()
    call = watch(api, one, two, one, until_terminal=True)
    first = await following(call)
    assert {t.task_id: t.status for t in first} == dict.fromkeys(
        (one, two), task_pb2.TASK_STATUS_READY
    )
    assert {t.version for t in first} == {1}
    assert {t.transition_time.ToMilliseconds() for t in first} == {NOW}
    await api.engine.cancel([parse(two, "")], "enough")
    (cancelled,) = await following(call)
    assert (cancelled.task_id, cancelled.status) == (two, task_pb2.TASK_STATUS_CANCELLED)
    assert cancelled.status_reason == "enough"
    (grant,) = await api.claim()
    (running,) = await following(call)
    assert (running.status, running.worker_id) == (task_pb2.TASK_STATUS_RUNNING, "w")
    await api.engine.complete([Success(grant.task_id, grant.token, None)])
    (done,) = await following(call)
    assert (done.task_id, done.status, done.version) == (one, task_pb2.TASK_STATUS_SUCCEEDED, 3)
    assert await call.read() is grpc.aio.EOF


async def test_a_terminal_task_ends_at_once(api: Api) -> None:
    task_id = await api.submit()
    await api.engine.cancel([parse(task_id, "")], "")
    call = watch(api, task_id, until_terminal=True)
    assert len(await following(call)) == 1
    assert await call.read() is grpc.aio.EOF


async def test_what_another_process_changes_is_found_within_a_second(api: Api) -> None:
    task_id = await api.submit()
    call = watch(api, task_id)
    await following(call)
    wheel = PolledWheel(api.store, api.clock, poll_ms=1_000, ahead_ms=2_000)
    elsewhere = Engine(api.store, wheel, ClaimedQueue(api.store), api.clock)
    await elsewhere.cancel([parse(task_id, "")], "elsewhere")
    seen = asyncio.ensure_future(following(call))
    api.clock.advance(1_000)
    ((change,),) = (await seen,)
    assert change.status == task_pb2.TASK_STATUS_CANCELLED
    call.cancel()


async def test_a_quota(api: Api) -> None:
    task_id = await api.submit()
    calls = [watch(api, task_id) for _ in range(3)]
    for call in calls:
        await following(call)
    found = await refusal(watch(api, task_id).read())
    assert found.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (found.reason, found.metadata["quota"]) == ("QUOTA_EXCEEDED", "watches")
    for call in calls:
        call.cancel()


async def test_a_server_that_stops_says_so(api: Api) -> None:
    task_id = await api.submit()
    call = watch(api, task_id)
    await following(call)
    api.watcher.end_all()
    found = await refusal(call.read())
    assert (found.code, found.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
    found = await refusal(watch(api, task_id).read())
    assert found.reason == "SERVER_DRAINING"
