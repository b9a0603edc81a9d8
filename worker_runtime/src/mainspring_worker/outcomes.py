"""How an attempt can end: what a handler may raise, and the values that it comes to."""

import asyncio
import math
import traceback
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final, TypeAlias

MAX_ERROR_BYTES: Final = 64 * 1024
MAX_DELAY: Final = 10 * 366 * 86_400.0
MAX_TYPE_LENGTH: Final = 256

Delay: TypeAlias = float | timedelta


class Retry(Exception):
    """Raised by a handler: this attempt failed, try again after `delay` while attempts remain."""

    def __init__(self, delay: Delay, message: str = "") -> None:
        self.delay = seconds(delay)
        super().__init__(message or f"the handler asked for a retry in {self.delay:g} s")


class Snooze(Exception):
    """Raised by a handler: run the task again after `delay`; the attempt is not counted."""

    def __init__(self, delay: Delay) -> None:
        self.delay = seconds(delay)
        super().__init__(f"the handler asked to be run again in {self.delay:g} s")


class Fail(Exception):
    """Raised by a handler: the task cannot succeed, no further attempt is made."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class Cancelled(Exception):
    """Raised by `Context.raise_if_cancelled` once the handler is to stop; nothing is reported."""


class InputInvalid(Exception):
    """The payload is not what the handler's annotation asks for. Not retryable."""


class OutcomeInvalid(Exception):
    """What the handler returned cannot be kept as an outcome. Not retryable."""


class StopReason(Enum):
    """Why a handler is stopped before it has finished."""

    CANCELLED = "the task was cancelled"
    LOST = "the server has given the lease to another attempt"
    EXPIRED = "the lease ended before the server extended it"
    RUN_TIMEOUT = "the attempt's run timeout has passed"
    DRAIN = "the worker is stopping"


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned; `outcome` is kept with the task."""

    outcome: bytes = b""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed. `retry_delay`, in seconds, stands in for the task's retry policy."""

    message: str
    type: str = ""
    retryable: bool = True
    retry_delay: float | None = None


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The task is to run again after `delay` seconds; the attempt is not counted."""

    delay: float


Outcome: TypeAlias = Succeeded | Failed | Snoozed


def seconds(delay: Delay) -> float:
    """Read a delay; ValueError unless it is between 0 and 10 years."""
    value = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    if not (math.isfinite(value) and 0 <= value <= MAX_DELAY):
        raise ValueError(f"a delay is 0 s to 10 years, not {delay!r}")
    return value


def clean_text(text: str, limit: int = MAX_ERROR_BYTES) -> str:
    """Make text that the server keeps: valid UTF-8, no NUL, at most `limit` bytes."""
    data = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace")
    return data[:limit].decode("utf-8", "ignore")


def outcome_of(error: BaseException) -> Outcome:
    """Classify what a handler raised."""
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case Retry():
            return Failed(_text(error), "Retry", retry_delay=error.delay)
        case Fail():
            return Failed(_text(error), "Fail", retryable=False)
        case InputInvalid() | OutcomeInvalid():
            return Failed(clean_text(str(error)), type(error).__name__, retryable=False)
        case Cancelled() | asyncio.CancelledError():
            return Failed(f"{type(error).__name__}: the handler stopped itself", "Cancelled")
    return Failed(describe(error), _type_name(error))


def describe(error: BaseException) -> str:
    """Say what was raised, first in one line that survives a cut, then with its traceback."""
    summary = "".join(traceback.format_exception_only(error)).strip()
    # The first entry is the runtime's own call of the handler.
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    lines = traceback.format_exception(type(error), error, trace)
    return clean_text(f"{summary}\n\n{''.join(lines)}")


def _text(error: Exception) -> str:
    """Keep the cause of a `raise Fail(...) from error`."""
    if error.__cause__ is None:
        return clean_text(str(error))
    cause = "".join(traceback.format_exception(error.__cause__))
    return clean_text(f"{error}\n\n{cause}")


def _type_name(error: BaseException) -> str:
    cls = type(error)
    name = (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )
    return name[:MAX_TYPE_LENGTH]
