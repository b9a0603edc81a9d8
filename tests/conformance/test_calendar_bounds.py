"""What narrows a calendar down: exclusions, start and end, limited runs; and what shifts it: jitter."""

from __future__ import annotations

import time
from collections import Counter
from random import Random

import pytest

from mainspring_server.domain.calendar import DEFAULT_JITTER_MS, CalendarSpec, parse, preview
from mainspring_server.domain.calendar.calendar import LONGEST_JITTER_MS, MOST_EXCLUSIONS
from mainspring_server.domain.calendar.every import MOST_EXCLUDED
from mainspring_server.domain.errors import InvalidArgument

from ..unit.domain.calendars import DAY, HOUR, at, calendar, days, fires

NEW_YEAR = "2025-12-31T23:59:59"

# --- Exclusions -------------------------------------------------------------------------------


def test_dates_are_left_out_in_the_schedule_s_zone() -> None:
    found = fires(
        "0 23 * * *",
        "2026-12-24T00:00:00-08:00",
        2,
        "America/Los_Angeles",
        exclusions=("2026-12-25",),
    )
    assert found == ["2026-12-24T23:00:00-08:00", "2026-12-26T23:00:00-08:00"]


def test_expressions_are_left_out() -> None:
    found = fires("0 * * * *", NEW_YEAR, 4, exclusions=("* 1-21 * * *", "0 0 2 1 *"))
    assert [time[:13] for time in found] == [
        "2026-01-01T00",
        "2026-01-01T22",
        "2026-01-01T23",
        "2026-01-02T22",
    ]


def test_an_exclusion_without_seconds_leaves_out_the_whole_minute() -> None:
    found = fires("*/30 * * * * *", NEW_YEAR, 2, exclusions=("0 * * * *",))
    assert found == ["2026-01-01T00:01:00+00:00", "2026-01-01T00:01:30+00:00"]
    found = fires("*/30 * * * * *", NEW_YEAR, 2, exclusions=("30 * * * * *",))
    assert found == ["2026-01-01T00:00:00+00:00", "2026-01-01T00:01:00+00:00"]


def test_an_excluded_time_of_a_gap_is_not_made_up_for() -> None:
    after = "2026-03-08T00:00:00-05:00"
    found = fires("30 2 * * *", after, 1, "America/New_York", exclusions=("2026-03-08",))
    assert found == ["2026-03-09T02:30:00-04:00"]
    found = fires("30 2 * * *", after, 1, "America/New_York", exclusions=("* 2 8 3 *",))
    assert found == ["2026-03-09T02:30:00-04:00"]


def test_the_order_of_exclusions_does_not_matter() -> None:
    dates = ("2026-01-02", "2026-01-03", "* * 5 * *")
    assert (
        calendar("0 0 * * *", exclusions=dates).instants
        is calendar("0 0 * * *", exclusions=dates[::-1]).instants
    )


