"""Every bound of a request, by name. GetServerInfo shows them; the protos document the defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields

KIB = 1_024
MIB = 1_024 * KIB
SECOND_MS = 1_000
HOUR_MS = 3_600 * SECOND_MS
DAY_MS = 24 * HOUR_MS

TEN_YEARS_MS = 3_653 * DAY_MS
"""The longest ten years of the calendar: those with three leap days."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes, characters, counts and milliseconds, as the names say."""

    payload_bytes: int = MIB
    outcome_bytes: int = 64 * KIB
    error_bytes: int = 64 * KIB
    checkpoint_bytes: int = 64 * KIB
    labels: int = 64
    label_key_chars: int = 63
    label_value_chars: int = 256
    metadata_entries: int = 64
    metadata_key_chars: int = 63
    metadata_value_chars: int = 256
    predecessors: int = 10_000
    name_chars: int = 128
    idempotency_key_chars: int = 256
    idempotency_ms: int = DAY_MS
    trace_context_chars: int = 256
    reason_chars: int = 1_024
    progress_message_chars: int = 1_024
    worker_id_chars: int = 128
    worker_names: int = 100
    cron_chars: int = 256
    filter_chars: int = 4_096
    filter_terms: int = 100
    batch_requests: int = 1_000
    batch_bytes: int = 15 * MIB
    page_size: int = 1_000
    default_page_size: int = 100
    count_groups: int = 1_000
    watched_tasks: int = 1_000
    watches: int = 1_000
    forecast_steps: int = 10_000
    poll_tasks: int = 1_000
    poll_wait_ms: int = 60 * SECOND_MS
    delay_ms: int = TEN_YEARS_MS
    timeout_ms: int = TEN_YEARS_MS
    max_attempts: int = 1_000
    initial_delay_ms: int = DAY_MS
    max_delay_ms: int = 30 * DAY_MS
    max_multiplier: float = 100.0
    buffered_instances: int = 100

    def __post_init__(self) -> None:
        for bound in fields(self):
            value = getattr(self, bound.name)
            if value < 1:
                raise ValueError(f"limit {bound.name} must be at least 1, not {value}")


DEFAULT_LIMITS = Limits()
