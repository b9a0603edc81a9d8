"""What can be wrong with a request, as one tree of exceptions.

Each carries a stable `reason` (the same word in the proto's `ErrorReason`, in the SDK and in the
docs), a message for people, the request field where there is one, and string metadata. The API
maps a class to a gRPC status in one table; nothing here knows gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping


class MainspringError(Exception):
    """Base of every error that a caller may see."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        field: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        self.metadata = dict(metadata or {})
        self.retry_after_ms = retry_after_ms


class InvalidArgument(MainspringError):
    """The request can never succeed as it is; `field` says where and the message what was expected."""


class NotFound(MainspringError):
    """Nothing by that id in the caller's namespace."""


class AlreadyExists(MainspringError):
    """The idempotency key belongs to another request."""


class FailedPrecondition(MainspringError):
    """The task is not in a state that allows this, or the lease is no longer the caller's."""


class Aborted(MainspringError):
    """Somebody else was faster: read again, decide again."""


class ResourceExhausted(MainspringError):
    """A limit or an overload; `retry_after_ms` says when to try again."""


class Unavailable(MainspringError):
    """A component is away for the moment; the same call may succeed soon."""


class Unimplemented(MainspringError):
    """A field or call that this version does not serve."""
