"""How long leases last."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Milliseconds. An acknowledged first lease becomes a full one after `extend_after_ms`."""

    lease_ms: int = 60_000
    first_lease_ms: int = 5_000
    heartbeat_ms: int = 15_000

    @property
    def extend_after_ms(self) -> int:
        """A task that ends before costs no lease write."""
        return self.first_lease_ms * 2 // 5
