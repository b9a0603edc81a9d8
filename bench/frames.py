"""Counting the messages of a worker's stream at its own end, independent of the server's counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
from mainspring_worker.transport import connect_insecure


class FrameCount(grpc.StreamStreamClientInterceptor):  # type: ignore[misc]
    """Counts what goes over the streams of the channels that `connect` makes."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0

    def connect(self, server: str) -> grpc.Channel:
        """A channel whose streams are counted."""
        return grpc.intercept_channel(connect_insecure(server), self)

    def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Wrap both directions."""
        return _Counted(
            continuation(client_call_details, self._requests(request_iterator)), self
        )

    def _requests(self, requests: Iterator[Any]) -> Iterator[Any]:
        for request in requests:
            self.sent += 1
            yield request


class _Counted:
    """A call whose responses are counted; everything else is the call's own."""

    def __init__(self, call: Any, count: FrameCount) -> None:
        self._call = call
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        for response in self._call:
            self._count.received += 1
            yield response

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)
