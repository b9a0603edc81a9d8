"""A scripted server on a free port, and both clients behind one face."""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from mainspring import AsyncClient, Client
from mainspring.v1 import admin_service_pb2, scheduler_service_pb2, worker_service_pb2

SERVICES = {
    service.full_name: service
    for module in (scheduler_service_pb2, worker_service_pb2, admin_service_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
}


def make_status(
    code: grpc.StatusCode, reason: str = "", message: str = "refused", **extra: Any
) -> status_pb2.Status:
    """A `google.rpc.Status` as the server sends it."""
    status = status_pb2.Status(code=code.value[0], message=message)
    info = error_details_pb2.ErrorInfo(
        reason=reason, domain="mainspring", metadata=extra.get("metadata", {})
    )
    status.details.add().Pack(info)
    if "violations" in extra:
        bad = error_details_pb2.BadRequest()
        for field, description in extra["violations"].items():
            bad.field_violations.add(field=field, description=description)
        status.details.add().Pack(bad)
    if "retry_after" in extra:
        delay = Duration()
        delay.FromNanoseconds(int(extra["retry_after"] * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


class ScriptedServer(grpc.GenericRpcHandler):
    """Answers each RPC with what was queued for it, and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: dict[str, list[Any]] = defaultdict(list)
        self.metadata: list[dict[str, Any]] = []
        self.remaining: list[float] = []
        self._replies: dict[str, deque[Any]] = defaultdict(deque)
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def reply(self, rpc: str, *replies: Any) -> None:
        """Queue replies: a message, a list of them for a stream, a Status, or a function."""
        self._replies[rpc].extend(replies)

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler:
        service, _, method = handler_call_details.method.lstrip("/").partition("/")
        descriptor = SERVICES[service].methods_by_name[method]
        rpc = f"{service.rpartition('.')[2]}/{method}"
        streams = descriptor.server_streaming
        make = (
            grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        )
        answer = self._stream if streams else self._unary
        return make(
            lambda request, context: answer(rpc, request, context),
            request_deserializer=GetMessageClass(descriptor.input_type).FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _next(self, rpc: str, request: Any, context: grpc.ServicerContext) -> Any:
        with self._lock:
            self.requests[rpc].append(request)
            self.metadata.append(dict(context.invocation_metadata()))
            self.remaining.append(context.time_remaining())
            reply = self._replies[rpc].popleft()
        return reply(request) if callable(reply) else reply

    def _unary(self, rpc: str, request: Any, context: grpc.ServicerContext) -> Any:
        reply = self._next(rpc, request, context)
        if isinstance(reply, status_pb2.Status):
            abort(context, reply)
        return reply

    def _stream(self, rpc: str, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for reply in self._next(rpc, request, context):
            if isinstance(reply, status_pb2.Status):
                abort(context, reply)
            yield reply


def abort(context: grpc.ServicerContext, status: status_pb2.Status) -> None:
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    context.abort(code, status.message)


class Driver:
    """Calls a client's methods by name; what is iterated comes as a list."""

    def __init__(self, kind: str, address: str) -> None:
        self.delays: list[float] = []
        self._runner = asyncio.Runner() if kind == "async" else None
        self.client: Any = (AsyncClient if self._runner else Client)(address, token="secret")
        # Backoff is counted, not slept through.
        self.client._connection._pause = self._pause_later if self._runner else self.delays.append

    async def _pause_later(self, delay: float) -> None:
        self.delays.append(delay)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = getattr(self.client, name)(*args, **kwargs)
            if self._runner is None:
                return list(result) if isinstance(result, Iterator) else result
            return self._runner.run(self._finish(result))

        return call

    async def _finish(self, result: Any) -> Any:
        if hasattr(result, "__aiter__"):
            return [item async for item in result]
        return await result

    def stop(self) -> None:
        if self._runner is None:
            self.client.close()
        else:
            self._runner.run(self.client.close())
            self._runner.close()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.stop()


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, server: ScriptedServer) -> Iterator[Driver]:
    driver = Driver(request.param, server.address)
    yield driver
    driver.stop()


@pytest.fixture
def status() -> Callable[..., status_pb2.Status]:
    return make_status
