"""Columns and rows: what a statement selects, and what a task record is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...domain.retry import DEFAULT_RETRY, RetryPolicy
from ...domain.task import (
    NO_TIMEOUTS,
    OutcomeBy,
    Payload,
    PayloadKind,
    Rule,
    Status,
    Task,
    Timeouts,
)

if TYPE_CHECKING:
    from .pool import Record

CLOCK = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""PostgreSQL's clock in ms, rounded down: what is due by it is due."""

STATEMENT_CLOCK = CLOCK.replace("clock_timestamp", "statement_timestamp")
"""The same, constant within a statement, so that an index condition can use it."""

NOW = f"c AS MATERIALIZED (SELECT coalesce($1::bigint, {CLOCK}) AS now)"
"""A CTE that reads the clock once per statement; tests stop it at `$1`, which is NULL otherwise."""

AT = "(SELECT now FROM c)"
"""The statement's now."""

READY = "t.status + 0 = 3"
"""READY, written so that no partial index answers it: on an empty partition the planner would
rather walk the ready index than look ids up in the primary key, and keep to it when it is full."""

PENDING = "t.status + 0 = 2"
"""PENDING, in the same way."""

TASK_COLUMNS = """t.task_id, t.namespace, t.task_type, t.queue, t.priority, t.status, t.version,
 t.due_at, t.created_at, t.attempts, t.lost_grants, t.ready_at, t.started_at, t.completed_at,
 t.deadline_at, t.next_check_at, t.published_at, t.worker_id, t.lease_expires_at, t.lease_acked,
 t.progress, t.progress_message, t.checkpoint, t.outcome, t.outcome_token, t.outcome_by,
 t.error_type, t.error_message, t.status_reason, t.labels, t.trace_context, t.retry_of,
 t.schedule_id, t.nominal_at, t.max_attempts, t.retry_initial_ms, t.retry_multiplier,
 t.retry_max_ms, t.queue_ms, t.run_ms, t.total_ms, t.rule, t.delay_after_ms, t.has_dependents,
 t.graph_id, t.local_ref"""

PAYLOAD_COLUMNS = "p.kind, p.body, p.metadata"

_STATUS = {int(status): status for status in Status}


def retry_of_row(
    attempts: int, initial: int | None, multiplier: float | None, longest: int | None
) -> RetryPolicy:
    """The policy of a row; NULLs stand for the default."""
    if initial is None or multiplier is None or longest is None:
        if attempts == DEFAULT_RETRY.max_attempts:
            return DEFAULT_RETRY
        initial, multiplier, longest = (
            DEFAULT_RETRY.initial_delay_ms,
            DEFAULT_RETRY.multiplier,
            DEFAULT_RETRY.max_delay_ms,
        )
    return RetryPolicy(attempts, initial, multiplier, longest)


def task_of(row: Record) -> Task:
    """A row of TASK_COLUMNS as a task, without payload."""
    (
        task_id, namespace, task_type, queue, priority, status, version,
        due_at, created_at, attempts, lost_grants, ready_at, started_at, completed_at,
        deadline_at, next_check_at, published_at, worker_id, lease_expires_at, lease_acked,
        progress, progress_message, checkpoint, outcome, outcome_token, outcome_by,
        error_type, error_message, status_reason, labels, trace_context, retry_of,
        schedule_id, nominal_at, max_attempts, initial, multiplier,
        longest, queue_ms, run_ms, total_ms, rule, delay_after_ms, has_dependents,
        graph_id, local_ref, *_
    ) = row  # fmt: skip
    limited = queue_ms is not None or run_ms is not None or total_ms is not None
    return Task(
        task_id=task_id, namespace=namespace, task_type=task_type, queue=queue, priority=priority,
        status=_STATUS[status], version=version, due_at=due_at, created_at=created_at,
        retry=retry_of_row(max_attempts, initial, multiplier, longest),
        timeouts=Timeouts(queue_ms, run_ms, total_ms) if limited else NO_TIMEOUTS,
        attempts=attempts, lost_grants=lost_grants, ready_at=ready_at, started_at=started_at,
        completed_at=completed_at, deadline_at=deadline_at, next_check_at=next_check_at,
        published_at=published_at, worker_id=worker_id, lease_expires_at=lease_expires_at,
        lease_acked=lease_acked, progress=progress, progress_message=progress_message,
        checkpoint=checkpoint, outcome=outcome, outcome_token=outcome_token,
        outcome_by=None if outcome_by is None else OutcomeBy(outcome_by), error_type=error_type,
        error_message=error_message, status_reason=status_reason, labels=labels,
        trace_context=trace_context, retry_of=retry_of, schedule_id=schedule_id,
        nominal_at=nominal_at, rule=None if rule is None else Rule(rule),
        delay_after_ms=delay_after_ms or 0, has_dependents=bool(has_dependents), graph_id=graph_id,
        local_ref=local_ref,
    )  # fmt: skip


def payload_of(row: Record) -> Payload:
    """The payload of a row that ends with PAYLOAD_COLUMNS; a task without one has no such row."""
    kind, body, metadata = row[-3:]
    if kind is None:
        return Payload(PayloadKind.NONE, b"", None)
    return Payload(PayloadKind(kind), body, metadata)
