"""The runtime against a scripted server: grants, results, broken streams, failover."""

import asyncio
import queue
import threading
from typing import Any

import pytest

from mainspring.v1 import lease_pb2
from mainspring_worker import Context, Retry, Snooze, StopReason, Worker


class Echo(Worker):
    """Returns its input, and tells the test that it has begun."""

    task_type = "work"

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[Context] = queue.SimpleQueue()

    async def handle(self, context: Context, payload: Any) -> Any:
        self.begun.put(context)
        return payload


class Gate(Worker):
    """Waits for the test; notes how it was stopped."""

    task_type = "gate"

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[Context] = queue.SimpleQueue()
        self.stopped: queue.SimpleQueue[StopReason | None] = queue.SimpleQueue()
        self.open = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def handle(self, context: Context, payload: Any) -> Any:
        self.loop = asyncio.get_running_loop()
        self.begun.put(context)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped.put(context.stop_reason)
            raise
        return payload

    def let_go(self) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.open.set)


class SyncGate(Worker):
    """The same in a thread."""

    task_type = "gate"

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[Context] = queue.SimpleQueue()
        self.stopped: queue.SimpleQueue[StopReason | None] = queue.SimpleQueue()

    def handle(self, context: Context, payload: Any) -> None:
        self.begun.put(context)
        context.wait_cancelled(60.0)
        self.stopped.put(context.stop_reason)
        context.raise_if_cancelled()


def test_hello_credit_ack_and_result(server: Any, start: Any, lease: Any) -> None:
    worker = Echo()
    running = start(worker, slots=7, token="secret")
    stream = server.accept()
    hello = stream.welcome()
    assert stream.metadata["authorization"] == "Bearer secret"
    assert hello.worker_id == running.runner.worker_id
    assert list(hello.task_types) == ["work"]
    assert (hello.slots, hello.sdk_name, hello.protocol_version) == (7, "mainspring-worker", 1)
    assert stream.expect("credits").max_leases == 7
    stream.grant(*(lease(f"t{n}", n, json=f'{{"n": {n}}}') for n in range(5)))
    ack = stream.expect("ack")
    assert [(ref.task_id, ref.lease_token) for ref in ack.leases] == [
        (f"t{n}", n) for n in range(5)
    ]
    results = stream.expect("results").results
    assert [result.succeeded.outcome for result in results] == [b'{"n":%d}' % n for n in range(5)]
    assert "results" not in stream.seen[: stream.seen.index("ack")]
    stream.apply(results)
    context = worker.begun.get(timeout=10)
    assert (context.task_id, context.lease_token, context.attempt) == ("t0", 0, 1)


def test_every_frame_carries_the_workers_clock(server: Any, start: Any, lease: Any) -> None:
    start(Echo())
    stream = server.accept()
    stream.welcome(beat=0.1)
    # An idle worker beats for no lease: a sign of life in both directions.
    stream.expect("credits")
    stream.expect("heartbeat")
    clocks = [frame.monotonic_time.ToNanoseconds() for frame in stream.log]
    assert clocks == sorted(clocks)
    assert all(clocks)


def test_what_handlers_raise_is_reported_and_kills_nobody(
    server: Any, start: Any, lease: Any
) -> None:
    class Odd(Worker):
        task_type = "work"

        async def handle(self, context: Context, what: str) -> None:
            match what:
                case "retry":
                    raise Retry(3, "later")
                case "snooze":
                    raise Snooze(4)
                case "exit":
                    raise SystemExit(1)
                case "cancelled":
                    raise asyncio.CancelledError
            raise KeyError(what)

    start(Odd())
    stream = server.accept()
    stream.welcome()
    kinds = ["retry", "snooze", "exit", "cancelled", "bug", "broken"]
    stream.grant(*(lease(kind, json=f'"{kind}"' if kind != "broken" else "{") for kind in kinds))
    results = {result.task_id: result for result in stream.expect("results").results}
    assert results["retry"].failed.retry_delay.seconds == 3
    assert results["snooze"].snoozed.delay.seconds == 4
    assert results["exit"].failed.type == "SystemExit"
    assert results["cancelled"].failed.type == "Cancelled"
    assert results["bug"].failed.type == "KeyError"
    assert not results["bug"].failed.HasField("retryable")
    assert results["broken"].failed.type == "InputInvalid"
    assert not results["broken"].failed.retryable
    assert results["broken"].failed.HasField("retryable")


