"""A SubmitRequest as a NewTask: every field checked, every default filled in.

Batches of hundreds pass through here for each of the server's thousands of tasks a second, so the
path of a good request makes no object but the task's own; names and places are put into words only
once something is wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import NoReturn

from pydantic_core import from_json

from mainspring.v1 import schedule_pb2, task_pb2, task_requests_pb2

from ..admission.limits import Limits
from ..domain.checks import first_check
from ..domain.errors import Unimplemented
from ..domain.task import (
    DEFAULT_PRIORITY,
    NO_PAYLOAD,
    IdempotencyKey,
    NewTask,
    Payload,
    PayloadKind,
    Status,
)
from .convert import (
    NAME,
    check_name,
    check_text,
    duration_ms,
    invalid,
    required,
    timestamp_ms,
)
from .dependencies import wait_for, waits_of
from .policies import retry_policy, timeouts

LOWEST_PRIORITY = 9
OUT_OF_RANGE = "DUE_TIME_OUT_OF_RANGE"

_is_name = NAME.fullmatch


def not_implemented(field: str, message: str) -> Unimplemented:
    """A field of the contract that this version does not serve."""
    return Unimplemented(
        "NOT_IMPLEMENTED",
        f"{field}: {message}; this server does not have it yet",
        field=field,
        metadata={"field": field},
    )


class SubmitReader:
    """Reads requests of one configuration; holds nothing of them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def read(
        self,
        request: task_requests_pb2.SubmitRequest,
        namespace: str,
        now: int,
        task_id: bytes,
        trace_context: str | None = None,
    ) -> NewTask:
        """The task of a request, or the error of its first field at fault.

        `trace_context` is that of the call, for requests that bring none of their own.
        """
        if request.local_ref:
            raise invalid("local_ref", "is allowed in an atomic batch only", "LOCAL_REF_INVALID")
        task = self.read_node(request, namespace, now, task_id, trace_context)
        if request.HasField("dependencies") and request.dependencies.ByteSize():
            wait_for(task, waits_of(request.dependencies, self.limits, None))
        return task

    def read_node(
        self,
        request: task_requests_pb2.SubmitRequest,
        namespace: str,
        now: int,
        task_id: bytes,
        trace_context: str | None,
    ) -> NewTask:
        """The same without what it waits for: a request of a graph, whose names are known there."""
        task_type = request.task_type
        if not _is_name(task_type):
            check_name(task_type, "task_type")
        queue = request.queue
        if queue and not _is_name(queue):
            check_name(queue, "queue")
        status, due_at = self._due(request, now)
        task = NewTask(
            task_id=task_id,
            namespace=namespace,
            task_type=task_type,
            queue=queue or task_type,
            priority=DEFAULT_PRIORITY,
            status=status,
            due_at=due_at,
            created_at=now,
            payload=self._payload(request.payload) if request.HasField("payload") else NO_PAYLOAD,
            trace_context=trace_context,
        )
        self._options(request, task, now)
        return task

    def _due(self, request: task_requests_pb2.SubmitRequest, now: int) -> tuple[Status, int]:
        schedule = request.schedule
        kind = schedule.WhichOneof("when")
        if kind == "immediate":
            return Status.READY, now
        if kind == "delay":
            wait = duration_ms(
                schedule.delay,
                "schedule.delay",
                maximum=self.limits.delay_ms,
                reason=OUT_OF_RANGE,
            )
            return (Status.PENDING, now + wait) if wait else (Status.READY, now)
        if kind == "due_time":
            due_at = due_time(schedule, "schedule.due_time", now, self.limits)
            return (Status.PENDING, due_at) if due_at > now else (Status.READY, now)
        if kind == "cron":
            raise invalid(
                "schedule",
                "must not be a cron schedule in an atomic batch: to make the graph recur, set the "
                "batch's own cron",
            )
        raise required("schedule", "is required: set one of immediate, due_time, delay, cron")

    def _payload(self, message: task_pb2.Payload) -> Payload:
        limit = self.limits.payload_bytes
        kind = message.WhichOneof("body")
        metadata = None
        size = 0
        if message.metadata:
            entries = dict(message.metadata)
            size = sum(len(key.encode()) + len(value.encode()) for key, value in entries.items())
            metadata = self._metadata(entries)
        if kind == "json":
            text = message.json
            body = text.encode()
            if size + len(body) > limit:
                _too_large("payload.json", size + len(body), limit)
            try:
                from_json(body, allow_inf_nan=False, cache_strings="none")
            except ValueError:
                check_json(text, "payload.json")
            return Payload(PayloadKind.JSON, body, metadata)
        data = message.data
        if size + len(data) > limit:
            _too_large("payload.data" if data else "payload.metadata", size + len(data), limit)
        if kind == "data":
            return Payload(PayloadKind.DATA, data, metadata)
        return Payload(PayloadKind.NONE, b"", metadata) if metadata else NO_PAYLOAD

    def _metadata(self, entries: Mapping[str, str]) -> str:
        limits = self.limits
        return _map_text(
            entries,
            "payload.metadata",
            limits.metadata_entries,
            (limits.metadata_key_chars, limits.metadata_value_chars),
        )

    def _options(self, request: task_requests_pb2.SubmitRequest, task: NewTask, now: int) -> None:
        """What most requests leave out; and what follows from all fields together."""
        limits = self.limits
        if request.HasField("priority"):
            task.priority = request.priority
            if not 0 <= task.priority <= LOWEST_PRIORITY:
                raise invalid(
                    "priority",
                    f"must be 0 to {LOWEST_PRIORITY}, it is {task.priority}",
                    limit=str(LOWEST_PRIORITY),
                )
        if request.HasField("retry"):
            task.retry = retry_policy(request.retry, limits)
        if request.HasField("timeouts"):
            task.timeouts = timeouts(request.timeouts, limits)
            if task.timeouts.total_ms is not None:
                task.deadline_at = task.due_at + task.timeouts.total_ms
        if request.labels:
            task.labels = _map_text(
                request.labels,
                "labels",
                limits.labels,
                (limits.label_key_chars, limits.label_value_chars),
            )
        if request.trace_context:
            task.trace_context = check_text(
                request.trace_context, "trace_context", limits.trace_context_chars
            )
        if request.idempotency_key:
            task.idempotency = self._idempotency(request, task.namespace, now)
        task.next_check_at = first_check(
            task.status, task.due_at, now, task.deadline_at, task.timeouts.queue_ms
        )

    def _idempotency(
        self, request: task_requests_pb2.SubmitRequest, namespace: str, now: int
    ) -> IdempotencyKey:
        limits = self.limits
        key = check_text(request.idempotency_key, "idempotency_key", limits.idempotency_key_chars)
        return IdempotencyKey(
            key_digest(namespace, request.task_type, key),
            hashlib.sha256(request.SerializeToString(deterministic=True)).digest(),
            now + limits.idempotency_ms,
        )


