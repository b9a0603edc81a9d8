"""Times, durations, names and texts at their bounds and one past them."""

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from mainspring.v1 import task_pb2
from mainspring_server.api.convert import (
    MAX_DURATION_S,
    MAX_TIMESTAMP_S,
    MIN_TIMESTAMP_S,
    check_name,
    check_text,
    check_view,
    duration,
    duration_ms,
    page_size,
    task_message,
    timestamp,
    timestamp_ms,
)
from mainspring_server.domain.errors import InvalidArgument
from mainspring_server.domain.retry import RetryPolicy
from mainspring_server.domain.task import NO_TIMEOUTS, Payload, PayloadKind, Status, Task
from mainspring_server.ids import mint, text_of

MOMENTS = st.integers(MIN_TIMESTAMP_S * 1_000, MAX_TIMESTAMP_S * 1_000)
TEN_YEARS = 3_653 * 86_400_000


@given(MOMENTS)
def test_a_moment_survives_the_way_there_and_back(ms: int) -> None:
    assert timestamp_ms(timestamp(ms), "at") == ms


@given(st.integers(-(10**14), 10**14))
def test_a_span_is_a_valid_duration(ms: int) -> None:
    message = duration(ms)
    assert message.seconds * 1_000 + message.nanos // 1_000_000 == ms
    assert message.seconds * message.nanos >= 0


@pytest.mark.parametrize(
    ("nanos", "expected"), [(0, 5_000), (1, 5_001), (1_000_000, 5_001), (999_999_999, 6_000)]
)
def test_times_are_rounded_up_so_that_nothing_is_early(nanos: int, expected: int) -> None:
    assert timestamp_ms(Timestamp(seconds=5, nanos=nanos), "at") == expected
    assert duration_ms(Duration(seconds=5, nanos=nanos), "span") == expected


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        (0, -1),
        (0, 1_000_000_000),
        (MAX_TIMESTAMP_S + 1, 0),
        (MIN_TIMESTAMP_S - 1, 0),
        (2**63 - 1, 0),
        (-(2**63), 0),
    ],
)
def test_no_valid_timestamp(seconds: int, nanos: int) -> None:
    with pytest.raises(InvalidArgument) as caught:
        timestamp_ms(Timestamp(seconds=seconds, nanos=nanos), "schedule.due_time", "REASON")
    assert (caught.value.reason, caught.value.field) == ("REASON", "schedule.due_time")


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        (-1, 0),
        (0, -1),
        (1, -1),
        (-1, 1),
        (0, 1_000_000_000),
        (MAX_DURATION_S + 1, 0),
        (-MAX_DURATION_S - 1, 0),
        (2**63 - 1, 2**31 - 1),
        (TEN_YEARS // 1_000, 1),
    ],
)
def test_no_valid_delay(seconds: int, nanos: int) -> None:
    with pytest.raises(InvalidArgument) as caught:
        duration_ms(Duration(seconds=seconds, nanos=nanos), "delay", maximum=TEN_YEARS)
    assert (caught.value.reason, caught.value.field) == ("FIELD_INVALID", "delay")
    assert caught.value.message.startswith("delay ")


def test_delays_at_their_bounds() -> None:
    assert duration_ms(Duration(), "delay", minimum=0, maximum=0) == 0
    assert duration_ms(Duration(seconds=TEN_YEARS // 1_000), "delay") == TEN_YEARS
    with pytest.raises(InvalidArgument):
        duration_ms(Duration(), "run_timeout", minimum=1, maximum=5)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 128])
def test_names(name: str) -> None:
    assert check_name(name, "queue") == name


@pytest.mark.parametrize("name", ["x" * 129, "a b", "a/b", "ä", "a\n", "a\0", "\0", "😀"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_name(name, "queue")
    assert (caught.value.reason, caught.value.field) == ("FIELD_INVALID", "queue")


def test_a_missing_name_is_required() -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_name("", "task_type")
    assert (caught.value.reason, caught.value.field) == ("FIELD_REQUIRED", "task_type")


def test_texts_at_their_bounds() -> None:
    assert check_text("é" * 8, "reason", 8) == "é" * 8
    assert check_text("", "reason", 8) == ""
    for text, reason in (("x" * 9, "FIELD_INVALID"), ("a\0b", "FIELD_INVALID")):
        with pytest.raises(InvalidArgument) as caught:
            check_text(text, "reason", 8)
        assert (caught.value.reason, caught.value.field) == (reason, "reason")
    with pytest.raises(InvalidArgument) as caught:
        check_text("", "worker_id", 8, required=True)
    assert caught.value.reason == "FIELD_REQUIRED"


def test_page_sizes() -> None:
    assert page_size(0, 100, 1_000) == 100
    assert page_size(7, 100, 1_000) == 7
    assert page_size(2**31 - 1, 100, 1_000) == 1_000
    with pytest.raises(InvalidArgument) as caught:
        page_size(-1, 100, 1_000)
    assert caught.value.field == "page_size"


def test_views() -> None:
    assert check_view(0) == task_pb2.TASK_VIEW_BASIC
    assert check_view(2) == task_pb2.TASK_VIEW_FULL
    with pytest.raises(InvalidArgument) as caught:
        check_view(3)
    assert caught.value.field == "view"


def _task(**changes: object) -> Task:
    fields: dict[str, object] = {
        "task_id": mint(1_700_000_000_000, 1)[0],
        "namespace": "default",
        "task_type": "resize",
        "queue": "images",
        "priority": 5,
        "status": Status.PENDING,
        "version": 3,
        "due_at": 1_700_000_000_123,
        "created_at": 1_700_000_000_000,
        "retry": RetryPolicy(),
        "timeouts": NO_TIMEOUTS,
    }
    return Task(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_task_as_a_message() -> None:
    task = _task(
        labels='{"team":"a"}',
        payload=Payload(PayloadKind.JSON, b'{"n":1}', '{"codec":"none"}'),
        progress=0.5,
        error_message="boom",
    )
    basic = task_message(task)
    assert basic.task_id == text_of(task.task_id)
    assert basic.due_time.ToMilliseconds() == task.due_at
    assert dict(basic.labels) == {"team": "a"}
    assert basic.progress.fraction == 0.5
    assert basic.last_error == "boom"
    assert not basic.HasField("payload")
    assert not basic.HasField("lease_expiry_time")
    full = task_message(task, task_pb2.TASK_VIEW_FULL)
    assert full.payload.json == '{"n":1}'
    assert dict(full.payload.metadata) == {"codec": "none"}
    assert full.retry.max_attempts == 4
    assert full.retry.initial_delay.seconds == 1


def test_a_task_that_waits_for_others_has_no_due_time() -> None:
    assert not task_message(_task(status=Status.CREATED)).HasField("due_time")


def test_only_a_running_task_has_a_lease() -> None:
    running = task_message(_task(status=Status.RUNNING, lease_expires_at=1_700_000_060_000))
    assert running.lease_expiry_time.seconds == 1_700_000_060
    ended = task_message(_task(status=Status.FAILED, lease_expires_at=1_700_000_060_000))
    assert not ended.HasField("lease_expiry_time")
