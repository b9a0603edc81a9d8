"""AdminService and Explain: what people see of queues, workers, the server and one task's gates."""

from __future__ import annotations

from typing import Any

from google.protobuf.duration_pb2 import Duration

from mainspring.v1 import admin_service_pb2, query_requests_pb2, rung_pb2
from mainspring_server.domain.leases import Success
from mainspring_server.store.port import WorkerRow

from .conftest import NOW, Api, refusal

Gates = dict[str, str]


async def connect(api: Api, worker_id: str, *, slots: int = 4, in_use: int = 0) -> None:
    row = WorkerRow(
        worker_id=worker_id,
        namespace="default",
        session_id=f"session-{worker_id}",
        node="node-1",
        hostname="host",
        sdk="mainspring-worker 1.0",
        slots=slots,
        in_use=in_use,
        queues=("images",),
        task_types=("resize",),
        connected_at=NOW,
        seen_at=NOW,
    )
    await api.store.save_workers([row], [])


# --- Queues and workers -----------------------------------------------------------------------


async def test_queues(api: Api) -> None:
    for _ in range(4):
        await api.submit()
    await api.submit(schedule={"delay": Duration(seconds=60)})
    await connect(api, "w")
    await api.admin.PauseQueue(admin_service_pb2.PauseQueueRequest(queue="idle", reason="night"))
    api.clock.advance(2_000)
    grants = await api.claim(room=2)
    await api.engine.complete([Success(grants[0].task_id, grants[0].token, None)])
    queues = (await api.admin.ListQueues(admin_service_pb2.ListQueuesRequest())).queues
    assert [queue.queue for queue in queues] == ["idle", "images", "resize"]
    idle, images, resize = queues
    assert (idle.paused, idle.pause_reason) == (True, "night")
    assert idle.pause_time.ToMilliseconds() == NOW
    assert (images.workers, images.slots, images.ready) == (1, 4, 0)
    assert (resize.ready, resize.running, resize.pending) == (2, 1, 1)
    assert resize.oldest_ready_age.ToMilliseconds() == 2_000
    assert resize.drain_estimate.seconds == 120


async def test_pages_of_queues(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.submit(name)
    names, token = [], ""
    for _ in range(3):
        page = await api.admin.ListQueues(
            admin_service_pb2.ListQueuesRequest(page_size=1, page_token=token)
        )
        names += [queue.queue for queue in page.queues]
        token = page.next_page_token
    assert (names, token) == (["a", "b", "c"], "")


async def test_pause_and_resume_reach_the_dispatcher_at_once(api: Api) -> None:
    paused = await api.admin.PauseQueue(admin_service_pb2.PauseQueueRequest(queue="resize"))
    assert paused.queue.paused is True
    assert api.dispatcher._paused == {"default/resize"}
    resumed = await api.admin.ResumeQueue(admin_service_pb2.ResumeQueueRequest(queue="resize"))
    assert (resumed.queue.queue, resumed.queue.paused) == ("resize", False)
    assert api.dispatcher._paused == frozenset()


async def test_workers(api: Api) -> None:
    for name in ("b", "a"):
        await connect(api, name, in_use=1)
    request = admin_service_pb2.ListWorkersRequest
    found = (await api.admin.ListWorkers(request())).workers
    assert [worker.worker_id for worker in found] == ["a", "b"]
    assert (found[0].sdk_name, found[0].sdk_version) == ("mainspring-worker", "1.0")
    assert (found[0].slots, found[0].leases, found[0].node_id) == (4, 1, "node-1")
    first = await api.admin.ListWorkers(request(page_size=1))
    second = await api.admin.ListWorkers(request(page_size=1, page_token=first.next_page_token))
    assert [w.worker_id for w in (*first.workers, *second.workers)] == ["a", "b"]
    assert second.next_page_token == ""
    assert len((await api.admin.ListWorkers(request(queue="images"))).workers) == 2
    assert len((await api.admin.ListWorkers(request(queue="other"))).workers) == 0


async def test_server_info(api: Api) -> None:
    info = await api.admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())
    assert (info.store, info.node_id, info.namespace) == ("sqlite", "node-1", "default")
    assert info.trigger_rung == info.configured_trigger_rung == rung_pb2.TRIGGER_RUNG_STORE
    assert info.queue_rung == info.configured_queue_rung == rung_pb2.QUEUE_RUNG_STORE
    assert info.limits.payload_bytes == 1_024 * 1_024
    assert info.limits.batch_requests == 1_000
    assert list(info.roles) == ["api", "dispatch", "sweep", "trigger"]
    assert "SubmitBatch" in info.capabilities
    assert info.start_time.ToMilliseconds() == NOW
    assert info.lease_timeout.seconds == 60


