"""Public bugs of other systems as cases, by their numbers, and graphs as callers handle them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from mainspring.v1 import task_pb2, task_requests_pb2
from mainspring_server.admission.limits import Limits
from mainspring_server.api.copies import retry
from mainspring_server.api.graphs import cancel_graph
from mainspring_server.api.submissions import Submissions
from mainspring_server.domain.errors import AlreadyExists, InvalidArgument, NotFound
from mainspring_server.domain.leases import Failure, Grant, LeaseRef, ResultState, Success
from mainspring_server.domain.task import Rule, Status, Timeouts, Waits
from mainspring_server.ids import mint, parse, text_of
from mainspring_server.store.port import All, Field

from .conftest import Bench

CREATED, PENDING, READY, RUNNING = Status.CREATED, Status.PENDING, Status.READY, Status.RUNNING
SUCCEEDED, FAILED, CANCELLED = Status.SUCCEEDED, Status.FAILED, Status.CANCELLED
OUTCOME_BYTES = Limits().outcome_bytes


def node(name: str = "", *after: str, **fields: Any) -> task_requests_pb2.SubmitRequest:
    """A request of a graph that waits for others of it; for existing tasks with `task_ids`."""
    ids, rule = fields.pop("task_ids", ()), fields.pop("rule", 0)
    request = task_requests_pb2.SubmitRequest(task_type="work", local_ref=name, **fields)
    if not request.HasField("schedule"):
        request.schedule.immediate.SetInParent()
    if after or ids:
        waits = task_pb2.Dependencies(local_refs=after, task_ids=ids, rule=rule)
        request.dependencies.MergeFrom(waits)
    request.retry.max_attempts = 1
    return request


class Caller:
    """Submits, and knows tasks by the names in their graph."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.ids: dict[str, bytes] = {}
        self.graph_id = b""
        self._submissions = Submissions(bench.engine, bench.clock, Limits())
        self._held: dict[bytes, Grant] = {}

    async def submit(
        self, request: task_requests_pb2.SubmitRequest, namespace: str = "default"
    ) -> bytes:
        answer = await self._submissions.one(request, namespace, None)
        return parse(answer.task_id, "")

    async def graph(
        self, *requests: task_requests_pb2.SubmitRequest, namespace: str = "default"
    ) -> None:
        batch = task_requests_pb2.SubmitBatchRequest(requests=requests, atomic=True)
        answer = await self._submissions.many(batch, namespace, None)
        self.graph_id = parse(answer.graph_id, "")
        for request, result in zip(requests, answer.results, strict=True):
            self.ids[request.local_ref] = parse(result.submitted.task_id, "")

    async def lease(self, name: str) -> Grant:
        """The lease of a task; what else is ready is leased too, and kept."""
        task_id = self.ids[name]
        if task_id not in self._held:
            self._held |= {grant.task_id: grant for grant in await self.bench.claim()}
        return self._held[task_id]

    async def end(self, *names: str, fails: bool = False) -> None:
        for name in names:
            await self.bench.end(await self.lease(name), fails=fails)
            await self.bench.resolve()

    async def states(self) -> dict[str, Status]:
        rows = await self.bench.statuses(self.ids.values())
        return dict(zip(self.ids, rows, strict=True))

    async def counts(self) -> dict[Status, int]:
        """Of the graph, by status: what `Count` answers."""
        where = Field("graph_id", "=", self.graph_id)
        found = await self.bench.store.count_tasks("default", where, "status")
        return {Status(int(status or 0)): count for status, count in found if count}


@pytest.fixture
def caller(bench: Bench) -> Caller:
    return Caller(bench)


# --- D1 ---------------------------------------------------------------------------------------


async def test_d1_a_child_before_its_parent_is_refused(caller: Caller, bench: Bench) -> None:
    """D1: not stored to wait for what may never come, nor run without it."""
    unborn = text_of(mint(bench.clock.now(), 1)[0])
    with pytest.raises(NotFound) as refused:
        await caller.submit(node(task_ids=[unborn]))
    assert refused.value.reason == "PREDECESSOR_NOT_FOUND"
    assert refused.value.metadata == {"task_id": unborn}
    with pytest.raises(NotFound):
        await caller.graph(node("a"), node("b", "a", task_ids=[unborn]))
    assert await bench.store.count_tasks("default", All(()), None) == [(None, 0)]