def test_several_classes_share_a_session_unless_they_have_slots(
    server: Any, start: Any, lease: Any
) -> None:
    class Own(Worker):
        task_type = "own"
        slots = 2

        def handle(self, context: Context, payload: None) -> str:
            return "own"

    class Whole(Worker):
        queue = "media"

        def handle(self, context: Context, payload: None) -> str:
            return f"{context.queue}/{context.task_type}"

    running = start(Echo(), Whole(), Own(), slots=5)
    streams = {stream.welcome().worker_id: stream for stream in (server.accept(), server.accept())}
    shared = streams[running.runner.worker_id]
    own = streams[f"{running.runner.worker_id}-1"]
    assert shared.expect("credits").max_leases == 5
    assert own.expect("credits").max_leases == 2
    assert list(shared.log[0].hello.queues) == ["media"]
    assert list(own.log[0].hello.task_types) == ["own"]
    shared.grant(
        lease("a", json="1"),
        lease("b", task_type="resize", queue="media"),
        lease("c", task_type="?"),
    )
    found = {}
    while len(found) < 3:
        found |= {result.task_id: result for result in shared.expect("results").results}
    assert found["a"].succeeded.outcome == b"1"
    assert found["b"].succeeded.outcome == b'"media/resize"'
    assert found["c"].failed.type == "NoHandler"
    own.grant(lease("d", task_type="own"))
    assert own.expect("results").results[0].succeeded.outcome == b'"own"'


def test_results_are_sent_again_after_a_broken_stream(server: Any, start: Any, lease: Any) -> None:
    running = start(Echo())
    stream = server.accept()
    stream.welcome()
    stream.grant(lease("t", 5, json="1"))
    stream.expect("results")
    stream.break_off()
    stream = server.accept()
    hello = stream.welcome()
    assert [(ref.task_id, ref.lease_token) for ref in hello.held] == [("t", 5)]
    results = stream.expect("results").results
    assert [(result.task_id, result.succeeded.outcome) for result in results] == [("t", b"1")]
    stream.apply(results, lease_pb2.RESULT_STATE_DUPLICATE)
    stream.break_off()
    assert list(server.accept().welcome().held) == []
    assert running.runner.stats.duplicate == 1
    assert running.runner.stats.connections >= 2


def test_held_leases_go_on_over_a_broken_stream(server: Any, start: Any, lease: Any) -> None:
    worker = Gate()
    start(worker)
    stream = server.accept()
    stream.welcome()
    stream.grant(lease("t", 5, "gate"), lease("lost", 6, "gate"))
    worker.begun.get(timeout=10)
    worker.begun.get(timeout=10)
    stream.break_off()
    stream = server.accept()
    stream.welcome(
        held=[
            (("t", 5), lease_pb2.LEASE_STATE_EXTENDED, 60),
            (("lost", 6), lease_pb2.LEASE_STATE_LOST, 0),
        ]
    )
    assert worker.stopped.get(timeout=10) is StopReason.LOST
    worker.let_go()
    assert [result.task_id for result in stream.expect("results").results] == ["t"]


def test_server_is_gone_and_another_takes_over(
    server: Any, other_server: Any, start: Any, lease: Any
) -> None:
    start(Echo(), address=f"{server.address},{other_server.address}")
    stream = server.accept()
    stream.welcome()
    stream.grant(lease("t", 5, json="1"))
    stream.expect("results")
    server.close()
    stream = other_server.accept()
    hello = stream.welcome()
    assert [ref.task_id for ref in hello.held] == ["t"]
    stream.apply(stream.expect("results").results)


def test_a_draining_server_is_left_for_another(server: Any, other_server: Any, start: Any) -> None:
    start(Echo(), address=f"{server.address},{other_server.address}")
    stream = server.accept()
    stream.welcome()
    stream.drain()
    other_server.accept().welcome()


