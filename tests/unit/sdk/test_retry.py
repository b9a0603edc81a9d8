"""The retry table: every RPC, and what is repeated after what delay."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import retry
from mainspring.errors import (
    Aborted,
    DeadlineExceeded,
    Internal,
    MainspringError,
    ResourceExhausted,
    Unavailable,
)
from mainspring.v1 import (
    admin_service_pb2,
    schedule_pb2,
    schedule_requests_pb2,
    scheduler_service_pb2,
    task_requests_pb2,
    worker_service_pb2,
)

METHODS = {
    f"{service.name}/{method.name}": method
    for module in (scheduler_service_pb2, worker_service_pb2, admin_service_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
SUBMIT = task_requests_pb2.SubmitRequest
BATCH = task_requests_pb2.SubmitBatchRequest


def test_every_rpc_is_in_the_table() -> None:
    assert set(retry.RULES) == set(METHODS)


@pytest.mark.parametrize("rpc", METHODS)
def test_streams_have_no_deadline_and_no_repetition(rpc: str) -> None:
    rule, streams = retry.RULES[rpc], METHODS[rpc].server_streaming
    assert (rule.timeout is None) == streams
    assert rule.repeatable is retry.never or not streams


@pytest.mark.parametrize(
    ("rpc", "request_", "expected"),
    [
        ("SchedulerService/Submit", SUBMIT(), False),
        ("SchedulerService/Submit", SUBMIT(idempotency_key="k"), True),
        ("SchedulerService/SubmitBatch", BATCH(requests=[SUBMIT(idempotency_key="k")]), True),
        (
            "SchedulerService/SubmitBatch",
            BATCH(requests=[SUBMIT(idempotency_key="k"), SUBMIT()]),
            False,
        ),
        (
            "SchedulerService/SubmitBatch",
            BATCH(
                requests=[SUBMIT(idempotency_key="k")],
                atomic=True,
                cron=schedule_pb2.CronSchedule(),
            ),
            False,
        ),
        ("SchedulerService/Trigger", schedule_requests_pb2.TriggerRequest(), False),
        (
            "SchedulerService/Trigger",
            schedule_requests_pb2.TriggerRequest(idempotency_key="k"),
            True,
        ),
        ("SchedulerService/Reschedule", task_requests_pb2.RescheduleRequest(), True),
        ("SchedulerService/Reschedule", task_requests_pb2.RescheduleRequest(version=0), False),
        ("SchedulerService/Update", schedule_requests_pb2.UpdateRequest(), True),
        ("SchedulerService/Update", schedule_requests_pb2.UpdateRequest(etag="e"), False),
        ("SchedulerService/Status", task_requests_pb2.StatusRequest(), True),
        ("WorkerService/Poll", worker_service_pb2.PollRequest(), False),
    ],
)
def test_which_requests_may_be_sent_twice(rpc: str, request_: Any, expected: bool) -> None:
    assert retry.RULES[rpc].repeatable(request_) is expected


def delay(error: MainspringError, *, repeatable: bool, failures: int = 1) -> float | None:
    return retry.next_delay(error, repeatable=repeatable, failures=failures, spread=0.5)


def test_unavailable_is_repeated_where_that_is_safe() -> None:
    assert delay(Unavailable("gone"), repeatable=True) == pytest.approx(0.075)
    assert delay(Unavailable("gone"), repeatable=False) is None


def test_a_draining_server_did_nothing() -> None:
    assert delay(Unavailable("stops", reason="SERVER_DRAINING"), repeatable=False) is not None


def test_the_servers_wish_is_a_lower_bound() -> None:
    assert delay(Unavailable("gone", retry_after=9.0), repeatable=True) == 9.0


def test_exhaustion_is_repeated_only_when_it_passes() -> None:
    assert delay(ResourceExhausted("full"), repeatable=True) is None
    assert delay(ResourceExhausted("full", retry_after=2.0), repeatable=False) == pytest.approx(2.1)


@pytest.mark.parametrize("cls", [Internal, Aborted, DeadlineExceeded])
def test_nothing_else_is_repeated(cls: type[MainspringError]) -> None:
    assert delay(cls("no", retry_after=1.0), repeatable=True) is None


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_grows_within_bounds(failures: int, spread: float) -> None:
    seconds = retry.backoff(failures, spread)
    assert retry.INITIAL_BACKOFF / 2 <= seconds <= retry.MAX_BACKOFF
    assert retry.backoff(failures + 1, spread) >= seconds


def tries(timeout: float | None = None) -> retry.Tries:
    return retry.Tries("SchedulerService/Status", task_requests_pb2.StatusRequest(), timeout, 100.0)


def test_tries_share_one_deadline() -> None:
    assert tries().remaining(100.0) == retry.CALL_TIMEOUT
    assert tries(5.0).remaining(103.0) == pytest.approx(2.0)
    with pytest.raises(DeadlineExceeded, match="SchedulerService/Status"):
        tries(5.0).remaining(105.0)


def test_no_try_begins_after_the_deadline() -> None:
    error = ResourceExhausted("full", retry_after=4.0)
    assert tries(5.0).delay_after(error, 100.0) >= 4.0
    with pytest.raises(ResourceExhausted):
        tries(5.0).delay_after(error, 101.5)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_is_above_zero(timeout: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        tries(timeout)