# --- D2 ---------------------------------------------------------------------------------------


async def by_the_worker(bench: Bench, _: bytes) -> Status:
    (grant,) = await bench.claim()
    await bench.end(grant, fails=True)
    return FAILED


async def by_the_last_attempt(bench: Bench, _: bytes) -> Status:
    (grant,) = await bench.claim()
    await bench.engine.complete([Failure(grant.task_id, grant.token, "boom", "E")])
    return FAILED


async def by_the_reaper(bench: Bench, _: bytes) -> Status:
    await bench.claim()  # for 5 s, and nobody beats
    bench.tick(5_000)
    return FAILED


async def by_its_run_timeout(bench: Bench, _: bytes) -> Status:
    await bench.claim()
    bench.tick(4_000)
    return FAILED


async def by_its_queue_timeout(bench: Bench, _: bytes) -> Status:
    bench.tick(6_000)
    return FAILED


async def by_its_deadline(bench: Bench, _: bytes) -> Status:
    bench.tick(10_000)
    return FAILED


async def by_a_caller(bench: Bench, task_id: bytes) -> Status:
    await bench.engine.cancel([task_id], "by hand")
    return CANCELLED


WAYS: dict[Callable[[Bench, bytes], Awaitable[Status]], Timeouts] = {
    by_the_worker: Timeouts(),
    by_the_last_attempt: Timeouts(),
    by_the_reaper: Timeouts(),
    by_its_run_timeout: Timeouts(run_ms=4_000),
    by_its_queue_timeout: Timeouts(queue_ms=6_000),
    by_its_deadline: Timeouts(total_ms=10_000),
    by_a_caller: Timeouts(),
}


