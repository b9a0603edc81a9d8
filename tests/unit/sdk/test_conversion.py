"""Dataclasses and messages: the same names, every value, both ways."""

import dataclasses
import inspect
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

import pytest
from google.protobuf.message import Message

import mainspring
from mainspring import admin, enums, schedules, submission, tasks
from mainspring._convert import decode, duration, encode, enum_member, timestamp
from mainspring.v1 import (
    admin_service_pb2,
    query_requests_pb2,
    rung_pb2,
    schedule_pb2,
    schedule_requests_pb2,
    task_pb2,
    task_requests_pb2,
)

PROTO_ENUMS = {
    name: enum
    for module in (task_pb2, schedule_pb2, query_requests_pb2, schedule_requests_pb2, rung_pb2)
    for name, enum in module.DESCRIPTOR.enum_types_by_name.items()
}
ENUMS = [
    c
    for _, c in inspect.getmembers(enums, inspect.isclass)
    if issubclass(c, StrEnum) and c is not StrEnum
]
PAIRS: list[tuple[type[Any], type[Message]]] = [
    (submission.RetryPolicy, task_pb2.RetryPolicy),
    (submission.Timeouts, task_pb2.Timeouts),
    (submission.Dependencies, task_pb2.Dependencies),
    (submission.Submitted, task_requests_pb2.SubmitResponse),
    (schedules.CatchUp, schedule_pb2.CatchUp),
    (schedules.CronSchedule, schedule_pb2.CronSchedule),
    (schedules.InstanceCount, schedule_pb2.InstanceCount),
    (schedules.ScheduleState, schedule_pb2.ScheduleState),
    (schedules.Instance, schedule_pb2.Instance),
    (schedules.Triggered, schedule_requests_pb2.TriggerResponse),
    (schedules.Backfill, schedule_requests_pb2.BackfillResponse),
    (schedules.Updated, schedule_requests_pb2.UpdateResponse),
    (schedules.PreviewFire, schedule_requests_pb2.PreviewFire),
    (schedules.Preview, schedule_requests_pb2.PreviewResponse),
    (tasks.Payload, task_pb2.Payload),
    (tasks.TaskProgress, task_pb2.TaskProgress),
    (tasks.Task, task_pb2.Task),
    (tasks.Attempt, task_pb2.Attempt),
    (tasks.Transition, task_pb2.Transition),
    (tasks.CountGroup, query_requests_pb2.CountGroup),
    (tasks.Count, query_requests_pb2.CountResponse),
    (tasks.Gate, query_requests_pb2.Gate),
    (tasks.Explanation, query_requests_pb2.ExplainResponse),
    (admin.Queue, admin_service_pb2.Queue),
    (admin.ConnectedWorker, admin_service_pb2.Worker),
    (admin.ForecastStep, admin_service_pb2.ForecastStep),
    (admin.Forecast, admin_service_pb2.ForecastResponse),
    (admin.ShardInfo, admin_service_pb2.ShardInfo),
    (admin.ServerLimits, admin_service_pb2.ServerLimits),
    (admin.ServerInfo, admin_service_pb2.GetServerInfoResponse),
]
SENT = {"RetryPolicy", "Timeouts", "Dependencies", "CatchUp", "CronSchedule"}
NOON = datetime(2026, 3, 1, 12, 0, 0, 1500, tzinfo=UTC)


@pytest.mark.parametrize("cls", ENUMS)
def test_enums_have_the_members_of_the_protos(cls: type[StrEnum]) -> None:
    values = PROTO_ENUMS[cls.__name__].values
    prefix = values[0].name.removesuffix("UNSPECIFIED")
    assert [f"{prefix}{member}" for member in cls] == [value.name for value in values]


def test_every_proto_enum_has_a_text_enum() -> None:
    assert {cls.__name__ for cls in ENUMS} == set(PROTO_ENUMS)


@pytest.mark.parametrize(("cls", "message"), PAIRS)
def test_dataclasses_have_the_fields_of_the_protos(cls: type[Any], message: type[Message]) -> None:
    names = {field.name for field in dataclasses.fields(cls)}
    assert names == set(message.DESCRIPTOR.fields_by_name)


