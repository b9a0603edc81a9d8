"""A WorkerService on a loopback port that does what the test says, frame by frame."""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from mainspring.v1 import lease_pb2
from mainspring.v1.lease_stream_pb2 import LeaseRequest, LeaseResponse
from mainspring.v1.worker_service_pb2_grpc import (
    WorkerServiceServicer,
    add_WorkerServiceServicer_to_server,
)
from mainspring_worker import Runner, Worker, drain

PATIENCE = 10.0
EXTENDED = lease_pb2.LEASE_STATE_EXTENDED
APPLIED = lease_pb2.RESULT_STATE_APPLIED
Ref = tuple[str, int]


def set_seconds(target: Any, seconds: float) -> None:
    target.FromNanoseconds(int(seconds * 1e9))


class Stream:
    """The server's end of one Lease call."""

    def __init__(self, requests: Iterator[LeaseRequest]) -> None:
        self.frames: queue.SimpleQueue[LeaseRequest | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[LeaseResponse | Exception | None] = queue.SimpleQueue()
        self.seen: list[str] = []
        self.metadata: dict[str, Any] = {}
        self.read = LeaseRequest()
        self.log: list[LeaseRequest] = []
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()

    def _read(self, requests: Iterator[LeaseRequest]) -> None:
        try:
            for frame in requests:
                self.read = frame
                self.log.append(frame)
                self.frames.put(frame)
        except grpc.RpcError:
            pass
        self.frames.put(None)

    def expect(self, kind: str) -> Any:
        """Wait for a frame of one kind, passing over others."""
        while (frame := self.frames.get(timeout=PATIENCE)) is not None:
            self.seen.append(str(frame.WhichOneof("frame")))
            if self.seen[-1] == kind:
                return getattr(frame, kind)
        raise AssertionError(f"the worker closed the stream; {kind} did not come, but {self.seen}")

    def expect_end(self) -> None:
        while self.frames.get(timeout=PATIENCE) is not None:
            pass

    def welcome(
        self, lease: float = 60.0, beat: float = 15.0, first: float = 5.0, held: Any = ()
    ) -> Any:
        """Say welcome; answers the Hello."""
        hello = self.expect("hello")
        frame = LeaseResponse()
        frame.welcome.session_id = "session"
        set_seconds(frame.welcome.lease_timeout, lease)
        set_seconds(frame.welcome.first_lease_timeout, first)
        set_seconds(frame.welcome.heartbeat_interval, beat)
        frame.welcome.echo_monotonic_time.CopyFrom(self.read.monotonic_time)
        for (task_id, token), state, remaining in held:
            reply = frame.welcome.held.add(task_id=task_id, lease_token=token, state=state)
            set_seconds(reply.remaining, remaining)
        self.answers.put(frame)
        return hello

    def grant(self, *leases: lease_pb2.Lease, first: float = 5.0) -> None:
        frame = LeaseResponse()
        frame.leases.leases.extend(leases)
        frame.leases.echo_monotonic_time.CopyFrom(self.read.monotonic_time)
        set_seconds(frame.leases.first_lease_timeout, first)
        self.answers.put(frame)

    def extend(self, refs: Any, remaining: float = 60.0, state: Any = EXTENDED) -> None:
        """Answer an Ack or a Heartbeat."""
        frame = LeaseResponse()
        for ref in refs:
            reply = frame.replies.leases.add(
                task_id=ref.task_id, lease_token=ref.lease_token, state=state
            )
            set_seconds(reply.remaining, remaining)
        frame.replies.echo_monotonic_time.CopyFrom(self.read.monotonic_time)
        self.answers.put(frame)

    def apply(self, refs: Any, state: Any = APPLIED, error: str = "") -> None:
        """Answer Results or a HandBack."""
        frame = LeaseResponse()
        for ref in refs:
            frame.replies.results.add(
                task_id=ref.task_id, lease_token=ref.lease_token, state=state, error=error
            )
        self.answers.put(frame)

    def notice(self, kind: str, task_id: str, token: int = 1) -> None:
        """Cancel or revoke."""
        frame = LeaseResponse()
        getattr(frame, kind).leases.add(task_id=task_id, lease_token=token)
        self.answers.put(frame)

    def drain(self) -> None:
        frame = LeaseResponse()
        frame.drain.reason = "maintenance"
        self.answers.put(frame)

    def end(self) -> None:
        """Close from the server's side."""
        self.answers.put(None)

    def break_off(self) -> None:
        """End the call with an error."""
        self.answers.put(ConnectionError("broken by the test"))


class FakeServer(WorkerServiceServicer):
    """Hands each stream that a worker opens to the test."""

    def __init__(self) -> None:
        self.streams: queue.SimpleQueue[Stream] = queue.SimpleQueue()
        self.opened: list[Stream] = []
        self._executor = ThreadPoolExecutor(8)
        self._server = grpc.server(self._executor)
        add_WorkerServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def Lease(self, request_iterator: Any, context: Any) -> Iterator[LeaseResponse]:  # noqa: N802
        stream = Stream(request_iterator)
        self.opened.append(stream)
        context.add_callback(stream.end)
        stream.metadata = dict(context.invocation_metadata())
        self.streams.put(stream)
        while (answer := stream.answers.get()) is not None:
            if isinstance(answer, Exception):
                context.abort(grpc.StatusCode.UNAVAILABLE, str(answer))
            yield answer

    def accept(self) -> Stream:
        return self.streams.get(timeout=PATIENCE)

    def close(self) -> None:
        for stream in self.opened:
            stream.end()
        self._server.stop(0).wait(PATIENCE)
        self._executor.shutdown(wait=True)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()


@pytest.fixture
def other_server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()


class Running:
    """A runner in threads, and its one stream."""

    def __init__(self, runner: Runner, server: FakeServer) -> None:
        self.runner = runner
        self.server = server

    def stop_in_background(self, timeout: float = PATIENCE) -> threading.Thread:
        thread = threading.Thread(target=self.runner.stop, args=(timeout,), daemon=True)
        thread.start()
        return thread


StartRunner = Callable[..., Running]


@pytest.fixture
def start(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartRunner]:
    """Start runners against the server; they are stopped at the end."""
    runners: list[Runner] = []

    def begin(*workers: Worker, address: str = "", **options: Any) -> Running:
        runner = Runner(list(workers), server=address or server.address, **options)
        runners.append(runner)
        runner.start()
        return Running(runner, server)

    yield begin
    # Nobody answers any more: do not wait for it.
    monkeypatch.setattr(drain, "STOP_TIMEOUT", 0.01)
    server.close()
    for runner in runners:
        runner.stop(0.0)


def make_lease(
    task_id: str, token: int = 1, task_type: str = "work", json: str = "", **more: Any
) -> Any:
    """A lease for a test."""
    run_timeout = more.pop("run_timeout", None)
    lease = lease_pb2.Lease(
        task_id=task_id, lease_token=token, task_type=task_type, attempt=1, max_attempts=4, **more
    )
    lease.queue = lease.queue or task_type
    if json:
        lease.payload.json = json
    if run_timeout is not None:
        set_seconds(lease.run_timeout, run_timeout)
    return lease


@pytest.fixture
def lease() -> Callable[..., lease_pb2.Lease]:
    return make_lease