@pytest.mark.parametrize(
    ("exclusion", "reason"),
    [
        ("2026-02-30", "CRON_INVALID"),
        ("2026-13-01", "CRON_INVALID"),
        ("25.12.2026", "CRON_INVALID"),
        ("* * * *", "CRON_INVALID"),
        ("@every 1h", "CRON_INVALID"),
        ("", "CRON_INVALID"),
        ("60 * * * *", "CRON_INVALID"),
    ],
)
def test_a_refused_exclusion_is_named(exclusion: str, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        calendar("0 0 * * *", exclusions=("2026-01-01", exclusion))
    assert (refused.value.reason, refused.value.field) == (reason, "exclusions[1]")


def test_exclusions_are_limited() -> None:
    most = tuple(f"0 {n % 24} {n // 24 + 1} * *" for n in range(MOST_EXCLUSIONS))
    assert calendar("0 0 * * *", exclusions=most).next_after(0) is not None
    with pytest.raises(InvalidArgument, match=f"at most {MOST_EXCLUSIONS} exclusions") as refused:
        calendar("0 0 * * *", exclusions=(*most, "2026-01-01"))
    assert refused.value.field == "exclusions"


@pytest.mark.parametrize(
    ("expression", "exclusions"),
    [
        ("0 0 * * *", ("* 0 * * *",)),
        ("*/5 * * * *", ("* 0-11 * * *", "* 12-23 * * *")),
        ("0 0 29 2 *", ("* * * 2 *",)),
        ("@every 1h", ("0 * * * *",)),
        ("@every 90s", ("* * * * *",)),
        ("@every 1d", ("* 0-7 * * *",)),
        ("@every 2s", ("*/2 * * * * *",)),
    ],
)
def test_exclusions_that_leave_nothing_are_refused(
    expression: str, exclusions: tuple[str, ...]
) -> None:
    started = time.perf_counter()
    with pytest.raises(InvalidArgument, match="its exclusions leave none of its times") as refused:
        calendar(expression, exclusions=exclusions)
    assert time.perf_counter() - started < 0.5
    assert refused.value.reason == "CRON_NEVER_FIRES"


@pytest.mark.parametrize("expression", ["*/7 */3 * * *", "0 30 1-5 */2 * *", "@every 25m"])
@pytest.mark.parametrize("zone", ["UTC", "America/Sao_Paulo", "Australia/Lord_Howe"])
def test_excluded_times_are_those_that_both_name(expression: str, zone: str) -> None:
    exclusions = ("*/2 3-9 * * *", "* * */5 * *", "2018-11-05", "30 */4 * * MON")
    start = at("2018-11-02T00:00:00")
    span = (start, start + 4 * DAY, 10_000)
    every = calendar(expression, zone, anchor_at=start).between(*span)
    outs = {
        instant
        for text in exclusions
        if " " in text
        for instant in calendar(f"* {text}", zone).between(*span[:2], 3_000_000)
    }
    local = calendar(expression, zone).local_time
    expected = [
        instant
        for instant in every
        if instant not in outs and not local(instant).startswith("2018-11-05")
    ]
    assert (
        calendar(expression, zone, anchor_at=start, exclusions=exclusions).between(*span)
        == expected
    )


# --- @every among exclusions ------------------------------------------------------------------


def test_every_comes_back_after_months_of_exclusion() -> None:
    # Hourly, on the hour, which is left out in eleven months: 8,016 times in a row.
    found = fires("@every 1h", "2026-01-01T00:00:00", 2, exclusions=("0 * * 1-11 *",))
    assert found == ["2026-12-01T00:00:00+00:00", "2026-12-01T01:00:00+00:00"]
    # And every two seconds, on even ones.
    found = fires("@every 2s", "2026-01-01T00:00:00", 1, exclusions=("*/2 * * * 1-11 *",))
    assert found == ["2026-12-01T00:00:00+00:00"]


@pytest.mark.parametrize("seed", range(8))
def test_every_finds_the_same_times_forwards_and_backwards(seed: int) -> None:
    random = Random(seed)
    interval = random.choice((1, 7, 60, 61, 1_800, 3_600, 5_000, 86_400, 90_000, 604_800))
    exclusions = tuple(
        random.sample(
            ("* 0-7 * * *", "*/2 * * * *", "* * * * SUN", "2026-03-10", "0-20 0 * * * *"), 3
        )
    )
    zone = random.choice(("UTC", "America/New_York", "Australia/Lord_Howe"))
    # On an odd minute, by day: every interval has ticks that are left.
    anchor = at("2026-03-07T09:01:00") + random.choice((0, 1, 999, 1_234))
    found = calendar(f"@every {interval}s", zone, anchor_at=anchor, exclusions=exclusions)
    end = anchor + 36 * HOUR
    allowed = set(
        calendar("* * * * * *", zone, exclusions=exclusions).between(anchor - 1_000, end, 10**6)
    )
    expected = [
        tick
        for tick in range(anchor, end + 1, interval * 1_000)
        if tick // 1_000 * 1_000 in allowed
    ]
    assert found.between(anchor - 1, end, 10**6) == expected
    backwards, place = [], end + 1
    while len(backwards) < len(expected):
        before = found.previous_before(place)
        assert before is not None
        backwards.append(before)
        place = before
    assert backwards == expected[::-1]
    assert found.previous_before(anchor) is None


def test_every_ends_where_exclusions_leave_nothing_for_eleven_years() -> None:
    # The bound of a search: this many days without a tick, then it gives up.
    found = calendar("@every 1d", exclusions=("* 0 * 1-11 *", "* 0 2-31 12 *"))
    assert found.next_after(0) == at("1970-12-01T00:00:00")
    assert MOST_EXCLUDED > 10 * 366
    with pytest.raises(InvalidArgument, match="leave none"):
        calendar("@every 1d", exclusions=("* 0 * * *",))


# --- Start, end and runs ----------------------------------------------------------------------


def test_start_is_inclusive_and_end_is_exclusive() -> None:
    found = calendar(
        "0 * * * *", start_at=at("2026-01-01T02:00:00"), end_at=at("2026-01-01T04:00:00")
    )
    times = [at("2026-01-01T02:00:00"), at("2026-01-01T03:00:00")]
    assert found.between(0, 1 << 50, 10) == times
    assert list(found.fires(0, 1 << 50)) == times
    assert found.next_after(times[-1]) is None
    assert found.previous_before(times[0]) is None
    assert found.previous_before(1 << 50) == times[-1]


def test_a_millisecond_decides_at_the_bounds() -> None:
    second = at("2026-01-01T02:00:00")
    assert calendar("0 2 * * *", start_at=second + 1).next_after(0) == second + DAY
    assert calendar("0 2 * * *", end_at=second + 1).previous_before(1 << 50) == second
    assert calendar("0 2 * * *", end_at=second).previous_before(1 << 50) == second - DAY
    found = calendar("0 2 * * *")
    assert found.next_after(second - 1) == second
    assert found.next_after(second) == second + DAY
    assert found.previous_before(second + 1) == second
    assert found.previous_before(second) == second - DAY


def test_between_is_open_below_closed_above_and_limited() -> None:
    found = calendar("0 * * * *")
    assert found.between(0, 3 * HOUR, 10) == [HOUR, 2 * HOUR, 3 * HOUR]
    assert found.between(0, 3 * HOUR, 2) == [HOUR, 2 * HOUR]
    assert found.between(3 * HOUR, 3 * HOUR, 10) == []
    assert list(found.fires(0, 3 * HOUR)) == [0, HOUR, 2 * HOUR]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"start_at": 5, "end_at": 5}, "end_time"),
        ({"start_at": 5, "end_at": 4}, "end_time"),
        ({"max_runs": 0}, "max_runs"),
        ({"jitter_ms": -1}, "jitter"),
        ({"jitter_ms": LONGEST_JITTER_MS + 1}, "jitter"),
    ],
)
def test_refused_bounds(options: dict[str, int], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        calendar("0 0 * * *", **options)
    assert (refused.value.reason, refused.value.field) == ("FIELD_INVALID", field)


def test_limited_runs() -> None:
    found = calendar("0 * * * *", max_runs=3)
    assert [found.runs_left(fired) for fired in (0, 2, 3, 4)] == [3, 1, 0, 0]
    assert calendar("0 * * * *").runs_left(1_000_000) is None
    assert len(preview(found, 0, 10)) == 3
    assert len(preview(found, 0, 10, fired=2)) == 1
    assert preview(found, 0, 10, fired=3) == []


def test_a_calendar_ends_with_the_years_it_knows() -> None:
    last = fires("0 0 1 1 *", "2198-06-01T00:00:00", 5)
    assert last == ["2199-01-01T00:00:00+00:00"]
    found = calendar("* * * * * *", "Pacific/Kiritimati")
    assert found.next_after(found.end_at) is None
    assert found.next_after(1 << 60) is None
    assert found.previous_before(1 << 60) == found.end_at - 1_000
    assert days("0 0 29 2 *", "2195-01-01T00:00:00", 5) == ["2196-02-29"]


def test_nothing_is_before_1970() -> None:
    found = calendar("0 0 * * *", "Asia/Tokyo")
    first = found.next_after(-(1 << 50))
    assert first == 15 * HOUR  # midnight in Tokyo
    assert found.previous_before(first) is None
    assert found.previous_before(-(1 << 50)) is None


# --- Jitter -----------------------------------------------------------------------------------

IDS = [n.to_bytes(16) for n in range(3_000)]


def test_clock_aligned_schedules_are_spread_over_half_a_minute() -> None:
    nominal = at("2026-01-01T10:00:00")
    shifts = [calendar("0 * * * *", schedule_id=one).jitter_ms(nominal) for one in IDS]
    assert all(0 <= shift <= DEFAULT_JITTER_MS for shift in shifts)
    seconds = Counter(shift // 1_000 for shift in shifts)
    # 100 a second on average.
    assert set(range(30)) <= set(seconds)
    assert max(seconds.values()) < 160


def test_jitter_is_the_same_each_time_it_is_asked_for_and_differs_from_tick_to_tick() -> None:
    found = calendar("0 * * * *", schedule_id=IDS[7])
    again = calendar("0 * * * *", schedule_id=IDS[7], end_at=at("2026-01-01T11:00:00"))
    nominal = at("2026-01-01T10:00:00")
    # Also where a bound makes it the last.
    assert found.jitter_ms(nominal) == again.jitter_ms(nominal)
    assert found.due_at(nominal) == nominal + found.jitter_ms(nominal)
    assert len({found.jitter_ms(nominal + n * HOUR) for n in range(50)}) > 45


@pytest.mark.parametrize(
    ("expression", "options"),
    [
        ("0 * * * *", {"exact": True}),
        ("0 * * * *", {"exact": True, "jitter_ms": 5_000}),
        ("0 * * * *", {"jitter_ms": 0}),
        ("*/10 * * * * *", {}),
        ("30 0 0 * * *", {}),
        ("@every 1h", {}),
    ],
)
def test_no_jitter(expression: str, options: dict[str, int]) -> None:
    found = calendar(expression, schedule_id=IDS[1], **options)
    assert all(found.due_at(nominal) == nominal for nominal in found.between(0, DAY, 100))


def test_jitter_never_reaches_the_next_tick() -> None:
    for one in IDS[:200]:
        for expression, bound in (("*/5 * * * * *", DAY), ("* * * * *", DAY), ("@every 1s", DAY)):
            found = calendar(expression, schedule_id=one, jitter_ms=bound)
            first, second = found.between(0, HOUR, 2)
            assert first <= found.due_at(first) < second


def test_schedules_of_the_same_expression_share_what_it_means() -> None:
    one = parse(CalendarSpec("0 * * * *", schedule_id=IDS[1]))
    other = parse(CalendarSpec(" 0  * * * * ", schedule_id=IDS[2]))
    assert one.instants is other.instants
