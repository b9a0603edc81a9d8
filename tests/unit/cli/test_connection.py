import grpc
import pytest

from mainspring.errors import (
    FieldViolation,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from mainspring_server.cli.connection import connect, explain_failure
from mainspring_server.cli.exits import CliError, ExitCode, exit_code_of

SERVER = "127.0.0.1:7400"


def test_every_grpc_status_has_an_exit_code_of_its_own_kind() -> None:
    codes = {status.name: exit_code_of(status.name) for status in grpc.StatusCode}
    assert codes["NOT_FOUND"] is ExitCode.NOT_FOUND
    assert codes["INVALID_ARGUMENT"] is ExitCode.INVALID
    assert codes["UNAVAILABLE"] is ExitCode.UNAVAILABLE
    assert codes["UNKNOWN"] is ExitCode.INTERNAL
    assert ExitCode.USAGE not in codes.values()
    assert ExitCode.TASK_FAILED not in codes.values()


def test_nobody_there() -> None:
    error = explain_failure(Unavailable("connection refused"), SERVER)
    assert error.code is ExitCode.UNAVAILABLE
    assert SERVER in error.message
    assert "mainspring dev" in error.hint


def test_a_server_that_says_why() -> None:
    error = explain_failure(Unavailable("draining", reason="SERVER_DRAINING"), SERVER)
    assert error.message == "draining"
    assert error.document()["error"] == {
        "message": "draining",
        "exit_code": 5,
        "reason": "SERVER_DRAINING",
        "hint": error.hint,
    }


def test_fields_are_named() -> None:
    violation = FieldViolation("schedule.delay", "must not be negative")
    error = explain_failure(
        InvalidArgument("refused", reason="FIELD_INVALID", field_violations=(violation,)), SERVER
    )
    assert error.code is ExitCode.INVALID
    assert error.field == "schedule.delay"
    assert error.message == "refused\n  schedule.delay: must not be negative"


def test_what_to_do_next() -> None:
    assert (
        "mainspring list" in explain_failure(NotFound("no", reason="TASK_NOT_FOUND"), SERVER).hint
    )
    shed = ResourceExhausted("full", reason="QUEUE_FULL", retry_after=2.0)
    assert explain_failure(shed, SERVER).hint == "Try again in 2.0s."


def test_an_address_without_port() -> None:
    with pytest.raises(CliError, match="has no port"), connect("localhost"):
        pass
