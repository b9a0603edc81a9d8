"""What the generated tables say in words: a line for each setting, limit and event of the code."""

from mainspring import retry as sdk_retry
from mainspring_server import clock_guard
from mainspring_server.domain import checks, lifecycle
from mainspring_server.domain.leases import LeaseTerms
from mainspring_server.domain.lifecycle import Event
from mainspring_server.domain.retry import DEFAULT_RETRY
from mainspring_server.domain.task import SHARDS, Status
from mainspring_server.sweep import service as sweep
from mainspring_server.trigger import ownership
from mainspring_worker import runner

BEGINNINGS = (Status.CREATED, Status.PENDING, Status.READY)
"""What Submit makes of a task: with predecessors, for later, for now."""

EVENTS = {
    Event.RELEASE: "the last predecessor has ended",
    Event.MAKE_READY: "it is due",
    Event.CLAIM: "a worker has credit for it",
    Event.HAND_BACK: "a draining worker gives it back, or its frame was never written",
    Event.SUCCEED: "the handler returned",
    Event.FAIL: "the handler raised; FAILED if it was the last attempt, or not retryable",
    Event.SNOOZE: "the handler asked to be called again later",
    Event.LEASE_EXPIRED: "the worker had started it and fell silent",
    Event.GRANT_LOST: "no worker acknowledged the grant; it counts against a limit of its own",
    Event.RUN_TIMEOUT: "the attempt ran longer than its run timeout",
    Event.QUEUE_TIMEOUT: "no worker started it within its queue timeout",
    Event.TOTAL_TIMEOUT: "it did not end within its total timeout",
    Event.RESCHEDULE: "Reschedule gave it another due time",
    Event.CANCEL: "Cancel",
}

COMPUTED = {
    "roles": "all",
    "node": "host name and process id",
    "limits": "see [Limits](limits.md)",
}

SETTINGS = {
    "listen": "Where to serve gRPC, HOST:PORT. Port 0 takes a free one.",
    "store": "`sqlite:///PATH` (four slashes for an absolute path) or `postgresql://…`.",
    "wheel": "`redis://HOST:PORT/DB`. Without one due tasks are found in the store.",
    "queue": "`kafka://HOST:PORT,…`. Without one ready tasks are claimed from the store.",
    "roles": "What this process does: `api`, `trigger`, `dispatch`, `sweep`, by comma.",
    "node": "The name under which it holds shards. Unique in a cluster.",
    "share_port": "Let several processes listen on one port; set by `--processes`.",
    "lease_ms": "How long a lease lasts from a beat. At least three beats.",
    "first_lease_ms": "How long a grant waits for its acknowledgement.",
    "heartbeat_ms": "How often workers beat.",
    "drain_ms": "How long a stopping server waits for its workers.",
    "sweep_ms": "How often the sweeper looks.",
    "hold_ms": "How long nothing is reaped after a start or an absence of the store. "
    "Default: one lease.",
    "poll_ms": "How often due tasks are looked up where there is no wheel.",
    "wheel_horizon_ms": "How far ahead tasks are kept in Redis; later ones rest in the store.",
    "retention_ms": "How long ended tasks are kept.",
    "partition_days": "Days of tasks in one partition of PostgreSQL.",
    "batch": "The most tasks of one write.",
    "linger_ms": "How long a batch waits at most, under load, so that it grows.",
    "kafka_partitions": "Partitions of a topic that Mainspring makes.",
    "kafka_replication": "Copies of such a topic. In production 3.",
    "own_all_shards": "Fire every shard and ask nobody: for tests with two owners.",
    "limits": "Bounds of requests, as a JSON object of those that differ: "
    '`{"payload_bytes": 65536}`.',
}