def test_a_draining_server_without_another_is_kept(server: Any, start: Any, lease: Any) -> None:
    worker = Gate()
    start(worker)
    stream = server.accept()
    stream.welcome()
    stream.grant(lease("t", 1, "gate"))
    worker.begun.get(timeout=10)
    stream.drain()
    worker.let_go()
    stream.apply(stream.expect("results").results)
    stream.end()
    server.accept().welcome()


@pytest.mark.parametrize("kind", ["cancel", "revoke"])
@pytest.mark.parametrize("make", [Gate, SyncGate])
def test_cancel_reaches_the_handler(
    server: Any, start: Any, lease: Any, make: Any, kind: str
) -> None:
    worker = make()
    running = start(worker, Echo())
    stream = server.accept()
    stream.welcome()
    stream.grant(lease("t", 5, "gate"))
    assert not worker.begun.get(timeout=10).cancelled
    stream.notice(kind, "t", 4)
    stream.notice(kind, "t", 5)
    reason = StopReason.CANCELLED if kind == "cancel" else StopReason.LOST
    assert worker.stopped.get(timeout=10) is reason
    # Nothing is reported about it: the next result is that of another task.
    stream.grant(lease("next", 6, json="1"))
    assert [result.task_id for result in stream.expect("results").results] == ["next"]
    assert running.runner.stats.stopped == 1


def test_result_that_the_server_cannot_store_becomes_a_failure(
    server: Any, start: Any, lease: Any
) -> None:
    running = start(Echo())
    stream = server.accept()
    stream.welcome()
    stream.grant(lease("t", 5, json="1"))
    stream.apply(stream.expect("results").results, lease_pb2.RESULT_STATE_INVALID, "too odd")
    results = stream.expect("results").results
    assert results[0].failed.type == "ResultInvalid"
    assert "too odd" in results[0].failed.message
    stream.apply(results, lease_pb2.RESULT_STATE_STALE)
    stream.break_off()
    assert list(server.accept().welcome().held) == []
    assert (running.runner.stats.invalid, running.runner.stats.stale) == (1, 1)


def test_run_timeout_stops_the_handler_and_is_reported(server: Any, start: Any, lease: Any) -> None:
    worker = Gate()
    start(worker)
    stream = server.accept()
    stream.welcome()
    stream.grant(lease("t", 5, "gate", run_timeout=0.05))
    context = worker.begun.get(timeout=10)
    assert context.deadline is not None
    assert worker.stopped.get(timeout=10) is StopReason.RUN_TIMEOUT
    failed = stream.expect("results").results[0].failed
    assert failed.type == "RunTimeout"
    assert not failed.HasField("retryable")


def test_checkpoint_is_stored_before_the_failure_is_reported(
    server: Any, start: Any, lease: Any
) -> None:
    class Steps(Worker):
        task_type = "work"

        async def handle(self, context: Context, payload: None) -> None:
            assert context.last_checkpoint == b"first"
            context.progress(0.5, "half")
            context.checkpoint(b"second")
            raise Retry(0)

    start(Steps())
    stream = server.accept()
    stream.welcome()
    stream.grant(lease("t", 5, checkpoint=b"first"))
    beat = None
    while beat is None or not beat.leases[0].HasField("checkpoint"):
        beat = stream.expect("heartbeat")
    assert beat.leases[0].checkpoint == b"second"
    assert "results" not in stream.seen
    stream.extend(beat.leases)
    assert stream.expect("results").results[0].failed.type == "Retry"


def test_a_handler_that_does_not_stop_costs_its_slot(server: Any, start: Any, lease: Any) -> None:
    begun, release = threading.Event(), threading.Event()

    class Deaf(Worker):
        task_type = "work"

        def handle(self, context: Context, payload: None) -> None:
            begun.set()
            release.wait(20)

    start(Deaf(), slots=2)
    stream = server.accept()
    stream.welcome()
    assert stream.expect("credits").max_leases == 2
    stream.grant(lease("t", 5))
    assert begun.wait(10)
    stream.notice("cancel", "t", 5)
    assert stream.expect("credits").max_leases == 1
    release.set()
    assert stream.expect("credits").max_leases == 2
