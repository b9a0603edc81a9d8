"""The hierarchy: slots, cascade, order, and a walk of random operations beside a plain model."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring_server.store.port import DueEntry
from mainspring_server.wheel.hierarchy import (
    WIDTH_MS,
    Hierarchy,
    Level,
    Slot,
    Span,
    entered,
    entry_of,
    homes,
    score_of,
    slot_of,
)

SECOND, MINUTE, HOUR, DAY = WIDTH_MS
YEARS = 10 * 366 * DAY
START = 1_700_000_000_000
BOUNDARY = START - START % DAY + DAY  # a midnight: the boundary of every level

moments = st.integers(BOUNDARY - 3 * DAY, BOUNDARY + 3 * DAY)
# Delays of every size, most of them close to where a level ends.
delays = st.one_of(
    st.integers(-5 * SECOND, 5 * SECOND),
    *(
        st.integers(span - 3, span + 3)
        for span in (SECOND, MINUTE, 60 * MINUTE, HOUR, DAY, 400 * DAY)
    ),
    st.integers(0, YEARS),
)
priorities = st.integers(0, 9)


def entry(due: int, name: int = 0, priority: int = 5) -> DueEntry:
    return DueEntry(due, priority, name.to_bytes(16, "big"))


def order(entries: list[DueEntry]) -> list[tuple[int, int]]:
    return [(e.due_at, e.priority) for e in entries]


@given(now=moments, delay=delays)
def test_a_slot_contains_its_due_time(now: int, delay: int) -> None:
    slot = slot_of(now + delay, now)
    assert slot.start <= now + delay < slot.end
    assert slot.end - slot.start == WIDTH_MS[slot.level]
    assert slot in homes(now + delay)


@given(now=moments, delay=delays)
def test_only_the_seconds_hold_what_the_pointer_reached(now: int, delay: int) -> None:
    slot = slot_of(now + delay, now)
    assert slot.level is Level.SECONDS or slot.start > now


@given(now=moments, delay=delays)
def test_entering_a_slot_moves_its_entries_down(now: int, delay: int) -> None:
    slot = slot_of(now + delay, now)
    if slot.level is not Level.SECONDS:
        assert slot_of(now + delay, slot.start).level < slot.level


@given(now=moments, delay=delays, priority=priorities)
def test_a_score_is_exact_as_a_double_and_decodes(now: int, delay: int, priority: int) -> None:
    due = now + delay
    for slot in homes(due):
        score = score_of(slot, due, priority)
        assert score >= 0
        assert int(float(score)) == score
        assert entry_of(slot, score, b"t" * 16) == DueEntry(due, priority, b"t" * 16)


def test_scores_order_by_millisecond_then_priority() -> None:
    slot = Slot(Level.SECONDS, START // SECOND)
    scores = [score_of(slot, slot.start + ms, p) for ms in (0, 1, 999) for p in (0, 5, 9)]
    assert scores == sorted(set(scores))


@pytest.mark.parametrize(
    ("delay", "level"),
    [
        (-DAY, Level.SECONDS),
        (0, Level.SECONDS),
        (59 * SECOND + 999, Level.SECONDS),
        (MINUTE, Level.MINUTES),
        (HOUR - 1, Level.MINUTES),
        (HOUR, Level.HOURS),
        (DAY - 1, Level.HOURS),
        (DAY, Level.DAYS),
        (400 * DAY, Level.DAYS),
        (YEARS, Level.DAYS),
    ],
)
def test_levels_as_seen_from_midnight(delay: int, level: Level) -> None:
    assert slot_of(BOUNDARY + delay, BOUNDARY).level is level


def test_entered_at_each_boundary() -> None:
    day, hour = BOUNDARY // DAY, BOUNDARY // HOUR
    minute, second = BOUNDARY // MINUTE, BOUNDARY // SECOND
    assert entered(BOUNDARY - 1, BOUNDARY) == [
        Span(Level.DAYS, day, day),
        Span(Level.HOURS, hour, hour),
        Span(Level.MINUTES, minute, minute),
        Span(Level.SECONDS, second, second),
    ]
    assert entered(BOUNDARY, BOUNDARY + 999) == []
    assert entered(BOUNDARY, BOUNDARY - DAY) == []
    assert entered(BOUNDARY, BOUNDARY + SECOND) == [Span(Level.SECONDS, second + 1, second + 1)]
    assert entered(BOUNDARY, BOUNDARY + 3 * DAY)[0] == Span(Level.DAYS, day + 1, day + 3)
    assert entered(BOUNDARY, BOUNDARY + 3 * DAY)[-1].last == second + 3 * 86_400


@given(before=moments, jump=st.integers(0, 3 * DAY), delay=delays)
def test_what_a_jump_reaches_lies_in_a_slot_that_it_entered(
    before: int, jump: int, delay: int
) -> None:
    now, due = before + jump, before + delay
    slot = slot_of(due, before)
    if slot.start > before and due <= now:
        spans = {span.level: span for span in entered(before, now)}
        assert spans[slot.level].first <= slot.number <= spans[slot.level].last


@pytest.mark.parametrize(
    "delay", [0, 1, 999, SECOND, MINUTE - 1, MINUTE, HOUR, DAY, 400 * DAY, YEARS]
)
@pytest.mark.parametrize("now", [BOUNDARY - 1, BOUNDARY, BOUNDARY + 1, START])
def test_fires_in_its_millisecond(now: int, delay: int) -> None:
    wheel = Hierarchy(now)
    wheel.add(entry(now + delay))
    assert wheel.next_due() == now + delay
    assert wheel.peek(now + delay - 1, 10) == []
    assert wheel.peek(now + delay, 10) == [entry(now + delay)]
    assert wheel.next_due() == now + delay


@pytest.mark.parametrize("step", [1, 250, SECOND, MINUTE, HOUR, 3 * DAY])
def test_one_second_at_a_time_or_in_leaps_nothing_is_lost(step: int) -> None:
    start = BOUNDARY - 5 * step // 2
    wheel = Hierarchy(start)
    entries = [entry(start + i * step // 3, i) for i in range(18)]
    for item in reversed(entries):
        wheel.add(item)
    fired: list[DueEntry] = []
    for now in range(start, start + 7 * step, step):
        due = wheel.peek(now, 100)
        assert due == [e for e in entries if e.due_at <= now and e not in fired]
        wheel.remove(due)
        fired += due
    assert fired == entries
    assert len(wheel) == 0
    assert wheel.next_due() is None


def test_a_sleep_of_three_days_wakes_to_everything_in_order() -> None:
    wheel = Hierarchy(START)
    entries = [entry(START + (i * 7_919_993) % (3 * DAY), i, i % 10) for i in range(2_000)]
    for item in entries:
        wheel.add(item)
    due = wheel.peek(START + 3 * DAY, 5_000)
    assert sorted(due, key=lambda e: e.task_id) == entries
    assert order(due) == sorted(order(due))


def test_the_past_is_due_at_once() -> None:
    wheel = Hierarchy(START)
    wheel.add(entry(START - 400 * DAY))
    assert wheel.next_due() == START - 400 * DAY
    assert wheel.peek(START, 10) == [entry(START - 400 * DAY)]


def test_a_second_due_time_replaces_the_first() -> None:
    wheel = Hierarchy(START)
    for due in (START + DAY, START + MINUTE, START + HOUR):
        wheel.add(entry(due))
    assert len(wheel) == 1
    assert wheel.peek(START + HOUR - 1, 10) == []
    assert wheel.peek(START + DAY, 10) == [entry(START + HOUR)]


def test_a_second_priority_replaces_the_first() -> None:
    wheel = Hierarchy(START)
    wheel.add(entry(START, priority=9))
    wheel.add(entry(START, priority=1))
    assert wheel.peek(START, 10) == [entry(START, priority=1)]


def test_remove_needs_the_due_time_and_priority_that_stand() -> None:
    wheel = Hierarchy(START)
    wheel.add(entry(START + HOUR))
    wheel.remove([entry(START + HOUR + 1), entry(START + HOUR, priority=4), entry(START, 77)])
    assert wheel.get(entry(0).task_id) == entry(START + HOUR)
    wheel.remove([entry(START + HOUR)])
    assert wheel.get(entry(0).task_id) is None
    assert wheel.next_due() is None


def test_removed_and_added_again_is_there_once() -> None:
    wheel = Hierarchy(START)
    again = entry(START)
    for _ in range(3):
        wheel.add(again)
        wheel.remove([again])
    wheel.add(again)
    assert wheel.peek(START, 10) == [again]


def test_the_limit_takes_the_soonest_and_keeps_the_rest() -> None:
    wheel = Hierarchy(START)
    entries = [entry(START + i % 3, i, (i * 7) % 10) for i in range(30)]
    for item in entries:
        wheel.add(item)
    everything = sorted(order(entries))
    assert order(wheel.peek(START + 9, 10)) == everything[:10]
    first = wheel.peek(START + 9, 10)
    assert order(first) == everything[:10]
    wheel.remove(first)
    assert order(wheel.peek(START + 9, 100)) == everything[10:]


def test_a_late_arrival_goes_before_what_was_peeked() -> None:
    wheel = Hierarchy(START)
    wheel.add(entry(START + 5, 1))
    assert wheel.peek(START + 10, 10) == [entry(START + 5, 1)]
    wheel.add(entry(START + 2, 2))
    assert wheel.next_due() == START + 2
    assert wheel.peek(START + 10, 10) == [entry(START + 2, 2), entry(START + 5, 1)]


def test_a_clock_that_goes_back_fires_nothing_early() -> None:
    wheel = Hierarchy(START)
    wheel.add(entry(START + MINUTE, 1))
    wheel.advance(START + DAY)
    assert wheel.peek(START, 10) == []
    wheel.add(entry(START + 10, 2))
    assert wheel.peek(START + 9, 10) == []
    assert wheel.peek(START + 10, 10) == [entry(START + 10, 2)]


def test_memory_stays_with_what_lives() -> None:
    wheel = Hierarchy(START)
    for i in range(5_000):
        for delay in (0, MINUTE, HOUR, DAY):
            item = entry(START + delay, i)
            wheel.add(item)
            wheel.remove([item])
    assert len(wheel) == 0
    assert len(wheel._heap) < 2_000
    assert wheel.next_due() is None


Operation = tuple[str, int, int, int]

operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 7), delays, priorities),
        st.tuples(st.just("remove"), st.integers(0, 7), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("move"), st.just(0), st.integers(0, 2 * SECOND), st.just(0)),
        st.tuples(st.just("move"), st.just(0), st.integers(0, 3 * DAY), st.just(0)),
        st.tuples(st.just("peek"), st.integers(1, 10), st.booleans().map(int), st.just(0)),
    ),
    max_size=60,
)


class Walk:
    """The hierarchy beside a dictionary that does the same."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.wheel = Hierarchy(now)
        self.model: dict[bytes, DueEntry] = {}

    def add(self, name: int, delay: int, priority: int) -> None:
        item = entry(self.now + delay, name, priority)
        self.wheel.add(item)
        self.model[item.task_id] = item

    def remove(self, name: int, other: int, _: int) -> None:
        item = self.model.get(entry(0, name).task_id)
        if item is not None and other:
            self.wheel.remove([entry(item.due_at + 1, name, item.priority)])
        elif item is not None:
            self.wheel.remove([item])
            del self.model[item.task_id]

    def move(self, _: int, ms: int, __: int) -> None:
        self.now += ms

    def peek(self, limit: int, fire: int, _: int) -> None:
        found = self.wheel.peek(self.now, limit)
        due = [e for e in self.model.values() if e.due_at <= self.now]
        assert len(found) == len({e.task_id for e in found}) == min(limit, len(due))
        assert all(self.model[e.task_id] == e for e in found)
        assert order(found) == sorted(order(due))[:limit]
        if fire:
            self.wheel.remove(found)
            for item in found:
                del self.model[item.task_id]

    def check(self) -> None:
        assert {e.task_id: e for e in self.wheel} == self.model
        assert len(self.wheel) == len(self.model)
        soonest = min((e.due_at for e in self.model.values()), default=None)
        if soonest is None:
            assert self.wheel.next_due() is None
        else:
            due = self.wheel.next_due()
            assert due is not None
            assert due <= soonest


@given(start=moments, walk=operations)
def test_a_random_walk_agrees_with_the_model(start: int, walk: list[Operation]) -> None:
    state = Walk(start)
    for name, *values in walk:
        step: Callable[[int, int, int], None] = getattr(state, name)
        step(*values)
        state.check()
    state.move(0, YEARS + 6 * DAY, 0)
    state.peek(100, 1, 0)
    assert len(state.wheel) == 0


@given(start=moments, steps=st.lists(st.tuples(delays, priorities), max_size=40))
def test_waking_at_next_due_fires_each_in_its_millisecond(
    start: int, steps: list[tuple[int, int]]
) -> None:
    wheel = Hierarchy(start)
    for i, (delay, priority) in enumerate(steps):
        wheel.add(entry(start + delay, i, priority))
    fired = 0
    while (due := wheel.next_due()) is not None:
        now = max(due, start)
        found = wheel.peek(now, 100)
        assert found
        assert all(e.due_at == due for e in found if due > start)
        wheel.remove(found)
        fired += len(found)
    assert fired == len(steps)