def key_digest(namespace: str, task_type: str, key: str) -> bytes:
    """What an idempotency key is stored under; none of its parts may hold NUL."""
    return hashlib.sha256(f"{namespace}\0{task_type}\0{key}".encode()).digest()[:16]


def due_time(
    message: schedule_pb2.Schedule | task_requests_pb2.RescheduleRequest,
    field: str,
    now: int,
    limits: Limits,
) -> int:
    """The `due_time` of a message in milliseconds: any time in the past, ten years ahead."""
    due_at = timestamp_ms(message.due_time, field, OUT_OF_RANGE)
    if due_at > now + limits.delay_ms:
        days = limits.delay_ms // 86_400_000
        raise invalid(
            field,
            f"must be at most {days} d from now",
            OUT_OF_RANGE,
            limit_ms=str(limits.delay_ms),
        )
    return due_at


def check_json(text: str, field: str) -> None:
    """Raise unless the text is JSON; the exact judge for what the fast one refuses."""
    try:
        json.loads(text, parse_constant=_refuse_constant, parse_int=_any_number)
    except ValueError as error:
        detail = str(error)
    except RecursionError:
        detail = "it is nested too deeply"
    else:
        return
    raise invalid(field, f"is no valid JSON: {detail[:200]}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _any_number(_digits: str) -> int:
    return 0  # Python refuses to read very long numbers, JSON does not


def _too_large(field: str, actual: int, limit: int) -> NoReturn:
    raise invalid(
        field,
        f"and its metadata have {actual} bytes, at most {limit} are allowed; put the data "
        "elsewhere and send a reference",
        "PAYLOAD_TOO_LARGE",
        limit=str(limit),
        actual=str(actual),
    )


def _map_text(
    entries: Mapping[str, str], field: str, most: int, characters: tuple[int, int]
) -> str:
    """A map of texts as a JSON object with sorted keys, each entry within its bounds."""
    if len(entries) > most:
        raise invalid(
            field,
            f"has {len(entries)} entries, at most {most} are allowed",
            limit=str(most),
            actual=str(len(entries)),
        )
    key_chars, value_chars = characters
    for key, value in entries.items():
        if not key or len(key) > key_chars or "\0" in key:
            raise invalid(
                field,
                f"has a key that is not 1 to {key_chars} characters without NUL: {key[:64]!r}",
                limit=str(key_chars),
            )
        if len(value) > value_chars or "\0" in value:
            check_text(value, f"{field}.{key}", value_chars)
    return json.dumps(dict(entries), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
