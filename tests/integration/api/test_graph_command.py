"""`mainspring graph` draws a graph, and counts it, as the server has it."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from mainspring.v1 import (
    schedule_pb2,
    schedule_requests_pb2,
    task_pb2,
    task_requests_pb2,
)
from mainspring_server.cli.app import main
from mainspring_server.domain.leases import Failure, Success
from mainspring_server.ids import parse

from .conftest import Api
from .test_graphs import UNKNOWN, finish, graph, node, task


@dataclass
class Command:
    """`mainspring graph`, or another, against the server of the test: exit code, and what it printed."""

    api: Api
    patch: pytest.MonkeyPatch
    output: pytest.CaptureFixture[str]
    name: str = "graph"

    async def __call__(self, *arguments: str) -> tuple[int, str, str]:
        argv = ["mainspring", self.name, *arguments, "--server", self.api.address]
        self.patch.setattr(sys, "argv", argv)
        code = await asyncio.to_thread(_run)
        return code, *self.output.readouterr()


def _run() -> int:
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.fixture
def command(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    return Command(api, monkeypatch, capsys)


async def test_a_graph_is_drawn_with_how_each_task_stands(api: Api, command: Command) -> None:
    outside = await api.submit()
    graph_id, ids = await graph(
        api,
        node("fetch"),
        node("left", "fetch"),
        node("right", "fetch"),
        node("join", "left", "right"),
        node("clean", "join", rule=task_pb2.DEPENDENCY_RULE_ALL_DONE),
        node("later", "fetch", task_ids=[outside]),
        node("alone"),
    )
    await finish(api, ids["fetch"])
    claimed = {grant.task_id: grant for grant in await api.claim()}
    left, right = (claimed[parse(ids[name], "")] for name in ("left", "right"))
    await api.engine.complete(
        [
            Success(left.task_id, left.token, None),
            Failure(right.task_id, right.token, "\x1b[2Jboom\nmore", "E", retryable=False),
        ]
    )
    await api.resolve()
    expected = f"""\
