"""What the sweeper finds, and when it looks again."""

from __future__ import annotations

import pytest

from mainspring_server.domain.checks import Finding, examine, first_check, next_check
from mainspring_server.domain.task import Status, Timeouts

from .test_lifecycle import NOW, make, running


@pytest.mark.parametrize(
    ("task", "finding", "at"),
    [
        (make(Status.PENDING, due_at=NOW), Finding.OVERDUE, NOW),
        (make(Status.PENDING, due_at=NOW + 9), Finding.HEALTHY, NOW + 9 + 2_000),
        (make(Status.PENDING, due_at=NOW + 9, deadline_at=NOW), Finding.TOTAL_TIMEOUT, NOW),
        (make(Status.PENDING, due_at=NOW + 9, deadline_at=NOW + 5), Finding.HEALTHY, NOW + 5),
        (make(Status.READY, ready_at=NOW), Finding.UNCLAIMED, NOW + 5_000),
        (
            make(Status.READY, ready_at=NOW - 5, due_at=NOW - 5, timeouts=Timeouts(queue_ms=5)),
            Finding.QUEUE_TIMEOUT,
            NOW,
        ),
        # staged before its due time: waiting is counted from the due time
        (
            make(Status.READY, ready_at=NOW - 9, due_at=NOW + 1, timeouts=Timeouts(queue_ms=5)),
            Finding.UNCLAIMED,
            NOW + 6,
        ),
        (running(), Finding.LEASE_EXPIRED, NOW),
        (running(lease_expires_at=NOW + 7), Finding.HEALTHY, NOW + 7),
        (running(lease_expires_at=NOW + 7, timeouts=Timeouts(run_ms=50)), Finding.RUN_TIMEOUT, NOW),
        (
            running(lease_expires_at=NOW + 7, timeouts=Timeouts(run_ms=53)),
            Finding.HEALTHY,
            NOW + 3,
        ),
        (make(Status.CREATED), Finding.WAITING, NOW + 60_000),
        (make(Status.SUCCEEDED), Finding.FINISHED, NOW),
    ],
)
def test_examine(task: object, finding: Finding, at: int) -> None:
    assert examine(task, NOW) == (finding, at)  # type: ignore[arg-type]


def test_a_deep_lane_is_looked_at_less_often() -> None:
    assert examine(make(Status.READY, ready_at=NOW), NOW, backlog=True).at == NOW + 30_000


def test_first_checks() -> None:
    assert first_check(Status.PENDING, NOW + 50, NOW, None, None) == NOW + 2_050
    assert first_check(Status.READY, NOW, NOW, None, None) == NOW + 5_000
    assert first_check(Status.READY, NOW, NOW, NOW + 3, 9) == NOW + 3
    assert first_check(Status.READY, NOW, NOW, None, 9) == NOW + 9
    assert next_check(Status.CREATED, NOW, NOW, None) == NOW + 60_000
