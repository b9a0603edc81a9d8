"""What people may write, what it means, and what is refused with which words."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest

from mainspring_server.domain.errors import InvalidArgument

from .calendars import calendar, days, fires

NEW_YEAR = "2025-12-31T23:59:59"  # 1 January 2026 is a Thursday


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("@hourly", ["2026-01-01T00:00", "2026-01-01T01:00"]),
        ("@daily", ["2026-01-01T00:00", "2026-01-02T00:00"]),
        ("@midnight", ["2026-01-01T00:00", "2026-01-02T00:00"]),
        ("@weekly", ["2026-01-04T00:00", "2026-01-11T00:00"]),
        ("@monthly", ["2026-01-01T00:00", "2026-02-01T00:00"]),
        ("@yearly", ["2026-01-01T00:00", "2027-01-01T00:00"]),
        ("@Annually", ["2026-01-01T00:00", "2027-01-01T00:00"]),
        ("  5   4\t* * *  ", ["2026-01-01T04:05", "2026-01-02T04:05"]),
        ("0 9 ? * MON-fri", ["2026-01-01T09:00", "2026-01-02T09:00"]),
        ("0 9 1 feb,APR *", ["2026-02-01T09:00", "2026-04-01T09:00"]),
        ("0 9 1 JUN-AUG *", ["2026-06-01T09:00", "2026-07-01T09:00"]),
        ("10-30/10 0 1 1 *", ["2026-01-01T00:10", "2026-01-01T00:20"]),
        ("50/5 0 1 1 *", ["2026-01-01T00:50", "2026-01-01T00:55"]),
        ("*/45 * * * *", ["2026-01-01T00:00", "2026-01-01T00:45"]),
        ("7,*/30 * * * *", ["2026-01-01T00:00", "2026-01-01T00:07"]),
        ("0 22-23,1 * * *", ["2026-01-01T01:00", "2026-01-01T22:00"]),
        ("0 0 * * */1000000", ["2026-01-04T00:00", "2026-01-11T00:00"]),
    ],
)
def test_five_fields(expression: str, expected: list[str]) -> None:
    assert fires(expression, NEW_YEAR, 2) == [f"{time}:00+00:00" for time in expected]


def test_six_fields_begin_with_seconds() -> None:
    assert fires("*/20 59 23 31 12 *", NEW_YEAR, 2) == [
        "2026-12-31T23:59:00+00:00",
        "2026-12-31T23:59:20+00:00",
    ]
    assert fires("30 0 0 1 1 *", NEW_YEAR, 2) == [
        "2026-01-01T00:00:30+00:00",
        "2027-01-01T00:00:30+00:00",
    ]


@pytest.mark.parametrize(
    ("month_day", "week_day", "expected"),
    [
        # Both restricted: either will do.
        ("13", "FRI", ["2026-01-02", "2026-01-09", "2026-01-13", "2026-01-16"]),
        ("1,15", "1#1", ["2026-01-01", "2026-01-05", "2026-01-15", "2026-02-01"]),
        # One begins with `*`: both must hold.
        ("*", "FRI", ["2026-01-02", "2026-01-09", "2026-01-16", "2026-01-23"]),
        ("13", "*", ["2026-01-13", "2026-02-13", "2026-03-13", "2026-04-13"]),
        ("*/2", "FRI", ["2026-01-09", "2026-01-23", "2026-02-13", "2026-02-27"]),
        ("13", "*/5", ["2026-02-13", "2026-03-13", "2026-09-13", "2026-11-13"]),
        # `?` is `*`.
        ("13", "?", ["2026-01-13", "2026-02-13", "2026-03-13", "2026-04-13"]),
        ("?", "FRI", ["2026-01-02", "2026-01-09", "2026-01-16", "2026-01-23"]),
        # A list counts as its first character does.
        ("*,13", "FRI", ["2026-01-02", "2026-01-09", "2026-01-16", "2026-01-23"]),
        ("1-31", "FRI", ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]),
    ],
)
def test_day_of_month_and_day_of_week(month_day: str, week_day: str, expected: list[str]) -> None:
    assert days(f"0 0 {month_day} * {week_day}", NEW_YEAR, 4) == expected


@pytest.mark.parametrize(
    ("month_day", "month", "expected"),
    [
        ("L", "*", ["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("L-1", "*", ["2026-01-30", "2026-02-27", "2026-03-30"]),
        ("L-30", "*", ["2026-01-01", "2026-03-01", "2026-05-01"]),
        ("L-28", "2", ["2028-02-01", "2032-02-01"]),
        ("LW", "*", ["2026-01-30", "2026-02-27", "2026-03-31"]),
        ("l,1", "*", ["2026-01-01", "2026-01-31", "2026-02-01"]),
        # 31 January 2026 is a Saturday, 1 and 15 February are Sundays.
        ("31W", "*", ["2026-01-30", "2026-03-31", "2026-05-29"]),
        ("1W", "*", ["2026-01-01", "2026-02-02", "2026-03-02"]),
        ("15W", "2", ["2026-02-16", "2027-02-15"]),
        # 1 August 2026 is a Saturday, 31 May 2026 a Sunday: the month is not left.
        ("1W", "8", ["2026-08-03", "2027-08-02"]),
        ("31W", "5", ["2026-05-29", "2027-05-31"]),
        ("29W", "2", ["2028-02-29", "2032-02-27"]),
        ("1W,15,L-2", "3", ["2026-03-02", "2026-03-15", "2026-03-29"]),
    ],
)
def test_days_counted_from_elsewhere(month_day: str, month: str, expected: list[str]) -> None:
    assert days(f"0 0 {month_day} {month} *", NEW_YEAR, len(expected)) == expected


@pytest.mark.parametrize(
    ("week_day", "expected"),
    [
        ("5L", ["2026-01-30", "2026-02-27", "2026-03-27"]),
        ("FRIL", ["2026-01-30", "2026-02-27", "2026-03-27"]),
        ("0L", ["2026-01-25", "2026-02-22", "2026-03-29"]),
        ("7L", ["2026-01-25", "2026-02-22", "2026-03-29"]),
        ("1#1", ["2026-01-05", "2026-02-02", "2026-03-02"]),
        ("MON#2", ["2026-01-12", "2026-02-09", "2026-03-09"]),
        ("7#1", ["2026-01-04", "2026-02-01", "2026-03-01"]),
        ("5#5", ["2026-01-30", "2026-05-29", "2026-07-31"]),
        ("1#1,3L", ["2026-01-05", "2026-01-28", "2026-02-02"]),
        ("WED,1#1", ["2026-01-05", "2026-01-07", "2026-01-14"]),
    ],
)
def test_weekdays_of_a_month(week_day: str, expected: list[str]) -> None:
    assert days(f"0 0 * * {week_day}", NEW_YEAR, 3) == expected


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "is empty; expected five fields"),
        ("   ", "is empty; expected five fields"),
        ("* * * *", "has 4 fields; expected 5, or 6 with leading seconds"),
        ("* * * * * * *", "has 7 fields"),
        ("60 * * * *", "minute '60': 60 is out of range; expected 0 to 59"),
        ("* 24 * * *", "hour '24'"),
        ("* * 32 * *", "day of month '32'"),
        ("* * * 13 *", "month '13'"),
        ("* * * 0 *", "expected 1 to 12 or JAN to DEC"),
        ("60 * * * * *", "second '60'"),
        ("5,, * * * *", "a value is missing"),
        ("-1 * * * *", "a value is missing"),
        ("1-2-3 * * * *", "'2-3' is no value"),
        ("*/5/5 * * * *", "no step"),
        ("*/-1 * * * *", "no step"),
        ("*/ * * * *", "no step"),
        ("30-10 * * * *", "the range 30-10 runs backwards; write it as two ranges"),
        ("* * * * FRI-SUN", "write Sunday as 7 here: FRI-7"),
        ("* * * ? *", "'?' is no value; expected 1 to 12 or JAN to DEC"),
        ("* * * MONDAY *", "'MONDAY' is no value"),
        ("* * * MON *", "'MON' is no value"),
        ("1.5 * * * *", "'1.5' is no value"),
        ("٣ * * * *", "has characters outside ASCII"),
        ("* * L-31 * *", "L-31 is before every month's first day"),
        ("* * L5 * *", "'L5' is not read; expected L, LW or L-1 to L-30"),
        ("* * W * *", "W wants a day before it, as in 15W"),
        ("* * * * L", "L wants a weekday before it, as in 5L"),
        ("* * * * 1#6", "#6 is no week of a month"),
        ("* * * * 1#0", "#0 is no week of a month"),
        ("* * * * 1#", "# is no week of a month"),
        ("* * * * 8L", "8 is out of range"),
        ("H(5-70) * * * *", "70 is out of range"),
        ("H(9-5) * * * *", "the range 9-5 runs backwards"),
        ("H/0 * * * *", "/0 is no step"),
        ("H-5 * * * *", "'H-5' is not read; expected H, H(low-high), H/step or both"),
        ("@fortnightly", "is not read; expected @annually, @daily, @hourly"),
        ("@daily UTC", "is not read"),
        ("@reboot", "@reboot names no time"),
        ("@every", "has no duration after @every"),
        ("@every 5", "has no duration after @every, but '5'"),
        ("@every -5s", "has no duration"),
        ("@every 500ms", "expected whole seconds"),
        ("@every 1500ms", "expected whole seconds"),
        ("@every 0s", "expected 1s to 3653d"),
        ("@every 3654d", "expected 1s to 3653d"),
        ("TZ=UTC 0 0 * * *", "names a time zone; set time_zone instead"),
        ("CRON_TZ=Europe/Berlin 0 0 * * *", "names a time zone; set time_zone instead"),
    ],
)
def test_refused_with_what_is_wrong(expression: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        calendar(expression)
    assert words in refused.value.message
    assert (refused.value.reason, refused.value.field) == ("CRON_INVALID", "expression")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Europe/Berln", "did you mean Europe/Berlin"),
        ("berlin", "did you mean Europe/Berlin"),
        ("+02:00", "expected a name like Europe/Berlin"),
        ("../../etc/passwd", "is no time zone"),
        ("Europe/Berlin\0", "is no time zone"),
        ("x" * 65, "has at most 64 characters, this has 65"),
    ],
)
def test_an_unknown_zone_is_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        calendar("0 0 * * *", name)
    assert words in refused.value.message
    assert (refused.value.reason, refused.value.field) == ("TIME_ZONE_UNKNOWN", "time_zone")


# --- H ----------------------------------------------------------------------------------------

IDS = [UUID(int=(1 << 100) + n).bytes for n in range(2_000)]


def minutes(expression: str, schedule_id: bytes) -> list[int]:
    return [int(time[14:16]) for time in fires(expression, NEW_YEAR, 3, schedule_id=schedule_id)]


def test_h_stays_for_a_schedule_and_differs_between_schedules() -> None:
    drawn = [minutes("H * * * *", one)[0] for one in IDS]
    assert drawn == [minutes("H * * * *", one)[0] for one in IDS]
    spread = Counter(drawn)
    # 33 each on average, also for ids that follow one another.
    assert set(spread) == set(range(60))
    assert max(spread.values()) < 70


def test_h_of_one_field_says_nothing_about_another() -> None:
    times = {fires("H H * * *", NEW_YEAR, 1, schedule_id=one)[0] for one in IDS}
    assert len(times) > 800


def test_h_keeps_to_its_range() -> None:
    assert {minutes("H(10-14) * * * *", one)[0] for one in IDS} == set(range(10, 15))


def test_h_with_a_step_begins_somewhere_and_goes_on() -> None:
    for one in IDS[:100]:
        first, second, third = minutes("H/20 * * * *", one)
        assert 0 <= first < 20
        assert (second, third) == (first + 20, first + 40)
        first, second, third = minutes("H(30-59)/10 * * * *", one)
        assert 30 <= first < 40
        assert (second, third) == (first + 10, first + 20)


def test_h_runs_in_every_month_and_week() -> None:
    for one in IDS[:100]:
        found = fires("0 0 H * *", NEW_YEAR, 12, schedule_id=one)
        assert [time[5:7] for time in found] == [f"{month:02}" for month in range(1, 13)]
        assert len(fires("0 0 * H *", NEW_YEAR, 2, schedule_id=one)) == 2
    weekdays = {days_of_week(one) for one in IDS[:300]}
    assert weekdays == set(range(7))


def days_of_week(schedule_id: bytes) -> int:
    found = calendar("0 0 * * H", schedule_id=schedule_id)
    first = found.next_after(0)
    assert first is not None
    return first // 86_400_000 % 7


def test_h_counts_as_restricted_even_with_a_step() -> None:
    # A day of month that is drawn, or a Monday.
    found = fires("0 0 H * MON", NEW_YEAR, 6, schedule_id=IDS[0])
    assert len([time for time in found if time[:10] in ("2026-01-05", "2026-01-12")]) == 2


# --- @every -----------------------------------------------------------------------------------


def test_every_counts_from_its_anchor() -> None:
    found = fires("@every 1h30m", NEW_YEAR, 3, anchor_at=1_000)
    assert found == [
        "2026-01-01T00:00:01+00:00",
        "2026-01-01T01:30:01+00:00",
        "2026-01-01T03:00:01+00:00",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("90s", 90),
        ("1h30m", 5_400),
        ("1w", 604_800),
        ("1 D 1 H", 90_000),
        ("500ms500ms", 1),
    ],
)
def test_every_reads_durations(text: str, seconds: int) -> None:
    found = calendar(f"@every {text}", anchor_at=7)
    assert found.between(0, 1 << 50, 3) == [7, 7 + seconds * 1_000, 7 + 2 * seconds * 1_000]


def test_every_runs_through_real_time() -> None:
    # The clock goes from 02:00 to 03:00 between the first two.
    assert fires("@every 2h", "2026-03-29T00:59:59+01:00", 3, "Europe/Berlin") == [
        "2026-03-29T01:00:00+01:00",
        "2026-03-29T04:00:00+02:00",
        "2026-03-29T06:00:00+02:00",
    ]