graph {graph_id}: 7 tasks, 1 CREATED, 1 READY, 1 RUNNING, 2 SUCCEEDED, 1 FAILED, 1 CANCELLED
├── fetch  SUCCEEDED  {ids["fetch"]}
│   ├── left  SUCCEEDED  {ids["left"]}
│   ├── right  FAILED  {ids["right"]}  (\\x1b[2Jboom)
│   │   └── join  CANCELLED  {ids["join"]}  also after left  \
(its rule ALL_SUCCEEDED can no longer hold: predecessor right failed)
│   │       └── clean  READY  {ids["clean"]}  ALL_DONE
│   └── later  CREATED  {ids["later"]}  also after {outside}
└── alone  RUNNING  {ids["alone"]}
"""
    assert await command(graph_id) == (0, expected, "")
    assert (await command(ids["join"]))[1] == expected


async def test_its_document_counts_by_status(api: Api, command: Command) -> None:
    payload = task_pb2.Payload(json="[1]")
    graph_id, ids = await graph(api, node("a", payload=payload), node("b", "a"), node("c", "b"))
    await finish(api, failing=(ids["a"],))
    code, out, _ = await command(graph_id, "--json")
    document = json.loads(out)
    assert (code, document["graph_id"]) == (0, graph_id)
    assert document["counts"] == {"TASK_STATUS_FAILED": 1, "TASK_STATUS_CANCELLED": 2}
    assert [task["task_id"] for task in document["tasks"]] == list(ids.values())
    assert document["tasks"][1]["dependencies"]["task_ids"] == [ids["a"]]
    assert not any("payload" in task for task in document["tasks"])


async def test_tasks_that_are_alike_are_counted_unless_all_are_asked_for(
    api: Api, command: Command
) -> None:
    graph_id, _ = await graph(
        api, node("root"), *(node(f"n{n}", "root") for n in range(29)), node("end", "n3")
    )
    lines = (await command(graph_id))[1].splitlines()
    assert len(lines) == 15
    assert lines[-1] == "    └── … and 18 more CREATED"
    assert sum("end" in line for line in lines) == 1
    assert len((await command(graph_id, "--all"))[1].splitlines()) == 32


async def test_a_chain_of_1000_stays_readable(api: Api, command: Command) -> None:
    nodes = [node("n0"), *(node(f"n{n}", f"n{n - 1}") for n in range(1, 1_000))]
    graph_id, _ = await graph(api, *nodes)
    lines = (await command(graph_id))[1].splitlines()
    assert len(lines) == 1_001
    assert max(map(len, lines)) < 140
    assert lines[-1].endswith("  after n998")


async def test_what_is_no_graph_is_said(api: Api, command: Command) -> None:
    code, _, error = await command(UNKNOWN)
    assert (code, UNKNOWN in error) == (3, True)
    assert (await command("x"))[0] == 4
    task_id = await api.submit()
    code, _, error = await command(task_id)
    assert (code, f"task {task_id} belongs to no graph" in error) == (6, True)
    cron = schedule_pb2.Schedule(cron=schedule_pb2.CronSchedule(expression="0 0 1 1 *"))
    request = task_requests_pb2.SubmitRequest(task_type="resize", schedule=cron)
    schedule_id = (await api.scheduler.Submit(request)).task_id
    code, _, error = await command(schedule_id)
    assert (code, "mainspring history" in error) == (6, True)


async def test_an_instance_of_a_recurring_graph_is_a_graph(api: Api, command: Command) -> None:
    requests = [node("a"), node("b", "a"), node("c", "a", rule=task_pb2.DEPENDENCY_RULE_ALL_DONE)]
    cron = schedule_pb2.CronSchedule(expression="0 0 1 1 *", exact=True)
    batch = task_requests_pb2.SubmitBatchRequest(requests=requests, atomic=True, cron=cron)
    schedule_id = (await api.scheduler.SubmitBatch(batch)).schedule.task_id
    trigger = schedule_requests_pb2.TriggerRequest(task_id=schedule_id)
    first = (await api.scheduler.Trigger(trigger)).task_id
    graph_id = (await task(api, first)).graph_id
    title, *lines = (await command(graph_id))[1].splitlines()
    assert title == f"graph {graph_id}: 3 tasks, 2 CREATED, 1 READY"
    assert [line.partition("── ")[2][:1] for line in lines] == ["a", "b", "c"]
    cancel = task_requests_pb2.CancelRequest(task_id=graph_id)
    assert (await api.scheduler.Cancel(cancel)).cancelled_instances == 3
    await api.resolve()
    assert "3 CANCELLED" in (await command(graph_id))[1]
    # The id of a backfill is that of a group too, and means its instances.
    backfill = schedule_requests_pb2.BackfillRequest(task_id=schedule_id)
    backfill.start_time.FromDatetime(datetime(2020, 1, 1, tzinfo=UTC))
    backfill.end_time.FromDatetime(datetime(2023, 1, 1, tzinfo=UTC))
    made = await api.scheduler.Backfill(backfill)
    assert made.instances == 3
    cancel = task_requests_pb2.CancelRequest(task_id=made.backfill_id)
    assert (await api.scheduler.Cancel(cancel)).cancelled_instances == 3


async def test_get_counts_a_graph(api: Api, command: Command) -> None:
    graph_id, ids = await graph(api, node("a"), node("b", "a"))
    await finish(api, ids["a"])
    get = replace(command, name="get")
    code, out, note = await get(graph_id)
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["graph", graph_id],
        ["tasks", "2"],
        ["READY", "1"],
        ["SUCCEEDED", "1"],
    ]
    assert f"mainspring graph {graph_id}" in note
    code, out, _ = await get(graph_id, "--json")
    assert json.loads(out)["tasks"] == 2