def fill(message: Message, depth: int = 0) -> Message:
    """Set every field of a message, of a oneof the last one, to something that is no default."""
    for number, field in enumerate(message.DESCRIPTOR.fields, start=1):
        target = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            text = field.message_type.fields_by_name["value"].type == field.TYPE_STRING
            target["key"] = f"value {number}" if text else number
        elif field.is_repeated:
            if field.message_type is not None:
                fill(target.add(), depth + 1)
            else:
                target.append(sample(field, number))
        elif field.message_type is None:
            setattr(message, field.name, sample(field, number))
        elif field.message_type.full_name == "google.protobuf.Timestamp":
            target.FromDatetime(NOON + timedelta(seconds=number))
        elif field.message_type.full_name == "google.protobuf.Duration":
            target.FromTimedelta(timedelta(seconds=number, microseconds=5))
        else:
            fill(target, depth + 1)
    return message


def sample(field: Any, number: int) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values[1].number
    return {
        field.CPPTYPE_STRING: b"bytes" if field.type == field.TYPE_BYTES else f"text {number}",
        field.CPPTYPE_BOOL: True,
        field.CPPTYPE_DOUBLE: number + 0.5,
    }.get(field.cpp_type, number)


@pytest.mark.parametrize(("cls", "message"), PAIRS)
def test_every_field_is_read(cls: type[Any], message: type[Message]) -> None:
    full = fill(message())
    unread = {
        field.name
        for field in dataclasses.fields(cls)
        # Of a oneof only the last one is set.
        if not getattr(decode(cls, full), field.name)
        and full.DESCRIPTOR.fields_by_name[field.name].containing_oneof is None
    }
    assert unread == set()


@pytest.mark.parametrize(
    ("cls", "message"),
    [pair for pair in PAIRS if pair[0].__name__ in SENT],
)
def test_what_is_sent_goes_there_and_back(cls: type[Any], message: type[Message]) -> None:
    full = fill(message())
    assert encode(decode(cls, full), message()) == full


@pytest.mark.parametrize(("cls", "message"), PAIRS)
def test_an_empty_message_reads_as_nothing(cls: type[Any], message: type[Message]) -> None:
    value = decode(cls, message())
    for field in dataclasses.fields(cls):
        assert getattr(value, field.name) in (None, "", b"", 0, (), {}, "UNSPECIFIED")


def test_times_are_aware_and_in_utc() -> None:
    task = decode(tasks.Task, task_pb2.Task(due_time=timestamp(NOON)))
    assert task.due_time == NOON
    assert task.due_time is not None
    assert task.due_time.tzinfo is UTC


def test_any_zone_names_the_same_instant() -> None:
    local = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert timestamp(local) == timestamp(NOON)


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        timestamp(datetime(2026, 3, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("value", "nanoseconds"),
    [
        (2, 2_000_000_000),
        (0.25, 250_000_000),
        (timedelta(milliseconds=3), 3_000_000),
        (-1, -(10**9)),
    ],
)
def test_lengths_of_time(value: Any, nanoseconds: int) -> None:
    assert duration(value).ToNanoseconds() == nanoseconds


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_no_length_of_time(value: float) -> None:
    with pytest.raises(ValueError, match="no length of time"):
        duration(value)


def test_a_member_of_a_newer_server_reads_as_unspecified() -> None:
    enum = task_pb2.DESCRIPTOR.enum_types_by_name["TaskStatus"]
    assert enum_member(enums.TaskStatus, enum, 99) is enums.TaskStatus.UNSPECIFIED


def test_an_unknown_member_is_refused_with_those_known() -> None:
    cron: Any = schedules.CronSchedule("* * * * *", overlap_policy="NEVER")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'NEVER' is no OverlapPolicy: pass one of .*SKIP"):
        encode(cron, schedule_pb2.CronSchedule())


def test_one_text_is_no_list_of_texts() -> None:
    with pytest.raises(TypeError, match="list of texts"):
        encode(mainspring.Dependencies(task_ids="abc"), task_pb2.Dependencies())


def test_an_empty_policy_is_still_there() -> None:
    cron = encode(
        schedules.CronSchedule("* * * * *", catch_up=schedules.CatchUp()),
        schedule_pb2.CronSchedule(),
    )
    assert cron.HasField("catch_up")


def test_results_and_payloads_are_read() -> None:
    task = tasks.Task(
        task_id="t", task_type="x", status=enums.TaskStatus.SUCCEEDED, outcome=b'{"n": 1}'
    )
    assert task.result() == {"n": 1}
    assert dataclasses.replace(task, outcome=b"").result() is None
    assert tasks.Payload(json="[1]").value() == [1]
    assert tasks.Payload(data=b"\0").value() == b"\0"
    assert tasks.Payload().value() is None
