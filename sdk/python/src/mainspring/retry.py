"""Which calls are tried again, after what delay, and how long a call may take: one table.

A call is repeated within its deadline when that cannot do harm:

- `Unavailable`, if the call may be repeated: reads, calls that come to the same when made twice,
  and submissions of which every one carries an idempotency key. Exponential backoff with jitter.
- `Unavailable` with the reason SERVER_DRAINING, for every call: the server changed nothing.
- `ResourceExhausted`, for every call, after the delay that the server asks for. Without one the
  limit is not of the kind that passes.

Nothing else is repeated. Streams are left to those who hold them: `watch` opens its own again.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .errors import DeadlineExceeded, MainspringError, ResourceExhausted, Unavailable

INITIAL_BACKOFF: Final = 0.1
"""Seconds: upper bound of the delay before the second try."""
MAX_BACKOFF: Final = 2.0
"""Seconds: the ceiling of that bound, which doubles with each try."""
CALL_TIMEOUT: Final = 10.0
"""Seconds that a call may take, its repetitions included, unless the caller says otherwise."""
BULK_TIMEOUT: Final = 30.0
"""The same for calls that carry up to 15 MiB, or go through many rows."""

Repeatable = Callable[[Any], bool]
"""Whether this very request may be sent twice."""


def always(request: Any) -> bool:  # noqa: ARG001  # the shape of Repeatable
    """It comes to the same when made twice."""
    return True


def never(request: Any) -> bool:  # noqa: ARG001  # the shape of Repeatable
    """A second one is another one."""
    return False


def keyed(request: Any) -> bool:
    """The server knows a repetition by its idempotency key."""
    return bool(request.idempotency_key)


def all_keyed(request: Any) -> bool:
    """The server knows each item of a repetition by its idempotency key."""
    # A recurring graph answers no tasks that a key could be compared with.
    return all(r.idempotency_key for r in request.requests) and not request.HasField("cron")


def unversioned(request: Any) -> bool:
    """It asks for no version: the first try would have moved that on, and the second be refused."""
    return not request.HasField("version")


def untagged(request: Any) -> bool:
    """The same for an etag."""
    return not request.etag


@dataclass(frozen=True, slots=True)
class CallRule:
    """How one RPC is treated."""

    repeatable: Repeatable
    """Whether a request may be sent again after `Unavailable`."""
    timeout: float | None = CALL_TIMEOUT
    """Default deadline in seconds; None for streams, which last."""


RULES: Final[Mapping[str, CallRule]] = {
    "SchedulerService/Submit": CallRule(keyed),
    "SchedulerService/SubmitBatch": CallRule(all_keyed, BULK_TIMEOUT),
    "SchedulerService/Status": CallRule(always),
    "SchedulerService/Cancel": CallRule(always),
    "SchedulerService/History": CallRule(always),
    "SchedulerService/List": CallRule(always),
    "SchedulerService/Count": CallRule(always),
    "SchedulerService/Watch": CallRule(never, None),
    "SchedulerService/Explain": CallRule(always),
    "SchedulerService/Reschedule": CallRule(unversioned),
    "SchedulerService/Retry": CallRule(always),
    "SchedulerService/Pause": CallRule(always),
    "SchedulerService/Resume": CallRule(always),
    "SchedulerService/Trigger": CallRule(keyed),
    # A nominal time that fired is left out, so a range given twice makes each instance once.
    "SchedulerService/Backfill": CallRule(always, BULK_TIMEOUT),
    "SchedulerService/Update": CallRule(untagged),
    "SchedulerService/Preview": CallRule(always),
    "WorkerService/Lease": CallRule(never, None),
    # The leases of a lost reply count as attempts until they expire: asking again takes others.
    "WorkerService/Poll": CallRule(never, BULK_TIMEOUT),
    "WorkerService/Heartbeat": CallRule(always),
    "WorkerService/Complete": CallRule(always),
    "AdminService/ListQueues": CallRule(always),
    "AdminService/PauseQueue": CallRule(always),
    "AdminService/ResumeQueue": CallRule(always),
    "AdminService/ListWorkers": CallRule(always),
    "AdminService/Forecast": CallRule(always, BULK_TIMEOUT),
    "AdminService/GetServerInfo": CallRule(always),
}
"""Every RPC of the three services, as "Service/Method"."""


def backoff(failures: int, spread: float) -> float:
    """Seconds before the next try.

    Args:
        failures: Tries that failed so far, from 1.
        spread: A random number in [0, 1): the jitter.
    """
    # Half of it is fixed, so that a chance near zero does not make a tight loop.
    bound = min(MAX_BACKOFF, INITIAL_BACKOFF * 2.0 ** min(failures - 1, 32))
    return bound * (1 + spread) / 2


def next_delay(
    error: MainspringError, *, repeatable: bool, failures: int, spread: float
) -> float | None:
    """Seconds after which a failed call is tried again, or None if it is not. Pure.

    Args:
        error: What the last try came to.
        repeatable: Whether the request may be sent twice.
        failures: Tries that failed so far, from 1.
        spread: A random number in [0, 1): the jitter.
    """
    if isinstance(error, ResourceExhausted) and error.retry_after is not None:
        # Never sooner than asked; a little later, so that all who were asked do not come at once.
        return error.retry_after * (1 + 0.1 * spread)
    if isinstance(error, Unavailable) and (repeatable or error.reason == "SERVER_DRAINING"):
        return max(backoff(failures, spread), error.retry_after or 0.0)
    return None


class Tries:
    """The tries of one call within its deadline; whoever makes them brings clock and sleep."""

    def __init__(self, rpc: str, request: Any, timeout: float | None, now: float) -> None:
        """Start at `now`, a monotonic time in seconds.

        Raises:
            ValueError: The timeout is not above zero.
        """
        rule = RULES[rpc]
        seconds = rule.timeout if timeout is None else timeout
        if seconds is not None and not seconds > 0:
            raise ValueError(f"timeout is {seconds}: pass seconds above 0")
        self._rpc = rpc
        self._deadline = None if seconds is None else now + seconds
        self._repeatable = rule.repeatable(request)
        self._failures = 0

    def remaining(self, now: float) -> float | None:
        """Seconds left for the next try; None without a deadline.

        Raises:
            DeadlineExceeded: None are left.
        """
        if self._deadline is None:
            return None
        if now >= self._deadline:
            raise DeadlineExceeded(f"no time left for {self._rpc}")
        return self._deadline - now

    def delay_after(self, error: MainspringError, now: float) -> float:
        """Seconds to wait before the next try.

        Raises:
            MainspringError: `error` itself, if there is no next try within the deadline.
        """
        self._failures += 1
        delay = next_delay(
            error,
            repeatable=self._repeatable,
            failures=self._failures,
            spread=random.random(),
        )
        if delay is None or (self._deadline is not None and now + delay >= self._deadline):
            raise error
        return delay
