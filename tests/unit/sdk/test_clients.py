"""Both clients against a scripted server."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from mainspring import (
    AsyncClient,
    Attempt,
    Client,
    DeadlineExceeded,
    FailedPrecondition,
    Instance,
    NewTask,
    NotFound,
    ResourceExhausted,
    Submitted,
    TaskStatus,
    TaskView,
    Unavailable,
)
from mainspring.v1 import (
    admin_service_pb2,
    query_requests_pb2,
    schedule_pb2,
    schedule_requests_pb2,
    task_pb2,
    task_requests_pb2,
)

ACCEPTED = task_requests_pb2.SubmitResponse(task_id="t1", status=task_pb2.TASK_STATUS_READY)
TASK = task_pb2.Task(task_id="t1", task_type="mail", status=task_pb2.TASK_STATUS_SUCCEEDED)
FOUND = task_requests_pb2.StatusResponse(task=TASK)
GONE = grpc.StatusCode.UNAVAILABLE


def heard(status: int, version: int) -> query_requests_pb2.WatchResponse:
    response = query_requests_pb2.WatchResponse()
    response.transitions.add(
        task_id="t1", status=task_pb2.TaskStatus.ValueType(status), version=version
    )
    return response


def public(cls: type[Any]) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(cls) if not name.startswith("_")}


def test_the_clients_are_twins() -> None:
    blocking, asynchronous = public(Client), public(AsyncClient)
    assert blocking.keys() == asynchronous.keys()
    for name in blocking.keys() - {"raw"}:
        one, other = blocking[name], asynchronous[name]
        assert inspect.getdoc(one) == inspect.getdoc(other), name
        assert inspect.signature(one).parameters == inspect.signature(other).parameters, name
        result = str(inspect.signature(one).return_annotation)
        assert inspect.iscoroutinefunction(other) is ("Iterator" not in result), name


def test_submit(server: Any, client: Any) -> None:
    server.reply("SchedulerService/Submit", ACCEPTED)
    submitted = client.submit("mail", {"to": "ada"}, priority=1)
    assert submitted == Submitted(task_id="t1", status=TaskStatus.READY)
    (request,) = server.requests["SchedulerService/Submit"]
    assert (request.task_type, request.priority, request.payload.json) == (
        "mail",
        1,
        '{"to":"ada"}',
    )
    assert server.metadata[0]["authorization"] == "Bearer secret"
    assert server.metadata[0]["user-agent"].startswith("mainspring-sdk-python/")
    assert 0 < server.remaining[0] <= 11  # gRPC rounds what it sends up


def test_a_lost_answer_makes_no_second_task(server: Any, client: Any, status: Any) -> None:
    server.reply("SchedulerService/Submit", status(GONE, "STORE_UNAVAILABLE"), ACCEPTED)
    assert client.submit("mail").task_id == "t1"
    first, second = server.requests["SchedulerService/Submit"]
    assert first == second
    assert first.idempotency_key
    assert len(client.delays) == 1


def test_without_a_key_the_caller_decides(server: Any, client: Any, status: Any) -> None:
    server.reply("SchedulerService/Submit", status(GONE, "STORE_UNAVAILABLE"))
    with pytest.raises(Unavailable) as raised:
        client.submit("mail", dedupe=False)
    assert raised.value.reason == "STORE_UNAVAILABLE"
    assert server.requests["SchedulerService/Submit"][0].idempotency_key == ""


def test_a_draining_server_is_left_in_any_case(server: Any, client: Any, status: Any) -> None:
    server.reply("SchedulerService/Submit", status(GONE, "SERVER_DRAINING"), ACCEPTED)
    assert client.submit("mail", dedupe=False).task_id == "t1"


def test_overload_is_waited_out(server: Any, client: Any, status: Any) -> None:
    full = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", retry_after=2.0)
    server.reply("SchedulerService/Submit", full, ACCEPTED)
    client.submit("mail")
    assert 2.0 <= client.delays[0] <= 2.2


def test_overload_beyond_the_deadline_is_raised(server: Any, client: Any, status: Any) -> None:
    full = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", retry_after=2.0)
    server.reply("SchedulerService/Submit", full)
    with pytest.raises(ResourceExhausted):
        client.submit("mail", timeout=1.0)


def test_a_silent_server_is_given_up(server: Any, client: Any) -> None:
    release = threading.Event()

    def silent(_: Any) -> Any:
        release.wait(30)
        return FOUND

    server.reply("SchedulerService/Status", silent)
    with pytest.raises(DeadlineExceeded, match=server.address):
        client.get("t1", timeout=0.05)
    release.set()


def batch_reply(request: Any) -> task_requests_pb2.SubmitBatchResponse:
    response = task_requests_pb2.SubmitBatchResponse()
    for _ in request.requests:
        response.results.add(submitted=ACCEPTED)
    return response


def test_a_large_batch(server: Any, client: Any) -> None:
    server.reply("SchedulerService/SubmitBatch", batch_reply, batch_reply)
    results = client.submit_batch(NewTask("mail") for _ in range(1_001))
    assert len(results) == 1_001
    assert [len(r.requests) for r in server.requests["SchedulerService/SubmitBatch"]] == [1_000, 1]


def test_each_task_of_a_batch_has_its_answer(server: Any, client: Any, status: Any) -> None:
    reply = task_requests_pb2.SubmitBatchResponse()
    reply.results.add(submitted=ACCEPTED)
    reply.results.add(error=status(grpc.StatusCode.NOT_FOUND, "PREDECESSOR_NOT_FOUND"))
    server.reply("SchedulerService/SubmitBatch", reply)
    accepted, refused = client.submit_batch([NewTask("mail"), NewTask("mail")])
    assert isinstance(accepted, Submitted)
    assert isinstance(refused, NotFound)
    assert refused.reason == "PREDECESSOR_NOT_FOUND"


def test_a_batch_is_repeated_only_with_keys(server: Any, client: Any, status: Any) -> None:
    lost = status(GONE, "STORE_UNAVAILABLE")
    server.reply("SchedulerService/SubmitBatch", lost, lost, batch_reply)
    with pytest.raises(Unavailable):
        client.submit_batch([NewTask("mail")])
    assert len(client.submit_batch([NewTask("mail")], dedupe=True)) == 1


def test_a_batch_that_breaks_off(server: Any, client: Any, status: Any) -> None:
    server.reply("SchedulerService/SubmitBatch", batch_reply, status(GONE, "STORE_UNAVAILABLE"))
    results = client.submit_batch([NewTask("mail")] * 2_500)
    assert [isinstance(r, Submitted) for r in results] == [True] * 1_000 + [False] * 1_500
    assert all(isinstance(r, Unavailable) for r in results[1_000:])
    assert len(server.requests["SchedulerService/SubmitBatch"]) == 2


def test_an_atomic_batch_is_one_call(server: Any, client: Any) -> None:
    server.reply("SchedulerService/SubmitBatch", batch_reply)
    assert len(client.submit_batch([NewTask("mail")] * 3, atomic=True)) == 3
    assert server.requests["SchedulerService/SubmitBatch"][0].atomic


def test_a_graph(server: Any, client: Any) -> None:
    def reply(request: Any) -> Any:
        response = batch_reply(request)
        response.graph_id = "g"
        return response

    server.reply("SchedulerService/SubmitBatch", reply)
    graph = client.submit_graph([NewTask("mail", local_ref="a")])
    assert (graph.graph_id, len(graph.results), graph.schedule) == ("g", 1, None)


def test_get(server: Any, client: Any, status: Any) -> None:
    server.reply(
        "SchedulerService/Status", FOUND, status(grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")
    )
    task = client.get("t1", view=TaskView.FULL)
    assert (task.task_id, task.status) == ("t1", TaskStatus.SUCCEEDED)
    assert server.requests["SchedulerService/Status"][0].view == task_pb2.TASK_VIEW_FULL
    with pytest.raises(NotFound):
        client.get("t2")


def test_get_schedule(server: Any, client: Any) -> None:
    state = schedule_pb2.ScheduleState(etag="e", paused=True)
    server.reply(
        "SchedulerService/Status",
        task_requests_pb2.StatusResponse(task=TASK, schedule=state),
        FOUND,
    )
    assert client.get_schedule("s").etag == "e"
    with pytest.raises(FailedPrecondition, match="NOT_A_SCHEDULE"):
        client.get_schedule("t1")


def test_pages_follow_each_other(server: Any, client: Any) -> None:
    rpc = "SchedulerService/List"
    server.reply(
        rpc,
        query_requests_pb2.ListResponse(tasks=[TASK, TASK], next_page_token="p2"),
        query_requests_pb2.ListResponse(next_page_token="p3"),
        query_requests_pb2.ListResponse(tasks=[TASK]),
    )
    assert len(client.list("status=FAILED", order_by="due_time", page_size=2)) == 3
    assert [request.page_token for request in server.requests[rpc]] == ["", "p2", "p3"]
    assert {(r.filter, r.order_by, r.page_size) for r in server.requests[rpc]} == {
        ("status=FAILED", "due_time", 2)
    }


def test_history(server: Any, client: Any) -> None:
    server.reply(
        "SchedulerService/History",
        task_requests_pb2.HistoryResponse(attempts=[task_pb2.Attempt(attempt=1)]),
        task_requests_pb2.HistoryResponse(instances=[schedule_pb2.Instance(task_id="i")]),
    )
    (attempt,) = client.history("t1")
    (instance,) = client.history("s")
    assert isinstance(attempt, Attempt)
    assert isinstance(instance, Instance)


def test_a_watch_survives_its_server(server: Any, client: Any, status: Any) -> None:
    server.reply(
        "SchedulerService/Watch",
        [heard(task_pb2.TASK_STATUS_READY, 1), status(GONE, "SERVER_DRAINING")],
        [heard(task_pb2.TASK_STATUS_READY, 1), heard(task_pb2.TASK_STATUS_RUNNING, 2)],
        [heard(task_pb2.TASK_STATUS_SUCCEEDED, 3)],
    )
    assert [t.version for t in client.watch(["t1"])] == [1, 2, 3]
    assert len(client.delays) == 2


def test_a_watch_that_is_refused(server: Any, client: Any, status: Any) -> None:
    server.reply("SchedulerService/Watch", [status(grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")])
    with pytest.raises(NotFound):
        client.watch(["t1"])


def test_wait(server: Any, client: Any) -> None:
    server.reply("SchedulerService/Watch", [heard(task_pb2.TASK_STATUS_SUCCEEDED, 3)])
    server.reply("SchedulerService/Status", FOUND)
    assert client.wait("t1").status is TaskStatus.SUCCEEDED


def test_wait_in_vain(server: Any, client: Any) -> None:
    release = threading.Event()

    def silent(_: Any) -> Any:
        yield heard(task_pb2.TASK_STATUS_READY, 1)
        release.wait(30)

    server.reply("SchedulerService/Watch", silent)
    with pytest.raises(TimeoutError, match="1 of 1 watched tasks had not ended"):
        client.wait("t1", timeout=0.05)
    release.set()


CALLS: list[tuple[str, Any, Callable[[Any], Any], Any]] = [
    (
        "SchedulerService/Cancel",
        task_requests_pb2.CancelResponse(cancelled_instances=2),
        lambda c: c.cancel("t1", "why"),
        2,
    ),
    (
        "SchedulerService/Count",
        query_requests_pb2.CountResponse(total=7),
        lambda c: c.count("queue=a").total,
        7,
    ),
    (
        "SchedulerService/Explain",
        query_requests_pb2.ExplainResponse(task=TASK, summary="done"),
        lambda c: c.explain("t1").summary,
        "done",
    ),
    (
        "SchedulerService/Reschedule",
        task_requests_pb2.RescheduleResponse(task=TASK),
        lambda c: c.reschedule("t1", delay=5).task_id,
        "t1",
    ),
    (
        "SchedulerService/Retry",
        task_requests_pb2.RetryResponse(new_task_ids={"t1": "t2"}),
        lambda c: c.retry("t1").task_id,
        "t2",
    ),
    (
        "SchedulerService/Pause",
        schedule_requests_pb2.PauseResponse(schedule=schedule_pb2.ScheduleState(paused=True)),
        lambda c: c.pause("s", "why").paused,
        True,
    ),
    (
        "SchedulerService/Resume",
        schedule_requests_pb2.ResumeResponse(),
        lambda c: c.resume("s").paused,
        False,
    ),
    (
        "SchedulerService/Trigger",
        schedule_requests_pb2.TriggerResponse(task_id="i"),
        lambda c: c.trigger("s").task_id,
        "i",
    ),
    (
        "SchedulerService/Update",
        schedule_requests_pb2.UpdateResponse(),
        lambda c: c.update("s", cron="@daily", validate_only=True).added_times,
        (),
    ),
    (
        "SchedulerService/Preview",
        schedule_requests_pb2.PreviewResponse(tzdata_version="2026a"),
        lambda c: c.preview("@daily", count=3).tzdata_version,
        "2026a",
    ),
    (
        "AdminService/ListQueues",
        admin_service_pb2.ListQueuesResponse(queues=[admin_service_pb2.Queue(queue="q")]),
        lambda c: [queue.queue for queue in c.queues()],
        ["q"],
    ),
    (
        "AdminService/PauseQueue",
        admin_service_pb2.PauseQueueResponse(queue=admin_service_pb2.Queue(paused=True)),
        lambda c: c.pause_queue("q", "why").paused,
        True,
    ),
    (
        "AdminService/ResumeQueue",
        admin_service_pb2.ResumeQueueResponse(),
        lambda c: c.resume_queue("q").paused,
        False,
    ),
    (
        "AdminService/ListWorkers",
        admin_service_pb2.ListWorkersResponse(workers=[admin_service_pb2.Worker(worker_id="w")]),
        lambda c: [worker.worker_id for worker in c.workers("q")],
        ["w"],
    ),
    (
        "AdminService/Forecast",
        admin_service_pb2.ForecastResponse(slots_connected=4),
        lambda c: c.forecast(window=60).slots_connected,
        4,
    ),
    (
        "AdminService/GetServerInfo",
        admin_service_pb2.GetServerInfoResponse(version="1.2"),
        lambda c: c.server_info().version,
        "1.2",
    ),
]


@pytest.mark.parametrize(("rpc", "reply", "use", "expected"), CALLS, ids=[c[0] for c in CALLS])
def test_the_other_calls(
    server: Any, client: Any, rpc: str, reply: Any, use: Callable[[Any], Any], expected: Any
) -> None:
    server.reply(rpc, reply)
    assert use(client) == expected
    assert len(server.requests[rpc]) == 1


def test_several_servers_are_used_in_turn_and_a_dead_one_is_left_out(server: Any) -> None:
    other = type(server)()
    for one in (server, other):
        one.reply("SchedulerService/Status", *[FOUND] * 50)
    with Client(f"{server.address},{other.address}") as client:
        for _ in range(20):
            client.get("t1")
        counts = [len(one.requests["SchedulerService/Status"]) for one in (server, other)]
        other.stop()
        for _ in range(10):
            client.get("t1")
    # Which of the two connected first is chance; with both connected they take turns.
    assert sum(counts) == 20
    assert sum(len(o.requests["SchedulerService/Status"]) for o in (server, other)) == 30


def test_nobody_there() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        client.submit("mail", dedupe=False)


def test_the_stubs_are_there(server: Any) -> None:
    server.reply("SchedulerService/Status", FOUND)
    with Client(server.address) as client:
        request = task_requests_pb2.StatusRequest(task_id="t1")
        assert client.raw.scheduler.Status(request).task == TASK


async def test_async_context(server: Any) -> None:
    server.reply("SchedulerService/Status", FOUND, FOUND)
    async with AsyncClient(server.address) as client:
        one, other = await asyncio.gather(client.get("t1"), client.get("t1"))
        assert one == other
        assert client.raw.channel is client.raw.channel


def test_an_async_client_wants_a_loop() -> None:
    client = AsyncClient("127.0.0.1:1")
    with pytest.raises(RuntimeError, match="no running event loop"):
        _ = client.raw


@pytest.mark.parametrize("timeout", [0, -1])
def test_no_time_at_all(timeout: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Client("127.0.0.1:1", timeout=timeout)
