"""What happens around every call: decode with care, know the namespace, answer errors as Status.

gRPC itself answers INTERNAL where a request does not parse. Here the decoder never raises: it
hands on a marker, which is answered like any other bad argument.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from ..domain.errors import InvalidArgument, Unavailable
from .errors import abort

DEFAULT_NAMESPACE = "default"
_NAMESPACE: ContextVar[str] = ContextVar("namespace", default=DEFAULT_NAMESPACE)

DRAIN_RETRY_MS = 1_000

# These end what was begun, so a server that stops answers them until its last moment.
UNTIL_THE_END = frozenset(
    {
        "/mainspring.v1.WorkerService/Heartbeat",
        "/mainspring.v1.WorkerService/Complete",
        "/mainspring.v1.SchedulerService/Status",
    }
)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # not subscriptable when it runs


def namespace_of(context: Any) -> str:  # noqa: ARG001 - the credential will come with the context
    """The namespace of the call under way; `default` as long as there are no credentials."""
    return _NAMESPACE.get()


class Malformed(NamedTuple):
    """Stands for a request that does not parse."""

    detail: str


def guarded(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A decoder that answers a marker instead of raising."""

    def read(raw: bytes) -> Any:
        try:
            return decode(raw)
        except (DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
            return Malformed(str(error))

    return read


def _checked(request: Any) -> Any:
    if type(request) is Malformed:
        raise InvalidArgument(
            "MALFORMED_REQUEST",
            f"the request does not parse ({request.detail}): encode it with the published protos, "
            "text as UTF-8",
        )
    return request


async def _checked_stream(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _checked(request)


class ServerInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of the services of `mainspring.v1`; health and reflection stay as they are."""

    def __init__(self) -> None:
        self.draining = False
        """Set by the server while it stops: new calls are refused, except those that end work."""
        self.messages = 0
        """Messages of calls and streams so far, both ways."""
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler to be run: looked up and wrapped once for each method."""
        method = handler_call_details.method
        found = self._wrapped.get(method)
        if found is not None:
            return found
        handler = await continuation(handler_call_details)
        # Methods that do not exist are not remembered: anybody could fill the memory with names.
        if handler is None or not method.startswith("/mainspring.v1."):
            return handler
        wrapped = self._wrap(method, handler)
        self._wrapped[method] = wrapped
        return wrapped

    def _wrap(self, method: str, handler: Handler) -> Handler:
        decode = self._counted(guarded(handler.request_deserializer or bytes))
        encode = self._counted(handler.response_serializer or bytes)
        if handler.request_streaming and handler.response_streaming:
            call = self._streaming(method, handler.stream_stream, _checked_stream)
            return grpc.stream_stream_rpc_method_handler(call, decode, encode)
        if handler.response_streaming:
            call = self._streaming(method, handler.unary_stream, _checked)
            return grpc.unary_stream_rpc_method_handler(call, decode, encode)
        if handler.request_streaming:
            unary = self._unary(method, handler.stream_unary, _checked_stream)
            return grpc.stream_unary_rpc_method_handler(unary, decode, encode)
        unary = self._unary(method, handler.unary_unary, _checked)
        return grpc.unary_unary_rpc_method_handler(unary, decode, encode)

    def _counted(self, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counting(message: Any) -> Any:
            self.messages += 1
            return convert(message)

        return counting

    def _admit(self, method: str) -> None:
        if self.draining and method not in UNTIL_THE_END:
            raise Unavailable(
                "SERVER_DRAINING",
                "the server is stopping; nothing was changed, try again on another server",
                retry_after_ms=DRAIN_RETRY_MS,
            )

    def _unary(self, method: str, behaviour: Any, check: Callable[[Any], Any]) -> Any:
        async def call(request: Any, context: Context) -> Any:
            try:
                self._admit(method)
                return await behaviour(check(request), context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is answered and logged
                await abort(context, error, method)

        return call

    def _streaming(self, method: str, behaviour: Any, check: Callable[[Any], Any]) -> Any:
        async def generate(request: Any, context: Context) -> AsyncIterator[Any]:
            try:
                self._admit(method)
                async for response in behaviour(check(request), context):
                    yield response
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is answered and logged
                await abort(context, error, method)

        async def write(request: Any, context: Context) -> None:
            try:
                self._admit(method)
                await behaviour(check(request), context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is answered and logged
                await abort(context, error, method)

        return generate if inspect.isasyncgenfunction(behaviour) else write
