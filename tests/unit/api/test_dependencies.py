"""What a request says it waits for, and graphs by their names."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.v1 import task_pb2, task_requests_pb2
from mainspring_server.admission.limits import Limits
from mainspring_server.api.dependencies import wait_for, waits_of
from mainspring_server.api.graphs import read_graph
from mainspring_server.api.submit import SubmitReader
from mainspring_server.domain.checks import CREATED_RECHECK_MS
from mainspring_server.domain.errors import InvalidArgument
from mainspring_server.domain.task import NewTask, Rule, Status, Waits
from mainspring_server.ids import mint, text_of

NOW = 1_700_000_000_000
LIMITS = Limits(predecessors=3)
ONE, TWO = mint(NOW, 2)


def refused(message: task_pb2.Dependencies, names: Any = None) -> tuple[str, str | None]:
    with pytest.raises(InvalidArgument) as caught:
        waits_of(message, LIMITS, names)
    return caught.value.reason, caught.value.field


def test_predecessors_rule_and_delay() -> None:
    message = task_pb2.Dependencies(
        task_ids=[text_of(ONE), text_of(ONE)],
        local_refs=["b"],
        rule=task_pb2.DEPENDENCY_RULE_ANY_FAILED,
    )
    message.delay.FromMilliseconds(1_500)
    assert waits_of(message, LIMITS, {"b": TWO}) == Waits((ONE, TWO), Rule.ANY_FAILED, 1_500)


@pytest.mark.parametrize("rule", task_pb2.DependencyRule.values())
def test_rules_have_the_numbers_of_the_proto(rule: int) -> None:
    message = task_pb2.Dependencies(task_ids=[text_of(ONE)], rule=rule)  # type: ignore[arg-type]
    name = task_pb2.DependencyRule.Name(rule)  # type: ignore[arg-type]
    found = waits_of(message, LIMITS, None).rule
    assert found.name == name.removeprefix("DEPENDENCY_RULE_").replace(
        "UNSPECIFIED", "ALL_SUCCEEDED"
    )


def test_three_predecessors_are_allowed_and_a_fourth_is_not() -> None:
    ids = [text_of(task_id) for task_id in mint(NOW, 4)]
    assert len(waits_of(task_pb2.Dependencies(task_ids=ids[:3]), LIMITS, None).predecessors) == 3
    assert refused(task_pb2.Dependencies(task_ids=ids)) == ("FIELD_INVALID", "dependencies")


def test_what_is_wrong_is_named() -> None:
    message = task_pb2.Dependencies
    late = message(task_ids=[text_of(ONE)])
    late.delay.FromSeconds(11 * 366 * 86_400)
    early = message(task_ids=[text_of(ONE)])
    early.delay.FromSeconds(-1)
    odd: Any = 17
    assert refused(message(task_ids=["x"])) == ("TASK_ID_INVALID", "dependencies.task_ids[0]")
    assert refused(message(rule=odd, task_ids=["x"])) == ("FIELD_INVALID", "dependencies.rule")
    assert refused(message(rule=task_pb2.DEPENDENCY_RULE_ALL_DONE)) == (
        "FIELD_REQUIRED",
        "dependencies.task_ids",
    )
    assert refused(late) == ("DUE_TIME_OUT_OF_RANGE", "dependencies.delay")
    assert refused(early) == ("DUE_TIME_OUT_OF_RANGE", "dependencies.delay")
    for names in (None, {"b": TWO}):
        reason = refused(message(local_refs=["a"]), names)
        assert reason == ("LOCAL_REF_INVALID", "dependencies.local_refs[0]")


def test_a_waiting_task_has_no_deadline_yet() -> None:
    task = NewTask(TWO, "default", "a", "a", 5, Status.READY, NOW, NOW, deadline_at=NOW + 5)
    wait_for(task, Waits((ONE,)))
    assert (task.status, task.deadline_at) == (Status.CREATED, None)
    assert task.next_check_at == NOW + CREATED_RECHECK_MS


# --- Graphs -----------------------------------------------------------------------------------


def node(name: str, *after: str, **fields: Any) -> task_requests_pb2.SubmitRequest:
    request = task_requests_pb2.SubmitRequest(task_type="a", local_ref=name, **fields)
    request.schedule.immediate.SetInParent()
    request.dependencies.local_refs.extend(after)
    return request


async def graph(*requests: task_requests_pb2.SubmitRequest) -> list[NewTask]:
    return await read_graph(SubmitReader(Limits()), requests, "default", NOW, None)


async def test_names_become_ids_in_the_order_of_the_requests() -> None:
    last, first, loose = await graph(node("last", "first"), node("first"), node(""))
    assert last.waits == Waits((first.task_id,))
    assert [task.status for task in (last, first, loose)] == [
        Status.CREATED,
        Status.READY,
        Status.READY,
    ]
    assert last.task_id < first.task_id < loose.task_id
    assert len({task.graph_id for task in (last, first, loose)}) == 1
    assert last.graph_id not in (None, last.task_id)
    assert (last.local_ref, loose.local_ref) == ("last", None)


@pytest.mark.parametrize(
    ("requests", "reason", "field"),
    [
        ([node("a"), node("a")], "LOCAL_REF_INVALID", "requests[1].local_ref"),
        ([node("a", "b")], "LOCAL_REF_INVALID", "requests[0].dependencies.local_refs[0]"),
        ([node("", "a")], "LOCAL_REF_INVALID", "requests[0].dependencies.local_refs[0]"),
        ([node("a" * 129)], "FIELD_INVALID", "requests[0].local_ref"),
        ([node("a"), node("b", priority=11)], "FIELD_INVALID", "requests[1].priority"),
    ],
)
async def test_the_first_request_at_fault_is_named(
    requests: list[task_requests_pb2.SubmitRequest], reason: str, field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await graph(*requests)
    assert (caught.value.reason, caught.value.field) == (reason, field)


async def test_d7_a_cycle_is_refused_with_its_path() -> None:
    """D7: a task that waits for itself, two that wait for each other, one behind a longer way.

    Through an existing task there is no cycle to refuse: its edges were fixed before the new task
    had an id that they could name (see api/dependencies.py).
    """
    for requests, path in (
        ([node("a", "a")], "a -> a"),
        ([node("a", "b"), node("b", "a")], "a -> b -> a"),
        ([node("r"), node("x", "r", "z"), node("y", "x"), node("z", "y")], "x -> z -> y -> x"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            await graph(*requests)
        assert (caught.value.reason, caught.value.field) == ("DEPENDENCY_CYCLE", "requests")
        assert caught.value.metadata["path"] == path
        assert path in caught.value.message


async def test_a_cycle_as_long_as_a_batch_is_found() -> None:
    requests = [node(str(n), str((n + 1) % 1_000)) for n in range(1_000)]
    with pytest.raises(InvalidArgument) as caught:
        await graph(*requests)
    assert caught.value.metadata["length"] == "1000"


async def test_one_key_is_the_key_of_the_whole_graph() -> None:
    requests = node("a", idempotency_key="k"), node("b", "a"), node("c")
    first, again = await graph(*requests), await graph(*requests)
    keys = [task.idempotency for task in first]
    assert None not in keys
    assert [task.idempotency and task.idempotency.digest for task in again] == [
        key and key.digest for key in keys
    ]
    assert len({key and key.digest for key in keys}) == 3
    changed = await graph(requests[0], node("b"), requests[2])
    hashes = [task.idempotency and task.idempotency.request_hash for task in changed]
    assert [h == (k and k.request_hash) for h, k in zip(hashes, keys, strict=True)] == [
        True,
        False,
        True,
    ]
    assert [task.idempotency for task in await graph(node("a"), node("b"))] == [None, None]
