"""Counting the messages of a worker's stream at its own end, independent of the server's counters."""

from __future__ import annotations

from mainspring.v1.lease_stream_pb2 import LeaseRequest, LeaseResponse
from mainspring_worker.link import Link


class FrameCount:
    """Messages of all streams of this process, by direction."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0

    def install(self) -> None:
        """Count from now on: every frame passes these two methods of a link."""
        write, read = Link.next_frame, Link.received

        def next_frame(link: Link, stream: int) -> LeaseRequest | None:
            frame = write(link, stream)
            self.sent += frame is not None
            return frame

        def received(link: Link, frame: LeaseResponse) -> None:
            self.received += 1
            read(link, frame)

        Link.next_frame, Link.received = next_frame, received  # type: ignore[assignment, method-assign]
