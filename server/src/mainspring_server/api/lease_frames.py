"""The frames of the lease stream: protobuf on one side, the dispatcher's records on the other.

Frames carry hundreds of tasks, so this is written for speed: one message per task, no helpers on
the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from google.protobuf.duration_pb2 import Duration

from mainspring.v1 import lease_pb2, lease_stream_pb2, task_pb2

from ..admission.limits import Limits
from ..dispatch.session import DrainFrame, Frame, GrantFrame, NoticeFrame, ReplyFrame
from ..domain.errors import InvalidArgument, MainspringError
from ..domain.leases import (
    Beat,
    BeatAnswer,
    BeatState,
    Failure,
    Grant,
    LeaseRef,
    ResultState,
    Snooze,
    Success,
    WorkerResult,
)
from ..domain.task import PayloadKind
from ..ids import parse, text_of
from .convert import (
    MAX_DURATION_S,
    MAX_NANOS,
    check_text,
    duration,
    duration_ms,
    timestamp,
)

_RESULT_STATES = {
    ResultState.APPLIED: lease_pb2.RESULT_STATE_APPLIED,
    ResultState.DUPLICATE: lease_pb2.RESULT_STATE_DUPLICATE,
    ResultState.STALE: lease_pb2.RESULT_STATE_STALE,
}
_LEASE_STATES = {
    BeatState.EXTENDED: lease_pb2.LEASE_STATE_EXTENDED,
    BeatState.LOST: lease_pb2.LEASE_STATE_LOST,
    BeatState.CANCEL_REQUESTED: lease_pb2.LEASE_STATE_CANCEL_REQUESTED,
}
INTERNAL_TEXT = "not stored; send it again"


def lease_message(grant: Grant) -> lease_pb2.Lease:
    """A granted task as the worker sees it."""
    message = lease_pb2.Lease(
        task_id=text_of(grant.task_id),
        lease_token=grant.token,
        task_type=grant.task_type,
        attempt=grant.attempt,
        max_attempts=grant.max_attempts,
        queue=grant.lane.partition("/")[2],
        due_time=timestamp(grant.due_at),
        lease_expiry_time=timestamp(grant.lease_expires_at),
    )
    if grant.payload_kind == PayloadKind.JSON:
        message.payload.json = grant.payload.decode()
    elif grant.payload_kind == PayloadKind.DATA:
        message.payload.data = grant.payload
    if grant.payload_metadata:
        message.payload.metadata.update(json.loads(grant.payload_metadata))
    if grant.checkpoint:
        message.checkpoint = grant.checkpoint
    if grant.trace_context:
        message.trace_context = grant.trace_context
    if grant.run_timeout_ms is not None:
        message.run_timeout.CopyFrom(duration(grant.run_timeout_ms))
    if grant.nominal_at is not None:
        message.nominal_time.CopyFrom(timestamp(grant.nominal_at))
    for item in grant.handed:
        message.predecessors.add(
            task_id=text_of(item.task_id),
            local_ref=item.local_ref or "",
            status=task_pb2.TaskStatus.ValueType(item.status),
            outcome=item.outcome or b"",
        )
    return message


def frame_message(frame: Frame, first_lease_ms: int) -> lease_stream_pb2.LeaseResponse:
    """A frame of the outbox as a message."""
    if isinstance(frame, GrantFrame):
        return lease_stream_pb2.LeaseResponse(
            leases=lease_stream_pb2.Leases(
                leases=[lease_message(grant) for grant in frame.grants],
                echo_monotonic_time=_echo(frame.echo),
                first_lease_timeout=duration(first_lease_ms),
            )
        )
    if isinstance(frame, ReplyFrame):
        return lease_stream_pb2.LeaseResponse(
            replies=lease_stream_pb2.Replies(
                results=[result_reply(ref, state) for ref, state in frame.results],
                leases=[lease_reply(ref, answer) for ref, answer in frame.beats],
                echo_monotonic_time=_echo(frame.echo),
            )
        )
    if isinstance(frame, NoticeFrame):
        notices = [
            lease_stream_pb2.LeaseNotice(
                task_id=text_of(ref.task_id), lease_token=ref.token, reason=reason
            )
            for ref, reason in frame.leases
        ]
        if frame.revoked:
            return lease_stream_pb2.LeaseResponse(revoke=lease_stream_pb2.Revoke(leases=notices))
        return lease_stream_pb2.LeaseResponse(cancel=lease_stream_pb2.Cancel(leases=notices))
    assert isinstance(frame, DrainFrame)
    return lease_stream_pb2.LeaseResponse(
        drain=lease_stream_pb2.Drain(reason=frame.reason, grace_timeout=duration(frame.grace_ms))
    )


def result_reply(ref: LeaseRef, state: ResultState | Exception) -> lease_pb2.ResultReply:
    """The answer to one result."""
    message = lease_pb2.ResultReply(task_id=text_of(ref.task_id), lease_token=ref.token)
    if isinstance(state, ResultState):
        message.state = _RESULT_STATES[state]
    else:  # it cannot be stored: the worker reports a failure in its place
        message.state = lease_pb2.RESULT_STATE_INVALID
        message.error = state.message if isinstance(state, MainspringError) else INTERNAL_TEXT
    return message


def lease_reply(ref: LeaseRef, answer: BeatAnswer | Exception) -> lease_pb2.LeaseReply:
    """The answer to one beat."""
    message = lease_pb2.LeaseReply(task_id=text_of(ref.task_id), lease_token=ref.token)
    if isinstance(answer, BeatAnswer):
        message.state = _LEASE_STATES[answer.state]
        if answer.remaining_ms > 0:
            message.remaining.CopyFrom(duration(answer.remaining_ms))
    else:
        message.error = answer.message if isinstance(answer, MainspringError) else INTERNAL_TEXT
    return message


def lease_refs(items: Iterable[lease_pb2.LeaseRef], field: str) -> list[LeaseRef]:
    """Leases named by a worker."""
    return [
        LeaseRef(parse(item.task_id, f"{field}[{n}].task_id"), item.lease_token)
        for n, item in enumerate(items)
    ]


def beats(items: Sequence[lease_pb2.LeaseBeat], lease_ms: int, limits: Limits) -> list[Beat]:
    """Heartbeats, checked."""
    found = []
    for n, item in enumerate(items):
        fraction = message = checkpoint = None
        if item.HasField("progress"):
            message = check_text(item.progress.message, f"leases[{n}].progress.message", 1_024)
            if item.progress.HasField("fraction"):
                fraction = item.progress.fraction
                if not 0.0 <= fraction <= 1.0:
                    raise InvalidArgument(
                        "FIELD_INVALID",
                        f"progress.fraction must be from 0 to 1, not {fraction}",
                        field=f"leases[{n}].progress.fraction",
                    )
        if item.HasField("checkpoint"):
            checkpoint = item.checkpoint
            if len(checkpoint) > limits.checkpoint_bytes:
                raise InvalidArgument(
                    "PAYLOAD_TOO_LARGE",
                    f"a checkpoint may have {limits.checkpoint_bytes} bytes, not {len(checkpoint)}",
                    field=f"leases[{n}].checkpoint",
                )
        task_id = parse(item.task_id, f"leases[{n}].task_id")
        found.append(Beat(task_id, item.lease_token, lease_ms, fraction, message, checkpoint))
    return found


def result(item: lease_pb2.TaskResult, field: str, limits: Limits) -> WorkerResult:
    """One result, checked; raises InvalidArgument naming the field."""
    task_id = parse(item.task_id, f"{field}.task_id")
    kind = item.WhichOneof("result")
    if kind == "succeeded":
        outcome = item.succeeded.outcome
        if len(outcome) > limits.outcome_bytes:
            raise InvalidArgument(
                "PAYLOAD_TOO_LARGE",
                f"an outcome may have {limits.outcome_bytes} bytes, not {len(outcome)}",
                field=f"{field}.succeeded.outcome",
            )
        return Success(task_id, item.lease_token, outcome or None)
    if kind == "failed":
        return _failure(task_id, item, field, limits)
    if kind == "snoozed":
        delay = duration_ms(
            item.snoozed.delay, f"{field}.snoozed.delay", minimum=0, maximum=limits.delay_ms
        )
        return Snooze(task_id, item.lease_token, delay)
    raise InvalidArgument(
        "FIELD_REQUIRED",
        "a result must be one of succeeded, failed, snoozed",
        field=f"{field}.result",
    )


def _failure(task_id: bytes, item: lease_pb2.TaskResult, field: str, limits: Limits) -> Failure:
    failed = item.failed
    delay = None
    if failed.HasField("retry_delay"):
        delay = duration_ms(
            failed.retry_delay, f"{field}.failed.retry_delay", minimum=0, maximum=limits.delay_ms
        )
    message = failed.message.encode()[: limits.error_bytes].decode(errors="ignore")
    return Failure(
        task_id,
        item.lease_token,
        message.replace("\0", "\N{SYMBOL FOR NULL}"),
        check_text(failed.type, f"{field}.failed.type", 256),
        retryable=failed.retryable if failed.HasField("retryable") else True,
        retry_delay_ms=delay,
    )


def worker_time(request: lease_stream_pb2.LeaseRequest) -> int | None:
    """The worker's monotonic time of a frame in ms, rounded down."""
    if not request.HasField("monotonic_time"):
        return None
    stamp = request.monotonic_time
    if not (0 <= stamp.seconds <= MAX_DURATION_S and 0 <= stamp.nanos <= MAX_NANOS):
        raise InvalidArgument(
            "FIELD_INVALID",
            f"monotonic_time must be a Duration that is not negative, not {stamp.seconds} s and "
            f"{stamp.nanos} ns",
            field="monotonic_time",
        )
    return stamp.seconds * 1_000 + stamp.nanos // 1_000_000


def _echo(milliseconds: int | None) -> Duration | None:
    return None if milliseconds is None else duration(max(milliseconds, 0))