@pytest.mark.parametrize("crash", [False, True], ids=["", "crash"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_d2_however_a_task_fails_its_dependents_hear_of_it(
    bench: Bench, way: Callable[[Bench, bytes], Awaitable[Status]], crash: bool
) -> None:
    """D2: by worker, by reaper, by deadline; within 5 s, also if the node dies on the way."""
    parent = bench.new(timeouts=WAYS[way])
    child = bench.new(Waits((parent.task_id,)))
    after = bench.new(Waits((child.task_id,)))
    always = bench.new(Waits((parent.task_id, child.task_id), Rule.ALL_DONE))
    await bench.engine.submit_graph([parent, child, after, always])
    how = await way(bench, parent.task_id)
    if not crash:
        await bench.resolve()
    for _ in range(5):
        if crash:
            bench.crash()
        await bench.pass_time(1_000)
    ids = [task.task_id for task in (parent, child, after, always)]
    assert await bench.statuses(ids) == [how, CANCELLED, CANCELLED, READY]
    reason = (await bench.row(child.task_id)).status_reason or ""
    verb = "failed" if how is FAILED else "was cancelled"
    assert reason.endswith(f"predecessor {text_of(parent.task_id)} {verb}")


@pytest.mark.parametrize("step", ["resolve", "apply", "told"])
async def test_d2_a_step_that_fails_is_taken_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """D2: edges marked and nobody released, released and not ticked off: nothing is forgotten."""
    parent = bench.new()
    child = bench.new(Waits((parent.task_id,)))
    await bench.engine.submit_graph([parent, child])
    (grant,) = await bench.claim()
    await bench.end(grant)
    with monkeypatch.context() as patch:
        patch.setattr(bench.store, step, unavailable)
        with pytest.raises(OSError, match="gone"):
            await bench.resolver.run_once()
    bench.engine.replay([parent.task_id])
    assert bench.resolver.pending == 2
    await bench.resolve()
    assert (await bench.row(child.task_id)).status is READY
    assert (await bench.row(parent.task_id)).next_check_at is None


async def test_d2_a_child_that_was_stored_and_not_settled_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: its parent had ended, so nobody else will tell it."""
    parent = bench.new()
    await bench.engine.submit([parent])
    (grant,) = await bench.claim()
    await bench.end(grant)
    child = bench.new(Waits((parent.task_id,)))
    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "waiting", unavailable)
        (answer,) = await bench.engine.submit_graph([child])
    assert answer.status is CREATED
    await bench.pass_time(62_000)
    assert (await bench.row(child.task_id)).status is READY


async def unavailable(*_: object) -> None:
    raise OSError("gone")


# --- D4 ---------------------------------------------------------------------------------------


async def test_d4_a_graph_is_cancelled_in_every_state_of_its_nodes(
    caller: Caller, bench: Bench
) -> None:
    """D4: nothing stays behind as running, and only what was created is counted."""
    later = node("later")
    later.schedule.delay.FromSeconds(60)
    await caller.graph(
        *(node("done"), node("failed"), node("runs"), later, node("after", "runs")),
        *(node("ready", "done"), node("lost", "failed")),
    )
    elsewhere = await caller.submit(node(task_ids=[text_of(caller.ids["runs"])]))
    running = await caller.lease("runs")
    await caller.end("failed", fails=True)
    await caller.end("done")
    assert await caller.counts() == dict.fromkeys(Status, 1)
    heard: list[tuple[LeaseRef, str]] = []
    bench.engine.effects.cancelled.append(heard.extend)
    place = bench.engine, bench.store, caller.graph_id
    assert await cancel_graph(*place, "enough", "default") == 4
    await bench.resolve()
    assert await caller.counts() == {SUCCEEDED: 1, FAILED: 1, CANCELLED: 5}
    assert heard == [(LeaseRef(running.task_id, running.token), "enough")]
    late = Success(running.task_id, running.token, None)
    assert await bench.engine.complete([late]) == [ResultState.STALE]
    # Who waits for a node of it from outside is told as well.
    assert (await bench.row(elsewhere)).status is CANCELLED
    assert await cancel_graph(*place, "enough", "default") == 0
    assert await cancel_graph(*place, "enough", "other") is None


# --- D7 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "path"),
    [
        ([node("a", "a")], "a -> a"),
        ([node("a", "b"), node("b", "a")], "a -> b -> a"),
        ([node("r"), node("x", "r", "z"), node("y", "x"), node("z", "y")], "x -> z -> y -> x"),
    ],
    ids=["itself", "two", "longer"],
)
async def test_d7_a_cycle_is_refused_and_nothing_is_stored(
    caller: Caller,
    bench: Bench,
    requests: Sequence[task_requests_pb2.SubmitRequest],
    path: str,
) -> None:
    """D7: within one Submit, with its path."""
    with pytest.raises(InvalidArgument) as refused:
        await caller.graph(*requests)
    assert (refused.value.reason, refused.value.metadata["path"]) == ("DEPENDENCY_CYCLE", path)
    assert await bench.store.count_tasks("default", All(()), None) == [(None, 0)]


async def test_d7_no_cycle_leads_through_an_existing_task(caller: Caller, bench: Bench) -> None:
    """D7: what an existing task waits for never changes, whoever submits it again."""
    first = await caller.submit(node(idempotency_key="a"))
    second = await caller.submit(node(task_ids=[text_of(first)]))
    # Its only name from outside is its key; another request under that key is refused.
    with pytest.raises(AlreadyExists) as refused:
        await caller.submit(node(idempotency_key="a", task_ids=[text_of(second)]))
    assert refused.value.reason == "IDEMPOTENCY_KEY_REUSED"
    with pytest.raises(AlreadyExists):
        await caller.graph(node("a", idempotency_key="a", task_ids=[text_of(second)]))
    assert await bench.store.edges([first]) == []
    assert await bench.statuses([first, second]) == [READY, CREATED]


# --- A3 ---------------------------------------------------------------------------------------


async def test_a3_a_predecessor_of_another_namespace_is_unknown(
    caller: Caller, bench: Bench
) -> None:
    """A3: the answer is that to an unknown id, and the other's row does not change."""
    foreign = await caller.submit(node(), namespace="theirs")
    before = await bench.row(foreign)
    answers = []
    for task_id in (foreign, mint(bench.clock.now(), 1)[0]):
        text = text_of(task_id)
        for refused in (
            caller.submit(node(task_ids=[text])),
            caller.graph(node("a"), node("b", "a", task_ids=[text])),
        ):
            with pytest.raises(NotFound) as caught:
                await refused
            error = caught.value
            answers.append((error.reason, error.field, str(error).replace(text, "ID")))
    assert answers[:2] == answers[2:]
    assert await bench.row(foreign) == before
    assert not before.has_dependents


# --- Outcomes, delay, Retry -------------------------------------------------------------------


async def test_an_outcome_of_64_kib_is_handed_to_every_dependent(
    caller: Caller, bench: Bench
) -> None:
    await caller.graph(node("a"), node("b"), node("c", "a", "b"), node("d", "a"))
    for name, outcome in (("a", b"\0" * OUTCOME_BYTES), ("b", None)):
        grant = await caller.lease(name)
        await bench.engine.complete([Success(grant.task_id, grant.token, outcome)])
    await bench.resolve()
    handed = [(item.local_ref, item.outcome) for item in (await caller.lease("c")).handed]
    assert handed == [("a", b"\0" * OUTCOME_BYTES), ("b", None)]
    assert [item.local_ref for item in (await caller.lease("d")).handed] == ["a"]


async def test_a_delay_counts_from_the_moment_the_rule_holds(caller: Caller, bench: Bench) -> None:
    late = node("late", "a")
    late.dependencies.delay.FromSeconds(10)
    await caller.graph(node("a"), late)
    bench.tick(50_000)
    await caller.end("a")
    row = await bench.row(caller.ids["late"])
    assert (row.status, row.due_at) == (PENDING, bench.clock.now() + 10_000)
    await bench.pass_time(9_000)
    assert await bench.claim() == []
    await bench.pass_time(4_000)
    await caller.end("late")
    assert await caller.counts() == {SUCCEEDED: 2}


async def test_a_retry_runs_the_failed_node_and_those_it_took_down(
    caller: Caller, bench: Bench
) -> None:
    await caller.graph(
        *(node("ok"), node("bad"), node("mid", "ok", "bad"), node("end", "mid")),
        node("fine", "ok"),
    )
    await caller.end("ok", "fine")
    await caller.end("bad", fails=True)
    assert await caller.counts() == {SUCCEEDED: 2, FAILED: 1, CANCELLED: 2}
    answer = await retry(bench.engine, bench.store, caller.ids["bad"], "default", Limits())
    new = {parse(old, ""): parse(copy, "") for old, copy in answer.new_task_ids.items()}
    assert set(new) == {caller.ids[name] for name in ("bad", "mid", "end")}
    caller.ids = {name: new.get(task_id, task_id) for name, task_id in caller.ids.items()}
    for name in ("bad", "mid", "end"):
        await caller.end(name)
    assert set((await caller.states()).values()) == {SUCCEEDED}
    again = await retry(bench.engine, bench.store, min(new), "default", Limits())
    assert (again.existing, again.new_task_ids) == (True, answer.new_task_ids)


async def test_a_retry_leaves_whom_another_failure_still_holds_down(
    caller: Caller, bench: Bench
) -> None:
    """Also where the one in between ended after the edge to it had stopped to count."""
    await caller.graph(
        *(node("x"), node("y"), node("d", "x", "y"), node("e", "d"), node("f", "e", "x"))
    )
    await caller.end("x", "y", fails=True)
    copied = []
    for name in ("x", "y"):
        answer = await retry(bench.engine, bench.store, caller.ids[name], "default", Limits())
        copied.append({parse(old, "") for old in answer.new_task_ids})
    ids = caller.ids
    assert copied == [{ids["x"]}, {ids["y"], ids["d"], ids["e"], ids["f"]}]
