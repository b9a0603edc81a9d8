"""What a call raises: one class for each way in which a caller can act.

    MainspringError            every refusal and failure of a call
    ├── InvalidArgument        the request is wrong; `field_violations` says where
    ├── Unauthenticated        no credential, or one that is unknown
    ├── PermissionDenied       the credential does not allow the call
    ├── NotFound               no such task, schedule or predecessor
    ├── AlreadyExists          the idempotency key was used for another request
    ├── FailedPrecondition     the task or schedule does not allow the call as it stands
    │   └── LeaseLost          the lease token is not the current one; drop the work
    ├── Aborted                somebody changed it in between; read again, decide again
    ├── ResourceExhausted      a limit is reached or load is shed; wait `retry_after`
    ├── Unavailable            no server, or one that stops; try again
    ├── DeadlineExceeded       the time given is over (also a `TimeoutError`)
    ├── Unimplemented          this server lacks the call or the field
    ├── CallCancelled          this side gave the call up
    └── Internal               a defect in the server; report it

Decide by class and `reason`; the reasons are those of `error.proto`. The text is for people.
Refused means no effect. Only `Unavailable`, `DeadlineExceeded`, `CallCancelled` and `Internal`
leave open whether the server did what it was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

DETAILS_KEY: Final = "grpc-status-details-bin"
"""The trailing metadata in which gRPC carries a `google.rpc.Status`."""


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that breaks a rule."""

    field: str
    """Its path in the request: `requests[3].schedule.delay`."""
    description: str
    """The rule, and what was given."""


class MainspringError(Exception):
    """A call was refused or failed. See the module for the tree of classes."""

    default_code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
    """The gRPC code of the class, for errors that no server sent."""

    def __init__(self, message: str, *, reason: str = "", **details: Any) -> None:
        """Take the text, the reason, and by name any of the other attributes.

        Args:
            message: For people.
            reason: A name of `ErrorReason` in `error.proto`, or empty.
            details: `code`, `metadata`, `field_violations`, `retry_after`.
        """
        super().__init__(message)
        self.message: str = message
        self.reason: str = reason
        self.code: grpc.StatusCode = details.pop("code", self.default_code)
        self.metadata: Mapping[str, str] = details.pop("metadata", {})
        self.field_violations: tuple[FieldViolation, ...] = details.pop("field_violations", ())
        self.retry_after: float | None = details.pop("retry_after", None)
        if details:
            raise TypeError(f"unknown details of an error: {', '.join(details)}")

    def __str__(self) -> str:
        text = f"{self.message} [{self.reason}]" if self.reason else self.message
        # A single violation often is the message.
        more = [v for v in self.field_violations if v.description != self.message]
        return "\n".join([text, *(f"  {v.field}: {v.description}" for v in more)])

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the text alone and lose the rest.
        return _restore, (type(self), self.message, dict(self.__dict__))


def _restore(cls: type[MainspringError], message: str, state: dict[str, Any]) -> MainspringError:
    error = cls(message)
    error.__dict__.update(state)
    return error


class InvalidArgument(MainspringError):
    """The request is wrong, whatever the server's state."""

    default_code = grpc.StatusCode.INVALID_ARGUMENT


class Unauthenticated(MainspringError):
    """No credential, or one that is unknown or has expired."""

    default_code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(MainspringError):
    """The credential does not allow the call."""

    default_code = grpc.StatusCode.PERMISSION_DENIED


class NotFound(MainspringError):
    """No such task, schedule or predecessor in the caller's namespace."""

    default_code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(MainspringError):
    """The idempotency key was used for another request within 24 h."""

    default_code = grpc.StatusCode.ALREADY_EXISTS


class FailedPrecondition(MainspringError):
    """The task or schedule, as it stands, does not allow the call."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class LeaseLost(FailedPrecondition):
    """The lease token is not the task's current one: another attempt may be running."""


class Aborted(MainspringError):
    """The version or etag is not the current one: somebody changed it in between."""

    default_code = grpc.StatusCode.ABORTED


class ResourceExhausted(MainspringError):
    """A limit is reached, or load is shed; `retry_after` says how long to wait, if known."""

    default_code = grpc.StatusCode.RESOURCE_EXHAUSTED


class Unavailable(MainspringError):
    """No server was reached, or the one that was stops."""

    default_code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceeded(MainspringError, TimeoutError):
    """The time given for the call is over."""

    default_code = grpc.StatusCode.DEADLINE_EXCEEDED


class Unimplemented(MainspringError):
    """This server lacks the call, or the field that is named."""

    default_code = grpc.StatusCode.UNIMPLEMENTED


class CallCancelled(MainspringError):
    """This side gave the call up, by closing the client or cancelling."""

    default_code = grpc.StatusCode.CANCELLED


class Internal(MainspringError):
    """A defect in the server; the metadata's `error_id` is in its log too."""

    default_code = grpc.StatusCode.INTERNAL


CLASSES: Final[Mapping[grpc.StatusCode, type[MainspringError]]] = {
    grpc.StatusCode.CANCELLED: CallCancelled,
    grpc.StatusCode.UNKNOWN: Internal,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgument,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.INTERNAL: Internal,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DATA_LOSS: Internal,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
}
"""gRPC code → class: the one table."""

BY_REASON: Final[Mapping[str, type[MainspringError]]] = {"LEASE_LOST": LeaseLost}
"""Reasons that have a class of their own below that of their code."""

_CODES: Final[Mapping[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}


def from_status(status: status_pb2.Status) -> MainspringError:
    """Make the error that a `google.rpc.Status` describes, its details decoded."""
    reason = ""
    retry_after: float | None = None
    metadata: dict[str, str] = {}
    violations: list[FieldViolation] = []
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(info):
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(bad_request):
            violations.extend(
                FieldViolation(v.field, v.description) for v in bad_request.field_violations
            )
        elif detail.Unpack(retry):
            retry_after = retry.retry_delay.ToNanoseconds() / 1e9
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    return BY_REASON.get(reason, CLASSES.get(code, Internal))(
        status.message,
        reason=reason,
        code=code,
        metadata=metadata,
        field_violations=tuple(violations),
        retry_after=retry_after,
    )


def from_rpc_error(error: grpc.RpcError, server: str = "") -> MainspringError:
    """Make the error of a failed call, sync or async.

    What a server of Mainspring sends carries a `google.rpc.Status`; what gRPC itself answers
    (nobody listens, the deadline is over) has a code and a text only, so `server` is added.
    """
    call = _FailedCall.of(error)
    for key, value in call.trailing:
        if key == DETAILS_KEY and isinstance(value, bytes):
            status = status_pb2.Status()
            try:
                status.ParseFromString(value)
            except DecodeError:
                break
            if status.code == call.code.value[0]:
                return from_status(status)
    text = f"{call.text} (server: {server})" if server else call.text
    return from_status(status_pb2.Status(code=call.code.value[0], message=text))


@dataclass(frozen=True, slots=True)
class _FailedCall:
    """What both kinds of `grpc.RpcError` can say, which their types do not."""

    code: grpc.StatusCode
    text: str
    trailing: Iterable[tuple[str, str | bytes]]

    @classmethod
    def of(cls, error: Any) -> Self:
        return cls(error.code(), error.details() or "", error.trailing_metadata() or ())
