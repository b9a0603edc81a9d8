"""What a watch remembers over several streams."""

import pytest

from mainspring import DeadlineExceeded, NotFound, TaskStatus, Unavailable
from mainspring._watch import OUTAGE_LIMIT, Watch
from mainspring.v1 import query_requests_pb2, task_pb2


def heard(*transitions: tuple[str, str, int]) -> query_requests_pb2.WatchResponse:
    response = query_requests_pb2.WatchResponse()
    for task_id, status, version in transitions:
        number = task_pb2.TaskStatus.Value(f"TASK_STATUS_{status}")
        response.transitions.add(task_id=task_id, status=number, version=version)
    return response


def watch(*ids: str, until_terminal: bool = True, timeout: float | None = None) -> Watch:
    watch = Watch(ids, until_terminal=until_terminal, timeout=timeout)
    watch.start(100.0)
    return watch


def test_it_ends_with_the_last_task() -> None:
    both = watch("a", "b")
    both.accept(heard(("a", "SUCCEEDED", 4), ("b", "RUNNING", 2)))
    assert not both.done()
    both.accept(heard(("b", "FAILED", 3)))
    assert both.done()


def test_without_an_end_it_lasts() -> None:
    endless = watch("a", until_terminal=False)
    endless.accept(heard(("a", "SUCCEEDED", 4)))
    assert not endless.done()
    assert list(endless.request().task_ids) == ["a"]
    assert not endless.request().until_terminal


def test_nothing_comes_twice() -> None:
    one = watch("a")
    (first,) = one.accept(heard(("a", "READY", 1)))
    assert (first.status, first.version) == (TaskStatus.READY, 1)
    again = one.accept(heard(("a", "READY", 1), ("a", "RUNNING", 2)))
    assert [transition.version for transition in again] == [2]


def test_the_next_stream_leaves_out_what_ended() -> None:
    both = watch("a", "b", "a")
    assert list(both.request().task_ids) == ["a", "b"]
    both.accept(heard(("a", "CANCELLED", 2)))
    assert list(both.request().task_ids) == ["b"]


def test_a_lost_server_is_replaced() -> None:
    one = watch("a")
    first = one.delay_after(Unavailable("gone"), 100.0, 0.5)
    second = one.delay_after(Unavailable("gone"), 101.0, 0.5)
    assert second == pytest.approx(2 * first)
    one.accept(heard(("a", "READY", 1)))
    assert one.delay_after(None, 500.0, 0.5) == pytest.approx(first)


def test_an_outage_ends_the_watch() -> None:
    one = watch("a")
    # It is silent for an hour first: only failing streams count.
    one.delay_after(Unavailable("gone"), 3_700.0, 0.5)
    one.delay_after(Unavailable("gone"), 3_700.0 + OUTAGE_LIMIT / 2, 0.5)
    with pytest.raises(Unavailable):
        one.delay_after(Unavailable("gone"), 3_700.0 + OUTAGE_LIMIT, 0.5)


def test_a_refusal_ends_the_watch() -> None:
    with pytest.raises(NotFound):
        watch("a").delay_after(NotFound("no task a"), 100.0, 0.5)


def test_time_is_limited() -> None:
    both = watch("a", "b", timeout=5.0)
    both.accept(heard(("a", "SUCCEEDED", 4)))
    assert both.remaining(102.0) == pytest.approx(3.0)
    late = "1 of 2 watched tasks had not ended in the time given, the first of them b"
    with pytest.raises(DeadlineExceeded, match=late):
        both.remaining(105.0)
    with pytest.raises(DeadlineExceeded, match=late):
        both.delay_after(DeadlineExceeded("Deadline Exceeded"), 105.0, 0.5)
    with pytest.raises(Unavailable):
        both.delay_after(Unavailable("gone"), 104.99, 0.5)


def test_one_id_is_one_id() -> None:
    assert list(Watch("abc", until_terminal=True, timeout=None).request().task_ids) == ["abc"]


def test_nothing_to_watch() -> None:
    with pytest.raises(ValueError, match="at least one"):
        watch()
    with pytest.raises(ValueError, match="above 0"):
        watch("a", timeout=0)
