"""When a failed attempt runs again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter and a cap; delays in milliseconds."""

    max_attempts: int = 4
    initial_delay_ms: int = 1_000
    multiplier: float = 2.0
    max_delay_ms: int = 300_000

    def ceiling_ms(self, attempt: int) -> int:
        """The longest delay after the `attempt`-th attempt (1 for the first)."""
        exponent = min(attempt - 1, 1_000)
        try:
            grown = self.initial_delay_ms * self.multiplier**exponent
        except OverflowError:
            return self.max_delay_ms
        return int(min(grown, self.max_delay_ms))

    def delay_ms(self, attempt: int, fraction: float) -> int:
        """Full jitter: a `fraction` in [0, 1) of the ceiling."""
        return int(self.ceiling_ms(attempt) * fraction)


DEFAULT_RETRY = RetryPolicy()
