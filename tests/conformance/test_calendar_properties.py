"""What holds for every accepted expression, in every zone, under every policy, from any instant."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring_server.domain.calendar import Calendar, CalendarSpec, DstGap, DstOverlap, parse
from mainspring_server.domain.calendar.wall import WallTimes
from mainspring_server.domain.errors import InvalidArgument

from ..unit.domain.calendars import DAY, at

ZONES = (
    "UTC",
    "America/New_York",
    "America/Sao_Paulo",
    "Europe/Dublin",
    "Europe/Helsinki",
    "Africa/Casablanca",
    "Africa/Monrovia",  # an offset of seconds until 1972
    "Australia/Lord_Howe",
    "Pacific/Apia",
)
# Around the clock changes of those zones, and anywhere.
INSTANTS = st.one_of(
    st.integers(at("1970-01-01T00:00:00"), at("2150-01-01T00:00:00")),
    *(
        st.integers(at(change) - DAY, at(change) + DAY)
        for change in (
            "1972-01-07T00:44:30",
            "2011-12-30T10:00:00",
            "2017-10-29T01:00:00",
            "2018-11-04T03:00:00",
            "2026-03-08T07:00:00",
            "2026-03-22T02:00:00",
            "2026-04-04T15:00:00",
        )
    ),
)


def field(low: int, high: int, *others: str) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    pair = st.tuples(value, value).map(sorted)
    step = st.integers(1, high)
    term = st.one_of(
        st.just("*"),
        value.map(str),
        step.map("*/{}".format),
        pair.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(pair, step).map(lambda found: f"{found[0][0]}-{found[0][1]}/{found[1]}"),
        st.sampled_from(("H", f"H({low}-{low + 3})", "H/3", *others)),
    )
    return st.lists(term, min_size=1, max_size=3).map(",".join)


EXPRESSIONS = st.one_of(
    st.tuples(
        st.one_of(st.just("0"), field(0, 59)),
        field(0, 59),
        field(0, 23),
        field(1, 31, "L", "LW", "L-3", "15W", "31W"),
        field(1, 12, "FEB", "JAN-MAR"),
        field(0, 7, "5L", "MON#1", "7#5", "MON-FRI"),
    ).map(" ".join),
    st.integers(1, 10_000_000).map("@every {}s".format),
)


@st.composite
def calendars(draw: st.DrawFn) -> Calendar | None:
    spec = CalendarSpec(
        draw(EXPRESSIONS),
        draw(st.sampled_from(ZONES)),
        schedule_id=draw(st.binary(min_size=16, max_size=16)),
        dst_gap=draw(st.sampled_from(DstGap)),
        dst_overlap=draw(st.sampled_from(DstOverlap)),
        exclusions=tuple(
            draw(
                st.lists(
                    st.sampled_from(("* 0-7 * * *", "* * * * SUN", "2026-03-08", "*/2 * 1-7 * *")),
                    max_size=2,
                )
            )
        ),
        anchor_at=draw(st.integers(0, DAY)),
    )
    found, reason = read(spec)
    # The only thing that can be wrong with what is drawn.
    assert reason in ("", "CRON_NEVER_FIRES")
    return found


def read(spec: CalendarSpec) -> tuple[Calendar | None, str]:
    """The calendar, or the reason why it is refused."""
    try:
        return parse(spec), ""
    except InvalidArgument as refused:
        return None, refused.reason


@settings(max_examples=150, deadline=None)
@given(calendar=calendars(), instant=INSTANTS)
def test_c8_next_is_strictly_later_and_previous_strictly_earlier(
    calendar: Calendar | None, instant: int
) -> None:
    if calendar is None:
        return
    following = calendar.next_after(instant)
    if following is None:
        return
    assert following > instant
    # Nothing lies between: it is the first after the instant, and after its own predecessor.
    assert calendar.next_after(following - 1) == following
    before = calendar.previous_before(following)
    assert before is None or before <= instant
    if before is not None:
        assert calendar.next_after(before) == following


@settings(max_examples=60, deadline=None)
@given(calendar=calendars(), instant=INSTANTS)
def test_a_list_of_times_rises_and_is_the_same_backwards(
    calendar: Calendar | None, instant: int
) -> None:
    if calendar is None:
        return
    times = calendar.between(instant, calendar.end_at, 20)
    assert all(earlier < later for earlier, later in pairwise(times))
    backwards = [calendar.previous_before(later) for later in times[1:]]
    assert backwards == times[:-1]
    assert all(0 <= calendar.due_at(a) - a < b - a for a, b in pairwise(times))


@settings(max_examples=60, deadline=None)
@given(calendar=calendars(), instant=INSTANTS)
def test_c8_a_search_takes_a_bounded_number_of_steps(
    calendar: Calendar | None, instant: int
) -> None:
    if calendar is None:
        return
    counted = Counting()
    with counted:
        calendar.next_after(instant)
    # A step for each clock change in the years that calendars know, and one for each year: in fact
    # one or two. Casablanca's Ramadan has the most changes.
    assert counted.steps < 1_500


class Counting:
    """Counts how often a calendar looks at the wall clock."""

    steps = 0

    def __enter__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        for name in ("next", "previous", "day_mask"):
            self._patch.setattr(WallTimes, name, self._counted(getattr(WallTimes, name)))

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _counted(self, method: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            self.steps += 1
            return method(*arguments)

        return counted


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="0123456789*/,-#LWH?() @everyMONJAN", max_size=40))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    calendar, reason = read(CalendarSpec(text))
    if calendar is None:
        assert reason in ("CRON_INVALID", "CRON_NEVER_FIRES")
        return
    first = calendar.next_after(0)
    assert first is not None
    assert first > 0


def test_next_is_cheap_even_where_it_is_far() -> None:
    # From one leap day to the next over 2100, through every clock change of eight years.
    calendar = parse(CalendarSpec("0 9 29 2 *", "Africa/Casablanca"))
    counted = Counting()
    with counted:
        found = calendar.next_after(at("2096-03-01T00:00:00"))
    assert found is not None
    assert calendar.local_time(found).startswith("2104-02-29T09:00:00")
    assert counted.steps < 50
