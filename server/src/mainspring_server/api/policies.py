"""RetryPolicy and Timeouts as they are sent, checked and with their defaults filled in."""

from __future__ import annotations

from mainspring.v1 import task_pb2

from ..admission.limits import Limits
from ..domain.retry import DEFAULT_RETRY, RetryPolicy
from ..domain.task import Timeouts
from .convert import duration_ms, invalid


def retry_policy(message: task_pb2.RetryPolicy, limits: Limits) -> RetryPolicy:
    """The policy of a request that sets `retry`."""
    attempts, multiplier = DEFAULT_RETRY.max_attempts, DEFAULT_RETRY.multiplier
    initial = DEFAULT_RETRY.initial_delay_ms
    if message.HasField("max_attempts"):
        attempts = message.max_attempts
        if not 1 <= attempts <= limits.max_attempts:
            raise invalid(
                "retry.max_attempts",
                f"must be 1 to {limits.max_attempts}, it is {attempts}",
                limit=str(limits.max_attempts),
            )
    if message.HasField("multiplier"):
        multiplier = message.multiplier
        if not 1.0 <= multiplier <= limits.max_multiplier:  # NaN fails it as well
            raise invalid(
                "retry.multiplier",
                f"must be 1 to {limits.max_multiplier:g}, it is {multiplier}",
                limit=f"{limits.max_multiplier:g}",
            )
    if message.HasField("initial_delay"):
        initial = duration_ms(
            message.initial_delay, "retry.initial_delay", maximum=limits.initial_delay_ms
        )
    # A caller who only asks for a long first delay means a ceiling that allows it.
    ceiling = max(initial, DEFAULT_RETRY.max_delay_ms)
    if message.HasField("max_delay"):
        ceiling = duration_ms(message.max_delay, "retry.max_delay", maximum=limits.max_delay_ms)
        if ceiling < initial:
            raise invalid(
                "retry.max_delay",
                f"must not be below initial_delay: it is {ceiling} ms, below {initial} ms",
                minimum_ms=str(initial),
            )
    return RetryPolicy(attempts, initial, multiplier, ceiling)


def timeouts(message: task_pb2.Timeouts, limits: Limits) -> Timeouts:
    """The time limits of a request that sets `timeouts`."""
    found: dict[str, int | None] = {}
    for name in ("queue_timeout", "run_timeout", "total_timeout"):
        found[name] = (
            duration_ms(
                getattr(message, name), f"timeouts.{name}", minimum=1, maximum=limits.timeout_ms
            )
            if message.HasField(name)
            else None
        )
    return Timeouts(found["queue_timeout"], found["run_timeout"], found["total_timeout"])
