"""Arguments become requests."""

import dataclasses
import typing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import mainspring
from mainspring import (
    CatchUp,
    CronSchedule,
    Dependencies,
    DependencyRule,
    NewTask,
    OverlapPolicy,
    RetryPolicy,
    TaskOptions,
    Timeouts,
    _schedule_calls,
    _task_calls,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def request_of(*args: Any, **options: Any) -> Any:
    return _task_calls.submit_request(NewTask(*args, **options), dedupe=False)


def test_options_are_the_fields_of_a_task() -> None:
    fields = {field.name for field in dataclasses.fields(NewTask)}
    assert set(typing.get_type_hints(TaskOptions)) == fields - {"task_type", "payload", "local_ref"}


def test_the_least() -> None:
    request = request_of("mail")
    assert request.task_type == "mail"
    assert request.schedule.WhichOneof("when") == "immediate"
    assert [field.name for field, _ in request.ListFields()] == ["task_type", "schedule"]


def test_the_most() -> None:
    request = request_of(
        "mail",
        {"to": "ada"},
        delay=2.5,
        queue="bulk",
        priority=0,
        idempotency_key="k",
        retry=RetryPolicy(max_attempts=2, initial_delay=1, max_delay=timedelta(minutes=1)),
        timeouts=Timeouts(run_timeout=30),
        labels={"team": "web"},
        metadata={"key": "id"},
        dependencies=Dependencies(task_ids=["a"], rule=DependencyRule.ALL_DONE, delay=1),
        trace_context="00-1-2-01",
        local_ref="here",
    )
    assert {field.name for field, _ in request.ListFields()} == set(
        request.DESCRIPTOR.fields_by_name
    )
    assert request.payload.json == '{"to":"ada"}'
    assert request.payload.metadata == {"key": "id"}
    assert request.schedule.delay.ToTimedelta() == timedelta(seconds=2.5)
    assert request.HasField("priority")
    assert request.retry.initial_delay.seconds == 1
    assert not request.retry.HasField("multiplier")
    assert not request.timeouts.HasField("total_timeout")
    assert request.dependencies.rule == 2


def test_a_due_time() -> None:
    assert request_of("mail", due_time=NOON).schedule.due_time.ToDatetime(UTC) == NOON


def test_a_zero_delay_is_a_delay() -> None:
    assert request_of("mail", delay=0).schedule.WhichOneof("when") == "delay"


def test_an_expression() -> None:
    assert request_of("mail", cron="@hourly").schedule.cron.expression == "@hourly"


def test_a_cron_schedule() -> None:
    cron = CronSchedule(
        "0 9 * * MON",
        time_zone="Europe/Vienna",
        overlap_policy=OverlapPolicy.BUFFER_ONE,
        catch_up=CatchUp(window=60),
        exclusions=["2026-12-25"],
        end_time=NOON,
    )
    message = request_of("mail", cron=cron).schedule.cron
    assert message.time_zone == "Europe/Vienna"
    assert message.overlap_policy == 2
    assert message.catch_up.window.seconds == 60
    assert list(message.exclusions) == ["2026-12-25"]
    assert message.end_time.ToDatetime(UTC) == NOON
    assert not message.HasField("max_runs")


def test_due_in_two_ways() -> None:
    with pytest.raises(ValueError, match="only one of delay, cron"):
        NewTask("mail", delay=1, cron="@daily")


def test_a_naive_due_time() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        request_of("mail", due_time=datetime(2026, 3, 1))  # noqa: DTZ001


def test_keys_are_added_where_none_is() -> None:
    def key(task: NewTask) -> str:
        return _task_calls.submit_request(task, dedupe=True).idempotency_key

    assert key(NewTask("mail", idempotency_key="mine")) == "mine"
    assert key(NewTask("mail")) != key(NewTask("mail"))


def test_a_graph() -> None:
    tasks = [NewTask("a", local_ref="a"), NewTask("b", dependencies=Dependencies(local_refs=["a"]))]
    request: Any = _task_calls.submit_graph(tasks, "@daily", dedupe=False).request
    assert request.atomic
    assert request.cron.expression == "@daily"
    assert list(request.requests[1].dependencies.local_refs) == ["a"]


@pytest.mark.parametrize("when", [{}, {"due_time": NOON, "delay": 1}], ids=["none", "both"])
def test_reschedule_wants_one_time(when: Any) -> None:
    with pytest.raises(ValueError, match="one of due_time, delay"):
        _task_calls.reschedule("t", when.get("due_time"), when.get("delay"), None)


def test_reschedule() -> None:
    request: Any = _task_calls.reschedule("t", None, 5, 3).request
    assert (request.delay.seconds, request.version) == (5, 3)


def test_count_takes_one_group_or_many() -> None:
    many: Any = _task_calls.count("", [mainspring.CountGroupBy.QUEUE, "STATUS"]).request
    one: Any = _task_calls.count("", mainspring.CountGroupBy.QUEUE).request
    assert (list(many.group_by), list(one.group_by)) == ([3, 1], [3])


def update(**changes: Any) -> Any:
    return _schedule_calls.update(
        "s", changes, etag="", validate_only=False, compare_count=None
    ).request


def test_an_update_names_what_it_changes() -> None:
    request = update(cron="@daily", priority=3, labels={}, payload={"a": 1}, metadata={"k": "v"})
    assert list(request.update_mask.paths) == ["schedule.cron", "priority", "labels", "payload"]
    assert request.submission.schedule.cron.expression == "@daily"
    assert request.submission.payload.json == '{"a":1}'


def test_an_update_can_empty_a_payload() -> None:
    request = update(payload=None)
    assert list(request.update_mask.paths) == ["payload"]
    assert not request.submission.HasField("payload")


def test_a_backfill() -> None:
    call = _schedule_calls.backfill("s", NOON, NOON + timedelta(days=1), max_rate=2.0, dry_run=True)
    request: Any = call.request
    assert (request.max_rate, request.dry_run) == (2.0, True)
    assert request.end_time.ToDatetime(UTC) == NOON + timedelta(days=1)


@pytest.mark.parametrize("sources", [(None, None), ("@daily", "s")], ids=["none", "both"])
def test_a_preview_looks_at_one_thing(sources: Any) -> None:
    with pytest.raises(ValueError, match="one of cron, task_id"):
        _schedule_calls.preview(*sources, None, count=None, include_load=False)
