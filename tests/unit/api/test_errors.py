"""The table of errors, their details, and what a defect shows to a caller."""

import logging

import grpc
import pytest
from google.rpc import error_details_pb2

from mainspring_server.api.errors import CODES, cut, status_of
from mainspring_server.domain import errors


def test_every_class_of_error_has_a_status() -> None:
    assert set(CODES) == set(errors.MainspringError.__subclasses__())


def test_details_of_an_error_in_a_field() -> None:
    error = errors.InvalidArgument("FIELD_INVALID", "it is wrong", field="a.b", metadata={"x": "1"})
    status = status_of(error)
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(bad)
    assert (info.reason, info.domain) == ("FIELD_INVALID", "mainspring")
    assert dict(info.metadata) == {"x": "1", "field": "a.b"}
    assert [(v.field, v.description) for v in bad.field_violations] == [("a.b", "it is wrong")]


def test_retry_info() -> None:
    error = errors.ResourceExhausted("SERVER_OVERLOADED", "later", retry_after_ms=1_500)
    info = error_details_pb2.RetryInfo()
    assert status_of(error).details[1].Unpack(info)
    assert info.retry_delay.ToMilliseconds() == 1_500


def test_a_defect_shows_no_inside(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        status = status_of(RuntimeError("SELECT secret FROM tasks"), "Submit")
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert status.code == grpc.StatusCode.INTERNAL.value[0]
    assert info.reason == "INTERNAL"
    assert "secret" not in str(status)
    assert info.metadata["error_id"] in caplog.text
    assert "SELECT secret" in caplog.text


def test_an_error_fits_the_trailers_of_any_client() -> None:
    huge = "😀" * 10_000
    error = errors.InvalidArgument("FIELD_INVALID", huge, field=huge, metadata={"value": huge})
    status = status_of(error)
    in_details = len(status.SerializeToString()) * 4 // 3
    in_message = len(status.message.encode()) * 3
    assert in_details + in_message < 8 * 1_024


def test_cut_keeps_whole_characters() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("é" * 10, 8) == "éé…"
    assert len(cut("é" * 10, 8).encode()) <= 8


def test_a_reason_that_is_not_in_the_contract_never_leaves() -> None:
    status = status_of(errors.Unavailable("SCHEMA_OUT_OF_DATE", "ALTER TABLE tasks"))
    assert status.code == grpc.StatusCode.INTERNAL.value[0]
    assert "ALTER" not in str(status)
