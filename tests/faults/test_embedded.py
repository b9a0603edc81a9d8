"""The embedded deployment under SIGKILL, SIGSTOP and handlers that hold on."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from mainspring import Client, NewTask
from mainspring.errors import FailedPrecondition, from_rpc_error
from mainspring.v1 import lease_pb2, worker_service_pb2

from .processes import Site, eventually, site

TASKS = 5_000
LEASE = 1.5


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as running:
        yield running


@pytest.fixture
def client(here: Site) -> Iterator[Client]:
    with Client(here.address) as connected:
        yield connected


def submit(client: Client, kind: str, count: int, **given: float) -> list[str]:
    results = client.submit_batch([NewTask(kind, given) for _ in range(count)])
    return [result.task_id for result in results]  # type: ignore[union-attr]


def count(client: Client, where: str) -> int:
    return client.count(where).total


@pytest.mark.timeout(120)
def test_a_killed_server_loses_nothing(here: Site, client: Client) -> None:
    here.worker("naps", "Nap", slots=500)
    for _ in range(TASKS // 500):
        submit(client, "nap", 500, seconds=0.2)
    eventually(lambda: count(client, "status = SUCCEEDED") > TASKS // 10, 30, "work is under way")
    here.server.kill()
    here.server.restart()
    here.healthy()
    assert count(client, "task_type = nap") == TASKS
    eventually(lambda: count(client, "status = SUCCEEDED") == TASKS, 60, "all have succeeded")
    ends = Counter(line.split()[1] for line in here.record("naps") if line.startswith("end"))
    assert len(ends) == TASKS


def test_a_killed_worker_costs_its_tasks_one_attempt(here: Site, client: Client) -> None:
    doomed = here.worker("doomed", "Nap", slots=20)
    ids = submit(client, "nap", 20, seconds=1.0)
    eventually(lambda: len(here.record("doomed")) == 20, 15, "all are running")
    doomed.kill()
    here.worker("heir", "Nap", slots=20)
    tasks = [client.wait(task_id, timeout=20) for task_id in ids]
    assert {(task.status.name, task.attempts) for task in tasks} == {("SUCCEEDED", 2)}
    history = list(client.history(ids[0]))
    assert [attempt.outcome.name for attempt in history] == ["SUCCEEDED", "LOST"]  # newest first


def test_l2_a_worker_that_was_frozen_changes_nothing_when_it_wakes(
    here: Site, client: Client
) -> None:
    frozen = here.worker("frozen", "Nap", slots=10)
    ids = submit(client, "nap", 10, seconds=1.0)
    eventually(lambda: len(here.record("frozen")) == 10, 15, "all are running")
    frozen.signal(signal.SIGSTOP)
    here.worker("heir", "Nap", slots=10)
    tasks = {task_id: client.wait(task_id, timeout=20) for task_id in ids}
    assert {task.worker_id for task in tasks.values()}
    frozen.signal(signal.SIGCONT)
    ends = eventually(lambda: len(here.record("heir")) >= 20, 10, "the heir did them all")
    assert ends
    after = {task_id: client.get(task_id) for task_id in ids}
    assert after == tasks
    assert {task.attempts for task in after.values()} == {2}


def test_a_late_result_is_refused_and_changes_nothing(here: Site, client: Client) -> None:
    task_id = submit(client, "by_hand", 1)[0]
    worker = client.raw.worker
    asked = worker_service_pb2.PollRequest(worker_id="slow", task_types=["by_hand"])
    lease = worker.Poll(asked).leases[0]
    eventually(lambda: client.get(task_id).status.name != "RUNNING", 10, "the lease lapsed")
    before = client.get(task_id)
    late = worker_service_pb2.CompleteRequest(
        worker_id="slow",
        results=[
            lease_pb2.TaskResult(
                task_id=task_id,
                lease_token=lease.lease_token,
                succeeded=lease_pb2.Succeeded(outcome=b"late"),
            )
        ],
    )
    with pytest.raises(grpc.RpcError) as caught:
        worker.Complete(late)
    refused = from_rpc_error(caught.value)
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "LEASE_LOST"
    after = client.get(task_id)
    assert (after.version, after.outcome) == (before.version, before.outcome)


def test_a_blocked_loop_costs_only_the_blocker_its_lease(here: Site, client: Client) -> None:
    here.worker("mixed", "Block", "Nap", slots=10)
    naps = submit(client, "nap", 4, seconds=2 * LEASE)
    eventually(lambda: len(here.record("mixed")) == 4, 15, "the neighbours are running")
    blocker = submit(client, "block", 1, seconds=3 * LEASE)[0]
    neighbours = [client.wait(task_id, timeout=30) for task_id in naps]
    assert {(task.status.name, task.attempts) for task in neighbours} == {("SUCCEEDED", 1)}
    blamed = client.wait(blocker, timeout=30)
    assert (blamed.status.name, blamed.attempts) == ("SUCCEEDED", 2)


def test_a_silent_sync_handler_loses_its_lease_and_a_talking_one_does_not(
    here: Site, client: Client
) -> None:
    here.worker("sync", "Silent", "Talking", slots=4)
    silent = submit(client, "silent", 1, seconds=3 * LEASE)[0]
    talking = submit(client, "talking", 1, seconds=3 * LEASE)[0]
    assert client.wait(talking, timeout=30).attempts == 1
    assert client.wait(silent, timeout=30).attempts == 2


def test_l8_a_healthy_handler_ten_leases_long_runs_once(here: Site, client: Client) -> None:
    here.worker("long", "Nap", slots=4)
    task_id = submit(client, "nap", 1, seconds=10 * LEASE)[0]
    task = client.wait(task_id, timeout=40)
    assert (task.status.name, task.attempts) == ("SUCCEEDED", 1)
    assert len(here.record("long")) == 2


def test_a_server_that_drains_counts_no_attempt(here: Site, client: Client) -> None:
    here.worker("steady", "Nap", slots=50)
    ids = submit(client, "nap", 50, seconds=0.5)
    eventually(lambda: len(here.record("steady")) >= 50, 15, "all are running")
    here.server.signal(signal.SIGTERM)
    here.server.child.wait(15)
    here.server.restart()
    here.healthy()
    tasks = [client.wait(task_id, timeout=20) for task_id in ids]
    assert {(task.status.name, task.attempts) for task in tasks} == {("SUCCEEDED", 1)}