LIMITS = {
    "payload_bytes": "a payload, its metadata included",
    "outcome_bytes": "what a handler returns",
    "error_bytes": "an error's text; longer ones are cut",
    "checkpoint_bytes": "a checkpoint",
    "labels": "labels of a task",
    "label_key_chars": "characters of a label's key",
    "label_value_chars": "characters of a label's value",
    "metadata_entries": "entries of a payload's metadata",
    "metadata_key_chars": "characters of such a key",
    "metadata_value_chars": "characters of such a value",
    "predecessors": "predecessors of a task",
    "name_chars": "characters of a task type or queue",
    "idempotency_key_chars": "characters of an idempotency key",
    "idempotency_ms": "how long a key answers its first task",
    "trace_context_chars": "characters of a `traceparent`",
    "reason_chars": "characters of a reason, of Cancel or PauseQueue",
    "progress_message_chars": "characters of a progress message",
    "worker_id_chars": "characters of a worker's id",
    "worker_names": "queues, and task types, that a worker names",
    "cron_chars": "characters of a cron expression",
    "filter_chars": "characters of a filter",
    "filter_terms": "comparisons and negations of a filter",
    "batch_requests": "items of a batch",
    "batch_bytes": "a batch",
    "page_size": "items of a page",
    "default_page_size": "items of a page that names no size",
    "count_groups": "groups that Count answers",
    "watched_tasks": "tasks that a Watch follows",
    "watches": "Watch calls at a time, of one process",
    "forecast_steps": "steps of a forecast",
    "poll_tasks": "tasks of a Poll",
    "poll_wait_ms": "how long a Poll waits",
    "delay_ms": "how far ahead a task may be due",
    "timeout_ms": "each of the three timeouts",
    "max_attempts": "attempts of a task",
    "initial_delay_ms": "the first retry delay",
    "max_delay_ms": "the longest retry delay",
    "max_multiplier": "growth of the retry delay",
    "buffered_instances": "instances that a schedule may buffer",
}


VALUES = {
    "_status": "a status: `" + "` `".join(Status.__members__) + "`",
    "_text": "text",
    "_identifier": "an id",
    "_number": "a whole number",
    "_moment": 'a time, RFC 3339 in quotes: `"2026-03-01T08:00:00Z"`',
}
"""Of a filter, by the function that reads them."""


def _seconds(ms: float) -> str:
    return f"{ms / 1_000:g} s"


def defaults() -> list[tuple[str, str, str]]:
    """What, its value, and the constant that holds it."""
    terms, retry = LeaseTerms(), DEFAULT_RETRY
    most = retry.max_attempts
    return [
        ("Attempts, the first included", str(most), "RetryPolicy.max_attempts"),
        (
            "Longest delay before the second attempt",
            _seconds(retry.initial_delay_ms),
            "RetryPolicy.initial_delay",
        ),
        ("Growth of that delay", f"× {retry.multiplier:g}", "RetryPolicy.multiplier"),
        ("Ceiling of that delay", _seconds(retry.max_delay_ms), "RetryPolicy.max_delay"),
        (
            "Grants that may be lost",
            f"{most} + {lifecycle.LOST_GRANT_MARGIN}",
            "lifecycle.LOST_GRANT_MARGIN",
        ),
        ("Timeouts", "none", "Timeouts"),
        ("Priority", "5 (0 to 9, lower is sooner)", "SubmitRequest.priority"),
        ("Queue", "the task type", "SubmitRequest.queue"),
        ("First lease", _seconds(terms.first_lease_ms), "LeaseTerms.first_lease_ms"),
        ("Lease", _seconds(terms.lease_ms), "LeaseTerms.lease_ms"),
        ("Beat", _seconds(terms.heartbeat_ms), "LeaseTerms.heartbeat_ms"),
        (
            "Acknowledged first leases are extended after",
            _seconds(terms.extend_after_ms),
            "LeaseTerms.extend_after_ms",
        ),
        ("Shards", str(SHARDS), "task.SHARDS"),
        ("A shard's lease", _seconds(ownership.TTL_MS), "ownership.TTL_MS"),
        (
            "Clock difference up to which a node triggers",
            f"{clock_guard.BOUND_MS} ms",
            "clock_guard.BOUND_MS",
        ),
        (
            "Check of a PENDING task after its due time",
            _seconds(checks.GRACE_MS),
            "checks.GRACE_MS",
        ),
        ("Check of a READY task", _seconds(checks.READY_RECHECK_MS), "checks.READY_RECHECK_MS"),
        (
            "The same in a lane with backlog",
            _seconds(checks.BACKLOG_RECHECK_MS),
            "checks.BACKLOG_RECHECK_MS",
        ),
        ("What counts as backlog", f"{sweep.BACKLOG_ROWS:,} tasks", "sweep.BACKLOG_ROWS"),
        ("Slots of a worker", str(runner.DEFAULT_SLOTS), "runner.DEFAULT_SLOTS"),
        (
            "Drain of a worker",
            f"{runner.DEFAULT_DRAIN_TIMEOUT:g} s",
            "runner.DEFAULT_DRAIN_TIMEOUT",
        ),
        ("Timeout of a client's call", f"{sdk_retry.CALL_TIMEOUT:g} s", "retry.CALL_TIMEOUT"),
        ("The same of a batch", f"{sdk_retry.BULK_TIMEOUT:g} s", "retry.BULK_TIMEOUT"),
    ]
