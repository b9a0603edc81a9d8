"""The API over a real gRPC server, the real engine and a real SQLite file, on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from mainspring.v1 import (
    admin_service_pb2_grpc,
    scheduler_service_pb2_grpc,
    task_requests_pb2,
    worker_service_pb2_grpc,
)
from mainspring_server.admission.limits import Limits
from mainspring_server.api.admin_service import AdminService
from mainspring_server.api.interceptors import ServerInterceptor
from mainspring_server.api.scheduler_service import SchedulerService
from mainspring_server.api.server import GrpcServer
from mainspring_server.api.server_info import Readings, ServerInfo
from mainspring_server.api.watch import Watcher
from mainspring_server.api.worker_service import WorkerService
from mainspring_server.clock import VirtualClock
from mainspring_server.clock_guard import ClockGuard
from mainspring_server.config import Settings
from mainspring_server.dispatch.dispatcher import Dispatcher
from mainspring_server.domain.leases import Grant, Seat, Want
from mainspring_server.engine import Engine
from mainspring_server.queue.claimed import ClaimedQueue
from mainspring_server.resolve.service import Resolver
from mainspring_server.schedules import Schedules
from mainspring_server.store.sqlite.store import SqliteStore
from mainspring_server.wheel.polled import PolledWheel

NOW = 1_700_000_000_000


class Refusal(NamedTuple):
    """An error as a caller reads it."""

    code: grpc.StatusCode
    reason: str
    field: str | None
    metadata: dict[str, str]


@dataclass
class Api:
    """A running server and its stubs."""

    clock: VirtualClock
    store: SqliteStore
    engine: Engine
    dispatcher: Dispatcher
    resolver: Resolver
    watcher: Watcher
    interceptor: ServerInterceptor
    channel: grpc.aio.Channel
    scheduler: Any
    admin: Any
    worker: Any
    address: str

    async def submit(self, task_type: str = "resize", **fields: Any) -> str:
        """Submit a task, at once unless a schedule is given; its id."""
        request = task_requests_pb2.SubmitRequest(task_type=task_type, **fields)
        if not request.HasField("schedule"):
            request.schedule.immediate.SetInParent()
        return str((await self.scheduler.Submit(request)).task_id)

    async def claim(self, queue: str = "resize", room: int = 100) -> list[Grant]:
        """Lease what is ready, as worker `w`."""
        want = Want((f"default/{queue}",), (Seat("w", room),), 60_000, acked=True)
        return await self.engine.claim([want])

    async def resolve(self) -> None:
        """Tell all dependents of what has ended."""
        while await self.resolver.run_once() is not None:
            pass

    async def settle(self) -> None:
        """Make READY what is due by now."""
        due = await self.store.due(range(64), self.clock.now(), 1_000)
        await self.engine.make_ready([entry.task_id for entry in due])


async def refusal(call: Awaitable[Any]) -> Refusal:
    """The error that a call must end with, from its details."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    for key, value in caught.value.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            assert status.code == caught.value.code().value[0]
            return from_status(status)
    raise AssertionError(f"an error without details: {caught.value}")


def from_status(status: status_pb2.Status) -> Refusal:
    """The error in a Status."""
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    field = None
    for detail in status.details:
        if not detail.Unpack(info) and detail.Unpack(bad):
            field = bad.field_violations[0].field
    assert info.domain == "mainspring"
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    return Refusal(code, info.reason, field, dict(info.metadata))


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A server of its own for each test."""
    clock = VirtualClock(NOW)
    store = SqliteStore(str(tmp_path / "tasks.db"), clock)
    await store.open()
    wheel = PolledWheel(store, clock, poll_ms=1_000, ahead_ms=2_000)
    queue = ClaimedQueue(store)
    engine = Engine(store, wheel, queue, clock)
    dispatcher = Dispatcher(engine, clock, batch=500, recheck_ms=1_000)
    resolver = Resolver(engine, store, clock)
    watcher = Watcher(engine, store, clock, Limits(watches=3))
    settings = Settings(store=f"sqlite:///{tmp_path / 'tasks.db'}", node="node-1")
    interceptor = ServerInterceptor()
    readings = Readings({"grpc_messages": lambda: interceptor.messages}, lambda: None, lambda: None)
    info = ServerInfo(settings, ClockGuard(store, clock), store, wheel, queue, readings)
    services = (
        SchedulerService(
            engine, store, Schedules(store.schedules, engine), watcher, clock, settings.limits
        ).register,
        AdminService(engine, store, dispatcher, info).register,
        WorkerService(engine, dispatcher, clock, settings.leases, settings.limits).register,
    )
    server = GrpcServer("127.0.0.1:0", [interceptor], services, share_port=False)
    await watcher.start()
    await server.start()
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options) as channel:
        yield Api(
            clock,
            store,
            engine,
            dispatcher,
            resolver,
            watcher,
            interceptor,
            channel,
            scheduler_service_pb2_grpc.SchedulerServiceStub(channel),
            admin_service_pb2_grpc.AdminServiceStub(channel),
            worker_service_pb2_grpc.WorkerServiceStub(channel),
            f"127.0.0.1:{server.port}",
        )
    await watcher.stop()
    await server.stop(0)
    await engine.drain()
    await store.close()
