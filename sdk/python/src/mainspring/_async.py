"""The asyncio transport: one channel, and the loop that runs calls by the retry table."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from ._calls import Call, Pages
from ._channel import OPTIONS, Settings, target
from ._watch import Watch
from .errors import MainspringError, from_rpc_error
from .retry import Tries
from .tasks import Transition
from .v1.admin_service_pb2_grpc import AdminServiceStub
from .v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from .v1.worker_service_pb2_grpc import WorkerServiceStub

if TYPE_CHECKING:
    # At run time one class serves both kinds of channel; these exist for the type checker.
    from .v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from .v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub
    from .v1.worker_service_pb2_grpc import WorkerServiceAsyncStub

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AsyncStubs:
    """The generated stubs, for what the client does not wrap: no retries, gRPC's own errors."""

    channel: grpc.aio.Channel
    """The channel that they share."""
    metadata: tuple[tuple[str, str], ...]
    """The credential; pass it with each call."""
    scheduler: "SchedulerServiceAsyncStub"
    """SchedulerService."""
    worker: "WorkerServiceAsyncStub"
    """WorkerService."""
    admin: "AdminServiceAsyncStub"
    """AdminService."""


class AsyncConnection:
    """Runs calls on a channel that is opened with the first of them, in the loop that runs then."""

    def __init__(
        self, settings: Settings, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Remember where the servers are."""
        self._settings = settings
        self._pause = pause
        self._stubs: AsyncStubs | None = None

    @property
    def stubs(self) -> AsyncStubs:
        """The stubs; the first use opens the channel.

        Raises:
            RuntimeError: No event loop runs: the channel would belong to none.
        """
        if self._stubs is None:
            asyncio.get_running_loop()
            self._stubs = self._open()
        return self._stubs

    def _open(self) -> AsyncStubs:
        address, credentials = target(self._settings.addresses), self._settings.credentials
        if credentials is None:
            channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        else:
            channel = grpc.aio.secure_channel(address, credentials, options=OPTIONS)
        return AsyncStubs(
            channel=channel,
            metadata=self._settings.metadata,
            scheduler=SchedulerServiceStub(channel),
            worker=WorkerServiceStub(channel),
            admin=AdminServiceStub(channel),
        )

    def _method(self, rpc: str) -> Any:
        service, name = rpc.split("/")
        return getattr(getattr(self.stubs, service.removesuffix("Service").lower()), name)

    async def run(self, call: Call[T], timeout: float | None) -> T:
        """Make a call, again if the retry table says so, within its deadline."""
        seconds = self._settings.timeout if timeout is None else timeout
        tries = Tries(call.rpc, call.request, seconds, time.monotonic())
        method = self._method(call.rpc)
        while True:
            try:
                response = await method(
                    call.request,
                    timeout=tries.remaining(time.monotonic()),
                    metadata=self._settings.metadata,
                )
            except grpc.RpcError as error:
                delay = tries.delay_after(self._failure(error), time.monotonic())
            else:
                return call.decode(response)
            await self._pause(delay)

    async def pages(self, pages: Pages[T], timeout: float | None) -> AsyncIterator[T]:
        """The items of all pages, each page read when it is reached."""
        token = ""
        while True:
            items, token = await self.run(pages.call(token), timeout)
            for item in items:
                yield item
            if not token:
                return

    async def watch(self, watch: Watch) -> AsyncGenerator[Transition, None]:
        """The transitions of a watch, over as many streams as it takes."""
        watch.start(time.monotonic())
        while not watch.done():
            failure: MainspringError | None = None
            stream = self.stubs.scheduler.Watch(
                watch.request(),
                timeout=watch.remaining(time.monotonic()),
                metadata=self._settings.metadata,
            )
            try:
                async for response in stream:
                    for transition in watch.accept(response):
                        yield transition
                    if watch.done():
                        return
            except grpc.RpcError as error:
                failure = self._failure(error)
            finally:
                stream.cancel()
            await self._pause(watch.delay_after(failure, time.monotonic(), random.random()))

    def _failure(self, error: grpc.RpcError) -> MainspringError:
        return from_rpc_error(error, self._settings.server)

    async def close(self) -> None:
        """Close the channel; calls in flight end with `CallCancelled`."""
        stubs, self._stubs = self._stubs, None
        if stubs is not None:
            await stubs.channel.close()
