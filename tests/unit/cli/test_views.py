from datetime import UTC, datetime

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from mainspring.v1 import task_pb2
from mainspring.v1.query_requests_pb2 import (
    GATE_NAME_WORKER,
    GATE_STATE_BLOCKING,
    ExplainResponse,
    Gate,
)
from mainspring_server.cli import views

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


def stamp(text: str) -> Timestamp:
    found = Timestamp()
    found.FromJsonString(text)
    return found


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0404, "40ms"),
        (1, "1s"),
        (12.54, "12.5s"),
        (60, "1m"),
        (200.4, "3m 20s"),
        (7_260, "2h 1m"),
        (187_200, "2d 4h"),
    ],
)
def test_lengths_in_two_units(seconds: float, text: str) -> None:
    assert views.length(seconds) == text


def test_times() -> None:
    assert views.instant(Timestamp()) == ""
    assert views.instant(stamp("2030-01-31T11:59:59.5Z")) == "2030-01-31T11:59:59.500Z"
    assert views.relative(stamp("2030-01-31T11:59:30Z"), NOON).endswith("(30s ago)")
    assert views.relative(stamp("2030-01-31T13:00:00Z"), NOON).endswith("(in 1h)")


def test_statuses_of_a_newer_server_stay_numbers() -> None:
    assert views.status_name(task_pb2.TASK_STATUS_FAILED) == "FAILED"
    assert views.status_name(99) == "99"


def test_outcomes_are_readable() -> None:
    assert views.readable(b'{"a":1}') == '{\n  "a": 1\n}'
    assert views.readable(b"plain") == "plain"
    assert views.readable(b"\xff\xfe") == "2 bytes: ff fe"
    assert views.readable(b"\xff" * 40).endswith("ff …")
    assert views.readable(b"") == ""


def test_task_fields() -> None:
    task = task_pb2.Task(
        task_id="1",
        status=task_pb2.TASK_STATUS_RUNNING,
        attempts=2,
        max_attempts=4,
        labels={"b": "2", "a": "1"},
    )
    task.progress.fraction = 0.5
    task.progress.message = "half"
    fields = views.task_fields(task, NOON)
    assert fields["status"] == "RUNNING"
    assert fields["attempts"] == "2 of 4"
    assert fields["labels"] == "a=1\nb=2"
    assert fields["progress"] == "50% half"


def test_attempts_name_the_error_once() -> None:
    attempt = task_pb2.Attempt(
        attempt=1,
        outcome=task_pb2.ATTEMPT_OUTCOME_FAILED,
        start_time=stamp("2030-01-31T11:59:58Z"),
        end_time=stamp("2030-01-31T12:00:00Z"),
        error_type="ValueError",
        error_message="ValueError: no\n",
    )
    row = views.attempt_row(attempt)
    assert (row[1], row[4], row[6]) == ("FAILED", "2s", "ValueError: no")


def test_gates_say_what_opens_them() -> None:
    gate = Gate(
        name=GATE_NAME_WORKER,
        state=GATE_STATE_BLOCKING,
        detail="no worker",
        unblock="a worker for queue a",
        expected_delay=Duration(seconds=5),
    )
    (row,) = views.gate_rows(ExplainResponse(gates=[gate]))
    assert row == ["worker", "BLOCKING", "", "no worker", "a worker for queue a (expected in 5s)"]