async def test_messages_are_counted(api: Api) -> None:
    info = await api.admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())
    again = await api.admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())
    # An answer counts itself only afterwards: two requests, and the answer to the first.
    assert again.counters["grpc_messages"] - info.counters["grpc_messages"] == 2


async def test_forecast_is_not_served(api: Api) -> None:
    found = await refusal(api.admin.Forecast(admin_service_pb2.ForecastRequest()))
    assert (found.reason, found.metadata["rpc"]) == ("NOT_IMPLEMENTED", "Forecast")


# --- Explain ----------------------------------------------------------------------------------


async def explain(api: Api, task_id: str) -> tuple[Any, Any]:
    """The answer, and the gate that blocks."""
    answer = await api.scheduler.Explain(query_requests_pb2.ExplainRequest(task_id=task_id))
    state = query_requests_pb2.GateState
    names = [gate.name for gate in answer.gates]
    assert names == sorted(names)
    blocking = [gate for gate in answer.gates if gate.state == state.Value("GATE_STATE_BLOCKING")]
    assert len(blocking) <= 1
    if not blocking:
        return answer, None
    place = list(answer.gates).index(blocking[0])
    assert {gate.state for gate in answer.gates[:place]} <= {state.Value("GATE_STATE_PASSED")}
    later = {gate.state for gate in answer.gates[place + 1 :]}
    assert later <= {state.Value("GATE_STATE_NOT_REACHED")}
    assert blocking[0].detail in answer.summary
    return answer, blocking[0]


def name_of(gate: Any) -> str:
    return query_requests_pb2.GateName.Name(gate.name).removeprefix("GATE_NAME_")


async def test_the_gates_of_one_task_in_its_life(api: Api) -> None:
    task_id = await api.submit(schedule={"delay": Duration(seconds=60)})
    _, gate = await explain(api, task_id)
    assert name_of(gate) == "DUE_TIME"
    assert gate.expected_delay.seconds == 60
    api.clock.advance(60_000)
    assert name_of((await explain(api, task_id))[1]) == "TRIGGER"
    await api.settle()
    _, gate = await explain(api, task_id)
    assert name_of(gate) == "WORKER"
    assert gate.unblock == "a worker for queue resize"
    assert gate.since_time.ToMilliseconds() == NOW + 60_000
    await connect(api, "w", slots=1, in_use=1)
    assert name_of((await explain(api, task_id))[1]) == "CREDIT"
    await connect(api, "w", slots=2, in_use=1)
    assert name_of((await explain(api, task_id))[1]) == "LEASE"
    sooner = await api.submit(priority=0)
    _, gate = await explain(api, task_id)
    assert name_of(gate) == "BACKLOG"
    assert gate.detail.startswith("1 ")
    await api.admin.PauseQueue(admin_service_pb2.PauseQueueRequest(queue="resize", reason="night"))
    _, gate = await explain(api, task_id)
    assert name_of(gate) == "QUEUE"
    assert "night" in gate.detail
    await api.admin.ResumeQueue(admin_service_pb2.ResumeQueueRequest(queue="resize"))
    grants = await api.claim()
    answer, gate = await explain(api, sooner)
    assert gate is None
    assert "w holds its lease" in answer.summary
    await api.engine.complete([Success(g.task_id, g.token, None) for g in grants])
    answer, gate = await explain(api, task_id)
    assert (gate, list(answer.gates)) == (None, [])
    assert "SUCCEEDED" in answer.summary
