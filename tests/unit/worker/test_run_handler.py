"""Handlers without a server: outcomes, context, and what is refused about a class."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from mainspring_worker import Context, Fail, Retry, Runner, Snooze, StopReason, Worker
from mainspring_worker.testing import Failed, Snoozed, Succeeded, run_handler


@dataclass
class Sum:
    left: int
    right: int


class Add(Worker):
    task_type = "add"

    def handle(self, context: Context, numbers: Sum) -> dict[str, int]:
        return {"sum": numbers.left + numbers.right, "attempt": context.attempt}


class AddAsync(Worker):
    task_type = "add"

    async def handle(self, context: Context, numbers: Sum) -> int:
        await asyncio.sleep(0)
        return numbers.left + numbers.right


class Raises(Worker):
    task_type = "raises"
    error: BaseException

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def handle(self, context: Context, nothing: None) -> None:
        raise self.error


class Pages(Worker):
    task_type = "pages"

    def handle(self, context: Context, pages: list[str]) -> str:
        start = context.last_checkpoint_as(dict[str, int]) or {"next": 0}
        for number in range(start["next"], len(pages)):
            context.progress(number / len(pages), pages[number])
            context.checkpoint({"next": number + 1})
        return (context.last_checkpoint or b"").decode()


def test_sync_and_async() -> None:
    assert run_handler(Add(), Sum(1, 2), attempt=3).value == {"sum": 3, "attempt": 3}
    assert run_handler(AddAsync(), {"left": 1, "right": 2}).outcome == Succeeded(b"3")


async def test_async_where_a_loop_runs() -> None:
    assert run_handler(AddAsync(), Sum(1, 2)).value == 3


def test_bad_input_is_not_retryable() -> None:
    for worker in (Add(), AddAsync()):
        outcome = run_handler(worker, {"left": 1}).outcome
        assert outcome == Failed("input: missing right", "InputInvalid", retryable=False)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Retry(5, "busy"), Failed("busy", "Retry", retry_delay=5.0)),
        (Retry(timedelta(minutes=1), "busy"), Failed("busy", "Retry", retry_delay=60.0)),
        (Snooze(2.5), Snoozed(2.5)),
        (Fail("never"), Failed("never", "Fail", retryable=False)),
    ],
)
def test_outcomes_that_are_raised(error: BaseException, expected: Any) -> None:
    assert run_handler(Raises(error)).outcome == expected


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(3), KeyboardInterrupt()])
def test_anything_else_is_a_retryable_failure_with_its_traceback(error: BaseException) -> None:
    outcome = run_handler(Raises(error)).outcome
    assert isinstance(outcome, Failed)
    assert outcome.type == type(error).__name__
    assert outcome.retryable
    assert outcome.message.startswith(type(error).__name__)
    assert "raise self.error" in outcome.message


def test_error_text_is_cut_and_clean() -> None:
    outcome = run_handler(Raises(ValueError("start\x00\ud800" + "ä" * 70_000))).outcome
    assert isinstance(outcome, Failed)
    assert len(outcome.message.encode()) <= 65_536
    assert outcome.message.startswith("ValueError: start\\x00\\ud800ä")


def test_cause_of_a_fail_is_kept() -> None:
    class Wraps(Worker):
        task_type = "wraps"

        def handle(self, context: Context, nothing: None) -> None:
            try:
                raise KeyError("root")  # noqa: TRY301 - the cause is the point
            except KeyError as error:
                raise Fail("wrapped") from error

    outcome = run_handler(Wraps()).outcome
    assert isinstance(outcome, Failed)
    assert outcome.message.startswith("wrapped")
    assert "KeyError: 'root'" in outcome.message


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 4_000_000_000])
def test_delays_out_of_bounds(delay: float) -> None:
    with pytest.raises(ValueError, match="0 s to 10 years"):
        Retry(delay)
    with pytest.raises(ValueError, match="0 s to 10 years"):
        Snooze(delay)


def test_progress_and_checkpoints() -> None:
    run = run_handler(Pages(), ["a", "b", "c"], checkpoint={"next": 1}, attempt=2)
    assert run.progress == [(1 / 3, "b"), (2 / 3, "c")]
    assert run.checkpoints == [b'{"next":2}', b'{"next":3}']
    assert run.value == '{"next":3}'


def test_bad_reports_are_refused() -> None:
    class Bad(Worker):
        task_type = "bad"

        def handle(self, context: Context, call: str) -> None:
            if call == "progress":
                context.progress(1.5)
            context.checkpoint(b"x" * 70_000)

    for call, text in (("progress", "progress is 0 to 1"), ("checkpoint", "at most 65536 bytes")):
        outcome = run_handler(Bad(), call).outcome
        assert isinstance(outcome, Failed)
        assert text in outcome.message


def test_context_of_a_stopped_handler() -> None:
    class Stops(Worker):
        task_type = "stops"

        def handle(self, context: Context, nothing: None) -> None:
            assert context.wait_cancelled(60.0)
            assert context.stop_reason is StopReason.CANCELLED
            context.raise_if_cancelled()

    outcome = run_handler(Stops(), stop=StopReason.CANCELLED).outcome
    assert isinstance(outcome, Failed)
    assert outcome.type == "Cancelled"


def test_result_too_large() -> None:
    class Large(Worker):
        task_type = "large"

        def handle(self, context: Context, size: int) -> bytes:
            return b"x" * size

    assert run_handler(Large(), 65_536).outcome == Succeeded(b"x" * 65_536)
    outcome = run_handler(Large(), 65_537).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.type, outcome.retryable) == ("OutcomeInvalid", False)
    assert "65537 bytes" in outcome.message


def worker_class(**attributes: Any) -> Worker:
    def handle(self: Any, context: Context, payload: Any) -> None: ...

    return type("Odd", (Worker,), {"handle": handle} | attributes)()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "set task_type or queue"),
        ({"task_type": "a b"}, "not 'a b'"),
        ({"task_types": "ab"}, "use task_type"),
        ({"task_types": [str(n) for n in range(101)]}, "at most 100"),
        ({"task_type": "a", "slots": 0}, "slots is 1 to 10000"),
        ({"task_type": "a", "stall_timeout": -1}, "0 s to 10 years"),
        ({"task_type": "a", "handle": Worker.handle}, "no handle"),
        (
            {"task_type": "a", "handle": lambda self, context: None},
            r"takes \(self, context, input\)",
        ),
    ],
)
def test_classes_that_are_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Runner([worker_class(**attributes)])


def test_runners_that_are_refused() -> None:
    with pytest.raises(ValueError, match="taken by both Odd and Odd"):
        Runner([worker_class(task_type="a"), worker_class(task_types=["b", "a"])])
    with pytest.raises(ValueError, match="no worker"):
        Runner([])
    for server in (" , ", "localhost"):
        with pytest.raises(ValueError, match="host:port"):
            Runner([worker_class(task_type="a")], server=server)
    with pytest.raises(ValueError, match="slots is"):
        Runner([worker_class(task_type="a")], slots=10_001)
