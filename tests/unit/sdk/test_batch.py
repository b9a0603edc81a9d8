"""Batches of any size become calls that the server takes."""

from typing import Any

import pytest

from mainspring import InvalidArgument, NewTask, Submitted, TaskStatus, Unavailable, _batch
from mainspring._batch import MAX_REQUESTS, Batch


def tasks(count: int, size: int = 0) -> list[NewTask]:
    return [NewTask("mail", b"x" * size if size else None) for _ in range(count)]


def answer(part: Any) -> list[Any]:
    return [Submitted(task_id=str(i), status=TaskStatus.READY) for i in part.indices]


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, []),
        (1, [1]),
        (MAX_REQUESTS, [MAX_REQUESTS]),
        (MAX_REQUESTS + 1, [MAX_REQUESTS, 1]),
        (2 * MAX_REQUESTS + 5, [MAX_REQUESTS, MAX_REQUESTS, 5]),
    ],
)
def test_split_by_number(count: int, sizes: list[int]) -> None:
    batch = Batch(tasks(count), dedupe=False)
    parts = list(batch.parts())
    assert [len(part.indices) for part in parts] == sizes
    for part in parts:
        batch.accept(part, answer(part))
    assert [result.task_id for result in batch.results()] == [str(i) for i in range(count)]


def test_split_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_batch, "MAX_BYTES", 1_000)
    parts = list(Batch(tasks(7, size=300), dedupe=False).parts())
    assert [len(part.indices) for part in parts] == [3, 3, 1]
    assert all(part.call.request.ByteSize() <= 1_000 for part in parts)


def test_the_limit_itself_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    (part,) = Batch(tasks(3, size=300), dedupe=False).parts()
    monkeypatch.setattr(_batch, "MAX_BYTES", part.call.request.ByteSize() + 3 * 6)
    assert len(list(Batch(tasks(3, size=300), dedupe=False).parts())) == 1


def test_what_no_call_can_carry_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_batch, "MAX_BYTES", 1_000)
    batch = Batch([*tasks(1), *tasks(1, size=1_000), *tasks(1)], dedupe=False)
    (part,) = batch.parts()
    batch.accept(part, answer(part))
    first, second, third = batch.results()
    assert isinstance(first, Submitted)
    assert isinstance(third, Submitted)
    assert isinstance(second, InvalidArgument)
    assert second.reason == "PAYLOAD_TOO_LARGE"
    assert "task 1 has" in second.message


def test_the_first_failure_is_raised() -> None:
    batch = Batch(tasks(5), dedupe=False)
    with pytest.raises(Unavailable):
        batch.fail(Unavailable("gone"))


def test_a_later_failure_hides_nothing() -> None:
    batch = Batch(tasks(2 * MAX_REQUESTS + 1), dedupe=False)
    first, *_ = batch.parts()
    batch.accept(first, answer(first))
    error = Unavailable("gone")
    batch.fail(error)
    results = batch.results()
    assert all(isinstance(result, Submitted) for result in results[:MAX_REQUESTS])
    assert results[MAX_REQUESTS:] == [error] * (MAX_REQUESTS + 1)


def test_keys_only_when_asked() -> None:
    (plain,) = Batch(tasks(2), dedupe=False).parts()
    (keyed,) = Batch(tasks(2), dedupe=True).parts()
    requests: Any = (plain.call.request, keyed.call.request)
    assert [r.idempotency_key for r in requests[0].requests] == ["", ""]
    assert len({r.idempotency_key for r in requests[1].requests} - {""}) == 2
