"""One table: which class of error is which gRPC status; and how an error is written for a caller.

A caller gets a google.rpc.Status: code and message, one ErrorInfo (reason, domain, metadata),
BadRequest where a field is at fault, RetryInfo where waiting helps. What is not in the tree of
`domain.errors`, or has a reason that is not in the contract, is a defect: the caller gets an
error_id, the log gets the traceback.
"""

from __future__ import annotations

import logging
import uuid
from typing import NoReturn

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from mainspring.v1 import error_pb2

from ..domain import errors
from .convert import duration

log = logging.getLogger(__name__)

DOMAIN = "mainspring"
DETAILS_KEY = "grpc-status-details-bin"

CODES: dict[type[errors.MainspringError], grpc.StatusCode] = {
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Aborted: grpc.StatusCode.ABORTED,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
}
_BY_NUMBER: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

REASONS = frozenset(
    name.removeprefix("ERROR_REASON_") for name in error_pb2.ErrorReason.DESCRIPTOR.values_by_name
)
"""The contract's reasons; one that is not among them is an inner matter and never leaves."""

# Trailers are cut off or refused by clients above 8 KiB; the message travels in them twice.
MESSAGE_BYTES = 800
DETAIL_BYTES = 200


def code_of(error: errors.MainspringError) -> grpc.StatusCode:
    """The status of an error, from the nearest class in the table."""
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    return grpc.StatusCode.INTERNAL


def status_of(error: BaseException, doing: str = "a call") -> status_pb2.Status:
    """The error as its caller sees it; a defect is logged as having happened during `doing`."""
    if not isinstance(error, errors.MainspringError) or error.reason not in REASONS:
        return _defect(error, doing)
    metadata = {key: cut(value, DETAIL_BYTES) for key, value in error.metadata.items()}
    if error.field:
        metadata.setdefault("field", cut(error.field, DETAIL_BYTES))
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    ]
    if error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=cut(error.field, DETAIL_BYTES), description=cut(error.message, DETAIL_BYTES)
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.retry_after_ms is not None:
        delay = duration(error.retry_after_ms)
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return _status(code_of(error), error.message, details)


def _defect(error: BaseException, doing: str) -> status_pb2.Status:
    error_id = uuid.uuid4().hex
    log.error("%s failed, error_id %s", doing, error_id, exc_info=error)
    info = error_details_pb2.ErrorInfo(
        reason="INTERNAL", domain=DOMAIN, metadata={"error_id": error_id}
    )
    message = f"the server has a defect; report error_id {error_id}, which its log holds too"
    return _status(grpc.StatusCode.INTERNAL, message, [info])


def _status(code: grpc.StatusCode, message: str, details: list[Message]) -> status_pb2.Status:
    status = status_pb2.Status(code=code.value[0], message=cut(message, MESSAGE_BYTES))
    for detail in details:
        packed = Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def cut(text: str, limit: int) -> str:
    """The text in at most `limit` bytes of UTF-8."""
    if len(text) * 4 <= limit:
        return text
    raw = text.encode(errors="replace")
    if len(raw) <= limit:
        return text
    return raw[: limit - 3].decode(errors="ignore") + "…"


async def abort(
    context: grpc.aio.ServicerContext[object, object], error: BaseException, doing: str
) -> NoReturn:
    """End the call with the error."""
    status = status_of(error, doing)
    trailers = ((DETAILS_KEY, status.SerializeToString()),)
    await context.abort(_BY_NUMBER[status.code], status.message, trailers)
    raise AssertionError("abort returned")
