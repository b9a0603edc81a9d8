"""Dependencies and graphs as callers see them."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from mainspring import Client, FailedPrecondition
from mainspring.v1 import (
    admin_service_pb2,
    query_requests_pb2,
    task_pb2,
    task_requests_pb2,
    worker_service_pb2,
)
from mainspring_server.domain.leases import Failure, Success
from mainspring_server.ids import mint, parse, text_of

from .conftest import NOW, Api, from_status, refusal

CREATED, READY, SUCCEEDED, FAILED, CANCELLED = (
    task_pb2.TASK_STATUS_CREATED,
    task_pb2.TASK_STATUS_READY,
    task_pb2.TASK_STATUS_SUCCEEDED,
    task_pb2.TASK_STATUS_FAILED,
    task_pb2.TASK_STATUS_CANCELLED,
)
UNKNOWN = text_of(mint(NOW, 1)[0])


def node(name: str = "", *after: str, **fields: Any) -> task_requests_pb2.SubmitRequest:
    """A request of a graph that waits for others of it; by id with `task_ids`."""
    ids = fields.pop("task_ids", ())
    rule = fields.pop("rule", 0)
    request = task_requests_pb2.SubmitRequest(task_type="resize", local_ref=name, **fields)
    request.schedule.immediate.SetInParent()
    if after or ids:
        request.dependencies.local_refs.extend(after)
        request.dependencies.task_ids.extend(ids)
        request.dependencies.rule = rule
    return request


async def graph(api: Api, *requests: Any, **fields: Any) -> tuple[str, dict[str, str]]:
    """Submit a graph; its id, and the ids of its tasks by name."""
    batch = task_requests_pb2.SubmitBatchRequest(requests=requests, atomic=True, **fields)
    answer = await api.scheduler.SubmitBatch(batch)
    ids = [result.submitted.task_id for result in answer.results]
    names = [request.local_ref or str(n) for n, request in enumerate(requests)]
    return answer.graph_id, dict(zip(names, ids, strict=True))


async def task(api: Api, task_id: str, view: Any = task_pb2.TASK_VIEW_FULL) -> Any:
    request = task_requests_pb2.StatusRequest(task_id=task_id, view=view)
    return (await api.scheduler.Status(request)).task


async def statuses(api: Api, ids: dict[str, str]) -> dict[str, str]:
    found = {name: (await task(api, task_id)).status for name, task_id in ids.items()}
    return {n: task_pb2.TaskStatus.Name(s).removeprefix("TASK_STATUS_") for n, s in found.items()}


async def finish(api: Api, *good: str, failing: tuple[str, ...] = ()) -> list[str]:
    """Claim what is ready: these succeed or fail, the rest stays claimed; then tell dependents."""
    claimed = {text_of(grant.task_id): grant for grant in await api.claim()}
    results: list[Any] = [Success(claimed[i].task_id, claimed[i].token, b"of") for i in good]
    results += [
        Failure(claimed[i].task_id, claimed[i].token, "boom", "E", retryable=False) for i in failing
    ]
    await api.engine.complete(results)
    await api.resolve()
    return list(claimed)


# --- Submit -----------------------------------------------------------------------------------


async def test_a_task_waits_for_an_existing_one(api: Api) -> None:
    first = await api.submit()
    answer = await api.scheduler.Submit(node(task_ids=[first]))
    assert answer.status == CREATED
    assert not answer.HasField("due_time")
    full = await task(api, answer.task_id)
    assert list(full.dependencies.task_ids) == [first]
    assert full.dependencies.rule == task_pb2.DEPENDENCY_RULE_ALL_SUCCEEDED
    assert full.graph_id == ""
    assert not (await task(api, answer.task_id, task_pb2.TASK_VIEW_BASIC)).HasField("dependencies")
    listed = await api.scheduler.List(
        query_requests_pb2.ListRequest(filter="status = CREATED", view=task_pb2.TASK_VIEW_FULL)
    )
    assert [t.dependencies for t in listed.tasks] == [full.dependencies]
    assert await finish(api, first) == [first]
    assert (await task(api, answer.task_id)).status == READY
    # What has ended before is no reason to wait.
    late = await api.scheduler.Submit(node(task_ids=[first]))
    assert (await task(api, late.task_id)).status == READY
    never = node(task_ids=[first], rule=task_pb2.DEPENDENCY_RULE_ANY_FAILED)
    ended = await task(api, (await api.scheduler.Submit(never)).task_id)
    assert (ended.status, "ANY_FAILED" in ended.status_reason) == (CANCELLED, True)


async def test_unknown_and_foreign_predecessors_are_one(api: Api) -> None:
    foreign = parse(await api.submit(), "")
    await api.store._opened.writer.run(  # type: ignore[attr-defined]
        lambda db, _: db.execute("UPDATE tasks SET namespace = 'other'"), 1
    )
    for task_id in (UNKNOWN, text_of(foreign)):
        found = await refusal(api.scheduler.Submit(node(task_ids=[task_id])))
        assert found.code is grpc.StatusCode.NOT_FOUND
        assert (found.reason, found.metadata["task_id"]) == ("PREDECESSOR_NOT_FOUND", task_id)
        refused = graph(api, node("a"), node("b", "a", task_ids=[task_id]))
        found = await refusal(refused)
        assert (found.reason, found.field) == (
            "PREDECESSOR_NOT_FOUND",
            "requests[1].dependencies.task_ids",
        )


async def test_one_bad_item_harms_no_neighbour(api: Api) -> None:
    first = await api.submit()
    requests = [
        node(),
        node(task_ids=[first]),
        node(task_ids=[UNKNOWN]),
        node(task_ids=[first, first]),
        node(task_ids=["x"]),
        node("", "a"),
        node(task_ids=[first], idempotency_key="k"),
        node(task_ids=[first], idempotency_key="k"),
        node(task_ids=[first], idempotency_key="k", priority=1),
    ]
    answer = await api.scheduler.SubmitBatch(
        task_requests_pb2.SubmitBatchRequest(requests=requests)
    )
    found = [
        result.submitted.status
        if result.HasField("submitted")
        else from_status(result.error).reason
        for result in answer.results
    ]
    assert found == [
        READY,
        CREATED,
        "PREDECESSOR_NOT_FOUND",
        CREATED,
        "TASK_ID_INVALID",
        "LOCAL_REF_INVALID",
        CREATED,
        CREATED,
        "IDEMPOTENCY_KEY_REUSED",
    ]
    same = answer.results[6:8]
    assert same[0].submitted.task_id == same[1].submitted.task_id
    assert [result.submitted.existing for result in same] == [False, True]
    assert answer.graph_id == ""


async def test_a_graph_is_all_or_nothing_and_its_repeat_is_harmless(api: Api) -> None:
    requests = [node("a", idempotency_key="k"), node("b", "a"), node("c", "a", "b")]
    graph_id, ids = await graph(api, *requests)
    assert await statuses(api, ids) == {"a": "READY", "b": "CREATED", "c": "CREATED"}
    c = await task(api, ids["c"])
    assert (c.graph_id, c.local_ref) == (graph_id, "c")
    assert list(c.dependencies.task_ids) == [ids["a"], ids["b"]]
    assert await graph(api, *requests) == (graph_id, ids)
    found = await refusal(graph(api, node("a", idempotency_key="k"), node("b")))
    assert found.reason == "IDEMPOTENCY_KEY_REUSED"
    found = await refusal(graph(api, node("a", "c"), node("b", "a"), node("c", "b")))
    assert (found.reason, found.metadata["path"]) == ("DEPENDENCY_CYCLE", "a -> c -> b -> a")
    listed = query_requests_pb2.ListRequest(filter=f"graph_id = {graph_id}")
    assert {t.task_id for t in (await api.scheduler.List(listed)).tasks} == set(ids.values())
    everything = await api.scheduler.Count(query_requests_pb2.CountRequest())
    assert everything.total == 3


async def test_concurrent_waiting_submits_share_their_transactions(api: Api) -> None:
    first = await api.submit()
    calls = [api.scheduler.Submit(node(task_ids=[first])) for _ in range(50)]
    answers = await asyncio.gather(*calls)
    assert len({answer.task_id for answer in answers}) == 50
    await finish(api, first)
    counted = query_requests_pb2.CountRequest(filter="status = READY")
    assert (await api.scheduler.Count(counted)).total == 50


async def test_capabilities_name_them(api: Api) -> None:
    info = await api.admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())
    assert {"Submit.dependencies", "SubmitBatch.atomic"} <= set(info.capabilities)


# --- Running ----------------------------------------------------------------------------------


async def test_outcomes_are_handed_to_the_dependent(api: Api) -> None:
    _, ids = await graph(api, node("a"), node("b"), node("c", "a", "b"))
    await finish(api, ids["a"], ids["b"])
    request = worker_service_pb2.PollRequest(worker_id="w", task_types=["resize"])
    await api.dispatcher.start()
    try:
        (lease,) = (await api.worker.Poll(request)).leases
    finally:
        await api.dispatcher.stop()
    assert [(p.task_id, p.local_ref, p.status, p.outcome) for p in lease.predecessors] == [
        (ids["a"], "a", SUCCEEDED, b"of"),
        (ids["b"], "b", SUCCEEDED, b"of"),
    ]


async def test_a_store_that_cannot_tell_gives_the_task_back(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ids = await graph(api, node("a"), node("b", "a"))
    await finish(api, ids["a"])
    plain = await api.submit()

    async def broken(_ids: Any) -> Any:
        raise OSError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(api.store, "predecessors", broken)
        assert [text_of(grant.task_id) for grant in await api.claim()] == [plain]
    row = await task(api, ids["b"])
    assert (row.status, row.attempts) == (READY, 0)
    (grant,) = await api.claim()
    assert [item.outcome for item in grant.handed] == [b"of"]


async def test_a_delay_after_the_predecessors(api: Api) -> None:
    request = node("b", "a")
    request.dependencies.delay.FromSeconds(10)
    request.timeouts.total_timeout.FromSeconds(60)
    _, ids = await graph(api, node("a"), request)
    api.clock.advance(100_000)
    await finish(api, ids["a"])
    b = await task(api, ids["b"])
    assert b.status == task_pb2.TASK_STATUS_PENDING
    assert b.due_time.ToMilliseconds() == NOW + 110_000
    assert b.dependencies.delay.ToMilliseconds() == 10_000
    row = (await api.store.load([parse(ids["b"], "")]))[0]
    assert row is not None
    assert row.deadline_at == NOW + 170_000


async def test_explain_says_who_is_waited_for(api: Api) -> None:
    names = [f"p{n}" for n in range(8)]
    _, ids = await graph(api, *map(node, names), node("last", *names))
    await finish(api, ids["p0"])
    request = query_requests_pb2.ExplainRequest(task_id=ids["last"])
    gate = (await api.scheduler.Explain(request)).gates[0]
    assert gate.name == query_requests_pb2.GATE_NAME_DEPENDENCIES
    assert gate.state == query_requests_pb2.GATE_STATE_BLOCKING
    assert gate.detail == "1 of 8 predecessors are done, its rule is ALL_SUCCEEDED"
    assert gate.unblock.startswith(f"task {ids['p1']}, ")
    assert gate.unblock.endswith(" and 2 more")
    request = query_requests_pb2.ExplainRequest(task_id=ids["p1"])
    gate = (await api.scheduler.Explain(request)).gates[0]
    assert (gate.state, gate.detail) == (
        query_requests_pb2.GATE_STATE_PASSED,
        "it waits for no other task",
    )


# --- Status -----------------------------------------------------------------------------------


async def test_status_of_a_graph_counts_its_tasks_by_state(api: Api) -> None:
    graph_id, ids = await graph(api, node("a"), node("b"), node("c", "a"), node("d", "b", "c"))
    await finish(api, ids["a"])
    answer = await api.scheduler.Status(task_requests_pb2.StatusRequest(task_id=graph_id))
    assert not answer.HasField("task")
    assert (answer.graph.graph_id, answer.graph.tasks) == (graph_id, 4)
    assert [(row.status, row.count) for row in answer.graph.counts] == [
        (CREATED, 1),
        (READY, 1),
        (task_pb2.TASK_STATUS_RUNNING, 1),
        (SUCCEEDED, 1),
    ]
    with Client(api.address) as client:
        read = await asyncio.to_thread(client.get_graph, graph_id)
        assert (read.tasks, [row.count for row in read.counts]) == (4, [1, 1, 1, 1])
        with pytest.raises(FailedPrecondition, match="get_graph"):
            await asyncio.to_thread(client.get, graph_id)
        with pytest.raises(FailedPrecondition, match="not a graph"):
            await asyncio.to_thread(client.get_graph, ids["a"])


# --- Cancel -----------------------------------------------------------------------------------


async def test_d4_a_graph_is_cancelled_in_every_state_of_its_nodes(api: Api) -> None:
    """D4: nothing stays behind as running, and only what was created is counted."""
    later = node("later")
    later.schedule.delay.FromSeconds(60)
    graph_id, ids = await graph(
        api, node("done"), node("runs"), later, node("after", "runs"), node("ready", "done")
    )
    await finish(api, ids["done"])
    expected = {"done": "SUCCEEDED", "runs": "RUNNING", "later": "PENDING"}
    assert await statuses(api, ids) == expected | {"after": "CREATED", "ready": "READY"}
    request = task_requests_pb2.CancelRequest(task_id=graph_id, reason="enough")
    assert (await api.scheduler.Cancel(request)).cancelled_instances == 4
    await api.resolve()
    assert set((await statuses(api, ids)).values()) == {"SUCCEEDED", "CANCELLED"}
    assert (await task(api, ids["after"])).status_reason == "enough"
    assert (await api.scheduler.Cancel(request)).cancelled_instances == 0
    counts = await api.scheduler.Count(
        query_requests_pb2.CountRequest(
            filter=f"graph_id = {graph_id}", group_by=[query_requests_pb2.COUNT_GROUP_BY_STATUS]
        )
    )
    assert {group.status: group.count for group in counts.groups} == {CANCELLED: 4, SUCCEEDED: 1}
    request = task_requests_pb2.CancelRequest(task_id=UNKNOWN)
    assert (await refusal(api.scheduler.Cancel(request))).reason == "TASK_NOT_FOUND"


# --- Retry ------------------------------------------------------------------------------------


async def retry(api: Api, task_id: str) -> Any:
    return await api.scheduler.Retry(task_requests_pb2.RetryRequest(task_id=task_id))


async def test_retry_takes_along_whom_the_task_took_down(api: Api) -> None:
    graph_id, ids = await graph(
        api,
        node("ok"),
        node("bad"),
        node("mid", "bad", "ok", payload=task_pb2.Payload(json="[1]")),
        node("end", "mid"),
        node("always", "bad", rule=task_pb2.DEPENDENCY_RULE_ALL_DONE),
        node("other", "ok"),
        node("stopped", "ok", "bad"),
    )
    stop = task_requests_pb2.CancelRequest(task_id=ids["stopped"], reason="by hand")
    await api.scheduler.Cancel(stop)
    await finish(api, ids["ok"], failing=(ids["bad"],))
    assert await statuses(api, ids) == {
        "ok": "SUCCEEDED",
        "bad": "FAILED",
        "mid": "CANCELLED",
        "end": "CANCELLED",
        "always": "READY",
        "other": "READY",
        "stopped": "CANCELLED",
    }
    assert ids["bad"] in (await task(api, ids["mid"])).status_reason
    assert ids["mid"] in (await task(api, ids["end"])).status_reason

    calls = await asyncio.gather(*(retry(api, ids["bad"]) for _ in range(4)))
    answer = calls[0]
    assert all(call.new_task_ids == answer.new_task_ids for call in calls)
    assert sorted(call.existing for call in calls) == [False, True, True, True]
    assert set(answer.new_task_ids) == {ids["bad"], ids["mid"], ids["end"]}
    api.clock.advance(2 * 86_400_000)
    assert (await retry(api, ids["bad"])).new_task_ids == answer.new_task_ids

    new = {name: answer.new_task_ids[ids[name]] for name in ("bad", "mid", "end")}
    mid = await task(api, new["mid"])
    assert (mid.status, mid.retry_of, mid.local_ref) == (CREATED, ids["mid"], "mid")
    assert mid.payload.json == "[1]"
    assert set(mid.dependencies.task_ids) == {new["bad"], ids["ok"]}
    copied = {(await task(api, task_id)).graph_id for task_id in new.values()}
    assert len(copied) == 1
    assert copied.pop() not in ("", graph_id)
    await finish(api, new["bad"])
    await finish(api, new["mid"])
    assert await statuses(api, new) == {"bad": "SUCCEEDED", "mid": "SUCCEEDED", "end": "READY"}


async def test_a_dependent_of_two_failures_comes_with_the_second_retry(api: Api) -> None:
    _, ids = await graph(api, node("x"), node("y"), node("d", "x", "y"))
    await finish(api, failing=(ids["x"], ids["y"]))
    first = (await retry(api, ids["x"])).new_task_ids
    assert set(first) == {ids["x"]}  # y would take it down again
    second = (await retry(api, ids["y"])).new_task_ids
    assert set(second) == {ids["y"], ids["d"]}
    d = await task(api, second[ids["d"]])
    assert set(d.dependencies.task_ids) == {first[ids["x"]], second[ids["y"]]}
    # And if the first copy fails before the second Retry, its own Retry brings it.
    await finish(api, second[ids["y"]], failing=(first[ids["x"]],))
    assert (await task(api, d.task_id)).status == CANCELLED
    third = (await retry(api, first[ids["x"]])).new_task_ids
    assert set(third) == {first[ids["x"]], d.task_id}
    last = await task(api, third[d.task_id])
    assert set(last.dependencies.task_ids) == {third[first[ids["x"]]], second[ids["y"]]}
    await finish(api, third[first[ids["x"]]])
    assert (await task(api, last.task_id)).status == READY


async def test_a_copy_that_failed_before_brings_the_dependents_of_its_origin(api: Api) -> None:
    _, ids = await graph(api, node("x"), node("y"), node("d", "x", "y"))
    await finish(api, failing=(ids["x"], ids["y"]))
    copy = (await retry(api, ids["x"])).new_task_ids[ids["x"]]
    await finish(api, failing=(copy,))
    other = (await retry(api, ids["y"])).new_task_ids
    assert set(other) == {ids["y"]}  # the copy of x holds it down
    await finish(api, other[ids["y"]])
    again = (await retry(api, copy)).new_task_ids
    assert set(again) == {copy, ids["d"]}
    await finish(api, again[copy])
    assert (await task(api, again[ids["d"]])).status == READY


async def test_a_failed_task_that_waited_is_retried_at_once_and_is_handed_the_same(
    api: Api,
) -> None:
    request = node("b", "a")
    request.dependencies.delay.FromSeconds(1)
    _, ids = await graph(api, node("a"), request)
    await finish(api, ids["a"])
    api.clock.advance(1_000)
    await api.settle()
    await finish(api, failing=(ids["b"],))
    copy = (await retry(api, ids["b"])).new_task_ids[ids["b"]]
    assert (await task(api, copy)).status == READY
    (grant,) = await api.claim()
    assert [item.outcome for item in grant.handed] == [b"of"]
