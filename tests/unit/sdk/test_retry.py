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
TRIGGER = schedule_requests_pb2.TriggerRequest
RESCHEDULE = task_requests_pb2.RescheduleRequest
UPDATE = schedule_requests_pb2.UpdateRequest


def test_every_rpc_is_in_the_table() -> None:
    assert set(retry.RULES) == set(METHODS)


@pytest.mark.parametrize("rpc", METHODS)
def test_streams_have_no_deadline_and_no_repetition(rpc: str) -> None:
    rule, streams = retry.RULES[rpc], METHODS[rpc].server_streaming
    assert (rule.timeout is None) == streams
    assert rule.repeatable is retry.never or not streams


KEYED = SUBMIT(idempotency_key="k")
CRON = schedule_pb2.CronSchedule(expression="@daily")


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        pytest.param("SchedulerService/Submit", KEYED, id="keyed"),
        pytest.param(
            "SchedulerService/SubmitBatch", BATCH(requests=[KEYED, KEYED]), id="all keyed"
        ),
        pytest.param("SchedulerService/Trigger", TRIGGER(idempotency_key="k"), id="keyed trigger"),
        pytest.param("SchedulerService/Reschedule", RESCHEDULE(), id="unversioned"),
        pytest.param("SchedulerService/Update", UPDATE(), id="untagged"),
        pytest.param("SchedulerService/Status", task_requests_pb2.StatusRequest(), id="read"),
        pytest.param("WorkerService/Complete", worker_service_pb2.CompleteRequest(), id="fenced"),
    ],
)
def test_may_be_sent_twice(rpc: str, request_: Any) -> None:
    assert retry.RULES[rpc].repeatable(request_)


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        pytest.param("SchedulerService/Submit", SUBMIT(), id="no key"),
        pytest.param(
            "SchedulerService/SubmitBatch", BATCH(requests=[KEYED, SUBMIT()]), id="one without"
        ),
        pytest.param(
            "SchedulerService/SubmitBatch", BATCH(requests=[KEYED], cron=CRON), id="recurring"
        ),
        pytest.param("SchedulerService/Trigger", TRIGGER(), id="trigger"),
        pytest.param("SchedulerService/Reschedule", RESCHEDULE(version=0), id="versioned"),
        pytest.param("SchedulerService/Update", UPDATE(etag="e"), id="tagged"),
        pytest.param("WorkerService/Poll", worker_service_pb2.PollRequest(), id="grants"),
    ],
)
def test_may_not_be_sent_twice(rpc: str, request_: Any) -> None:
    assert not retry.RULES[rpc].repeatable(request_)


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
