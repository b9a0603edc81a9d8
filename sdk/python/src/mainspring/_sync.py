"""The blocking transport: one channel, and the loop that runs calls by the retry table."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stubs:
    """The generated stubs, for what the client does not wrap: no retries, gRPC's own errors."""

    channel: grpc.Channel
    """The channel that they share."""
    metadata: tuple[tuple[str, str], ...]
    """The credential; pass it with each call."""
    scheduler: SchedulerServiceStub
    """SchedulerService."""
    worker: WorkerServiceStub
    """WorkerService."""
    admin: AdminServiceStub
    """AdminService."""


class Connection:
    """Runs calls on a channel that is opened with the first of them. Safe between threads."""

    def __init__(self, settings: Settings, pause: Callable[[float], None] = time.sleep) -> None:
        """Remember where the servers are."""
        self._settings = settings
        self._pause = pause
        self._lock = threading.Lock()
        self._stubs: Stubs | None = None

    @property
    def stubs(self) -> Stubs:
        """The stubs; the first use opens the channel."""
        with self._lock:
            if self._stubs is None:
                self._stubs = self._open()
            return self._stubs

    def _open(self) -> Stubs:
        address, credentials = target(self._settings.addresses), self._settings.credentials
        if credentials is None:
            channel = grpc.insecure_channel(address, options=OPTIONS)
        else:
            channel = grpc.secure_channel(address, credentials, options=OPTIONS)
        return Stubs(
            channel=channel,
            metadata=self._settings.metadata,
            scheduler=SchedulerServiceStub(channel),
            worker=WorkerServiceStub(channel),
            admin=AdminServiceStub(channel),
        )

    def _method(self, rpc: str) -> Any:
        service, name = rpc.split("/")
        return getattr(getattr(self.stubs, service.removesuffix("Service").lower()), name)

    def run(self, call: Call[T], timeout: float | None) -> T:
        """Make a call, again if the retry table says so, within its deadline."""
        seconds = self._settings.timeout if timeout is None else timeout
        tries = Tries(call.rpc, call.request, seconds, time.monotonic())
        method = self._method(call.rpc)
        while True:
            try:
                response = method(
                    call.request,
                    timeout=tries.remaining(time.monotonic()),
                    metadata=self._settings.metadata,
                )
            except grpc.RpcError as error:
                delay = tries.delay_after(self._failure(error), time.monotonic())
            else:
                return call.decode(response)
            self._pause(delay)

    def pages(self, pages: Pages[T], timeout: float | None) -> Iterator[T]:
        """The items of all pages, each page read when it is reached."""
        token = ""
        while True:
            items, token = self.run(pages.call(token), timeout)
            yield from items
            if not token:
                return

    def watch(self, watch: Watch) -> Iterator[Transition]:
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
                for response in stream:
                    yield from watch.accept(response)
                    if watch.done():
                        return
            except grpc.RpcError as error:
                failure = self._failure(error)
            finally:
                stream.cancel()
            self._pause(watch.delay_after(failure, time.monotonic(), random.random()))

    def _failure(self, error: grpc.RpcError) -> MainspringError:
        return from_rpc_error(error, self._settings.server)

    def close(self) -> None:
        """Close the channel; calls in flight end with `CallCancelled`."""
        with self._lock:
            stubs, self._stubs = self._stubs, None
        if stubs is not None:
            stubs.channel.close()
