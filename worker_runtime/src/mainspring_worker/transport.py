"""The Lease stream over gRPC, kept open by a thread.

The synchronous stack, on purpose: two event loops with `grpc.aio` in one process disturb each
other, and a handler that blocks its loop must not hold up the stream.
"""

import logging
import random
import threading
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc

from mainspring.v1.lease_stream_pb2 import LeaseRequest, LeaseResponse
from mainspring.v1.worker_service_pb2_grpc import WorkerServiceStub

log = logging.getLogger("mainspring.worker")

FIRST_DELAY: Final = 0.1
MAX_DELAY: Final = 10.0
MAX_MESSAGE: Final = 16 * 1024 * 1024

# The local pool: a channel made after a failure dials at once, with our backoff, not gRPC's.
# Keepalive also bounds how long the kernel waits for a peer that has vanished.
CHANNEL_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.enable_retries", 0),
)


@dataclass(frozen=True, slots=True)
class Servers:
    """Where to connect, and as whom."""

    addresses: tuple[str, ...]
    """Tried in turn."""
    token: str | None = None
    """Sent as a bearer token with each stream."""
    credentials: grpc.ChannelCredentials | None = None
    """TLS, or None for plain text."""

    def connect(self, turn: int) -> grpc.Channel:
        """Make a channel to the next server."""
        address = self.addresses[turn % len(self.addresses)]
        if self.credentials is None:
            return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        return grpc.secure_channel(address, self.credentials, options=CHANNEL_OPTIONS)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with each stream."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


class Peer(Protocol):
    """The worker's end of the stream; `stream` numbers the streams, so that an old one is told apart."""

    def opened(self, stream: int) -> None:
        """Begin a stream."""

    def next_frame(self, stream: int) -> LeaseRequest | None:
        """Write the next frame, or None if there is nothing to say now."""

    def received(self, frame: LeaseResponse) -> None:
        """Read a frame."""

    def closed(self) -> None:
        """End the stream; it broke, or both sides have finished."""


class _Frames:
    """The iterator that gRPC takes a stream's frames from, in a thread of its own."""

    def __init__(self, peer: Peer, stream: int) -> None:
        self._peer = peer
        self._stream = stream
        self.wake = threading.Event()
        self.closed = False
        self.finishing = False

    def __iter__(self) -> "_Frames":
        return self

    def __next__(self) -> LeaseRequest:
        while not self.closed:
            # Cleared before looking: what comes while looking is seen on the next round.
            self.wake.clear()
            frame = self._peer.next_frame(self._stream)
            if frame is not None:
                return frame
            if self.finishing:
                break
            self.wake.wait()
        raise StopIteration

    def close(self) -> None:
        """Let go of the thread that waits for a frame."""
        self.closed = True
        self.wake.set()


class Transport:
    """Keeps one stream open, to one server of the list after the other, until told to finish."""

    def __init__(self, name: str, servers: Servers, peer: Peer) -> None:
        self._servers = servers
        self._peer = peer
        self._thread = threading.Thread(
            target=self._serve, name=f"mainspring-lease-{name}", daemon=True
        )
        self._frames: _Frames | None = None
        self._call: grpc.Call | None = None
        self._ending = threading.Event()
        self._moving = False
        self._heard = False
        self._streams = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Say that there may be a frame to write."""
        frames = self._frames
        if frames is not None:
            frames.wake.set()

    def reconnect(self) -> None:
        """Give the current stream up, and open the next one."""
        call = self._call
        if call is not None:
            call.cancel()

    def move_on(self) -> None:
        """Leave a server that drains, if there is another; else stay for as long as it answers."""
        if len(self._servers.addresses) > 1:
            self._moving = True
            self.reconnect()

    def finish(self, timeout: float) -> None:
        """Half-close after the last frame and wait for the server to do the same, or give up."""
        self._ending.set()
        frames = self._frames
        if frames is not None:
            frames.finishing = True
            frames.wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
            self.reconnect()
            self._thread.join(timeout)

    # --- the thread -----------------------------------------------------------

    def _serve(self) -> None:
        failures = 0
        turn = 0
        while not self._ending.is_set():
            self._moving = self._heard = False
            try:
                self._converse(turn)
            except grpc.RpcError as error:
                self._note(error, failures)
            except Exception:
                log.exception("the stream ended by a defect; opening another")
            turn += 1
            failures = 0 if self._heard else failures + 1
            if not self._moving:
                self._ending.wait(backoff(failures))

    def _converse(self, turn: int) -> None:
        self._streams += 1
        with self._servers.connect(turn) as channel:
            frames = _Frames(self._peer, self._streams)
            self._peer.opened(self._streams)
            self._frames = frames
            frames.finishing = self._ending.is_set()
            call = WorkerServiceStub(channel).Lease(frames, metadata=self._servers.metadata)
            self._call = call
            try:
                for frame in call:
                    self._heard = True
                    self._peer.received(frame)
            finally:
                self._call = self._frames = None
                frames.close()
                self._peer.closed()
                call.cancel()

    def _note(self, error: grpc.RpcError, failures: int) -> None:
        if self._ending.is_set() or self._moving:
            return
        # Once per outage: the attempts that follow say nothing new.
        level = logging.WARNING if failures == 0 else logging.DEBUG
        log.log(level, "the lease stream broke (%s); connecting again", describe(error))


def describe(error: grpc.RpcError) -> str:
    """Say what a call ended with: its code and details, which only errors of a call have."""
    code: Any = getattr(error, "code", None)
    details: Any = getattr(error, "details", None)
    return f"{code().name}: {details()}" if code and details else str(error)


def backoff(failures: int) -> float:
    """Seconds before the next stream: exponential with jitter, and short after one that worked."""
    ceiling = min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(failures, 16))
    return random.uniform(ceiling / 2, ceiling)
