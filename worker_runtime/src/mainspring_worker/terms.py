"""What the server says about leases, and what follows from it."""

from dataclasses import dataclass
from typing import Self

from mainspring.v1.lease_stream_pb2 import Welcome

from .held import read_duration


@dataclass(frozen=True, slots=True)
class Terms:
    """What Welcome says about leases, in seconds."""

    lease_timeout: float = 60.0
    first_lease_timeout: float = 5.0
    heartbeat_interval: float = 15.0

    @classmethod
    def of(cls, welcome: Welcome) -> Self:
        """Read Welcome; what it does not say keeps its default."""
        default = cls()
        return cls(
            read_duration(welcome.lease_timeout) or default.lease_timeout,
            read_duration(welcome.first_lease_timeout) or default.first_lease_timeout,
            read_duration(welcome.heartbeat_interval) or default.heartbeat_interval,
        )

    @property
    def margin(self) -> float:
        """How long before a lease's end its handler is stopped."""
        return min(0.5, self.first_lease_timeout / 10)

    @property
    def idle_interval(self) -> float:
        """How often an idle worker writes: the server moves the clock that it echoes on by itself,
        so a sign of life is enough.
        """
        return self.heartbeat_interval

    @property
    def patience(self) -> float:
        """How long an answer may take before the stream counts as dead."""
        return max(5.0, 2 * self.heartbeat_interval)
