"""Errors: one table, one tree, every detail of a Status."""

import pickle
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from mainspring import errors
from mainspring.v1 import error_pb2

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.MainspringError)
]


class FailedCall(grpc.RpcError):
    """What gRPC raises, as far as the SDK reads it."""

    def __init__(self, code: grpc.StatusCode, text: str, *trailing: tuple[str, Any]) -> None:
        self._parts = (code, text, trailing)

    def code(self) -> grpc.StatusCode:
        return self._parts[0]

    def details(self) -> str:
        return self._parts[1]

    def trailing_metadata(self) -> Any:
        return self._parts[2]


def test_every_code_has_a_class() -> None:
    assert set(errors.CLASSES) == set(grpc.StatusCode) - {grpc.StatusCode.OK}


@pytest.mark.parametrize("cls", CLASSES)
def test_the_tree_in_the_docstring_has_every_class(cls: type[errors.MainspringError]) -> None:
    assert cls.__name__ in (errors.__doc__ or "")
    assert cls("text").code is cls.default_code


def test_reasons_with_a_class_are_reasons_of_the_proto() -> None:
    assert {f"ERROR_REASON_{r}" for r in errors.BY_REASON} <= set(error_pb2.ErrorReason.keys())


def test_every_detail_is_read(status: Any) -> None:
    error = errors.from_status(
        status(
            grpc.StatusCode.INVALID_ARGUMENT,
            "FIELD_INVALID",
            "priority is 12",
            metadata={"field": "priority"},
            violations={"priority": "0 to 9, given 12"},
            retry_after=1.5,
        )
    )
    assert type(error) is errors.InvalidArgument
    assert error.reason == "FIELD_INVALID"
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.metadata == {"field": "priority"}
    assert error.field_violations == (errors.FieldViolation("priority", "0 to 9, given 12"),)
    assert error.retry_after == 1.5
    assert str(error) == "priority is 12 [FIELD_INVALID]\n  priority: 0 to 9, given 12"


def test_the_text_says_nothing_twice(status: Any) -> None:
    code = grpc.StatusCode.INVALID_ARGUMENT
    error = errors.from_status(status(code, "R", "bad delay", violations={"delay": "bad delay"}))
    assert str(error) == "bad delay [R]"


def test_a_lost_lease_has_its_own_class(status: Any) -> None:
    error = errors.from_status(status(grpc.StatusCode.FAILED_PRECONDITION, "LEASE_LOST"))
    assert type(error) is errors.LeaseLost
    assert isinstance(error, errors.FailedPrecondition)


def test_a_code_of_the_future_is_internal() -> None:
    error = errors.from_status(status_pb2.Status(code=99, message="new"))
    assert type(error) is errors.Internal
    assert error.code is grpc.StatusCode.UNKNOWN


def test_a_call_that_failed_with_details(status: Any) -> None:
    sent = status(grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND", "no task")
    call = FailedCall(
        grpc.StatusCode.NOT_FOUND, "no task", (errors.DETAILS_KEY, sent.SerializeToString())
    )
    error = errors.from_rpc_error(call, "10.0.0.1:7400")
    assert (type(error), error.reason, error.message) == (
        errors.NotFound,
        "TASK_NOT_FOUND",
        "no task",
    )


@pytest.mark.parametrize(
    "trailing",
    [(), ((errors.DETAILS_KEY, b"\xff\xff"),), ((errors.DETAILS_KEY, b""),)],
    ids=["none", "malformed", "another code"],
)
def test_a_call_that_failed_without_details_names_the_server(trailing: Any) -> None:
    call = FailedCall(grpc.StatusCode.UNAVAILABLE, "connection refused", *trailing)
    error = errors.from_rpc_error(call, "10.0.0.1:7400")
    assert type(error) is errors.Unavailable
    assert error.message == "connection refused (server: 10.0.0.1:7400)"
    assert error.reason == ""


def test_a_deadline_is_a_timeout_of_python() -> None:
    with pytest.raises(TimeoutError, match="no time left"):
        raise errors.DeadlineExceeded("no time left")


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_survive_pickling(cls: type[errors.MainspringError]) -> None:
    violation = errors.FieldViolation("queue", "at most 128 characters")
    error = cls("text", reason="R", metadata={"a": "b"}, field_violations=(violation,))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


def test_an_unknown_detail_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="retry_afer"):
        errors.MainspringError("text", retry_afer=1.0)
