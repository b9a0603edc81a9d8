"""Public bugs of other schedulers, each by its number: what the calendar must answer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from mainspring_server.domain.calendar import CalendarSpec, parse
from mainspring_server.domain.errors import InvalidArgument

from .calendars import HOUR, at, calendar, days, fires


def test_c1_no_extra_run_after_summer_time_ends() -> None:
    assert fires("0 8 * * 1", "2017-10-28T00:00:00+02:00", 2, "Europe/Amsterdam") == [
        "2017-10-30T08:00:00+01:00",
        "2017-11-06T08:00:00+01:00",
    ]


def test_c2_the_hour_of_the_day_stays_after_summer_time_ends() -> None:
    assert fires("0 20 * * *", "2022-10-30T00:00:00+02:00", 3, "Europe/Paris") == [
        "2022-10-30T20:00:00+01:00",
        "2022-10-31T20:00:00+01:00",
        "2022-11-01T20:00:00+01:00",
    ]


def test_c4_no_month_is_skipped_where_midnight_is() -> None:
    assert fires("0 9 10 * *", "2018-10-17T00:00:00-03:00", 2, "America/Sao_Paulo") == [
        "2018-11-10T09:00:00-02:00",
        "2018-12-10T09:00:00-02:00",
    ]


def test_c4_midnight_that_does_not_exist_runs_after_the_gap() -> None:
    assert fires("0 0 * * *", "2018-11-03T00:00:00-03:00", 2, "America/Sao_Paulo") == [
        "2018-11-04T01:00:00-02:00",
        "2018-11-05T00:00:00-02:00",
    ]


def test_c6_the_spring_run_is_not_lost() -> None:
    assert fires("0 2 * * *", "2025-03-08T12:00:00-08:00", 2, "US/Pacific") == [
        "2025-03-09T03:00:00-07:00",
        "2025-03-10T02:00:00-07:00",
    ]


def test_c8_next_advances_through_a_repeated_hour() -> None:
    assert fires("30 * * * *", "2017-10-29T03:45:00+03:00", 2, "Europe/Helsinki") == [
        "2017-10-29T03:30:00+02:00",
        "2017-10-29T04:30:00+02:00",
    ]


def test_c9_every_result_exists() -> None:
    assert fires("0 2 * * *", "2013-03-09T12:00:00-05:00", 1, "US/Eastern") == [
        "2013-03-10T03:00:00-04:00"
    ]
    zone = ZoneInfo("US/Eastern")
    found = calendar("*/10 * * * *", "US/Eastern")
    for instant in found.fires(at("2013-03-10T00:00:00-05:00"), at("2013-03-11T00:00:00-04:00")):
        local = datetime.fromisoformat(found.local_time(instant))
        assert datetime.fromtimestamp(instant / 1_000, zone).isoformat() == local.isoformat()
        assert local.replace(tzinfo=zone).astimezone(UTC).astimezone(zone) == local


def test_c11_monday_is_not_skipped() -> None:
    after = "2021-03-12T00:00:00-06:00"
    assert fires("0 0 * * MON-FRI", after, 1, "US/Central") == ["2021-03-15T00:00:00-05:00"]


def test_c11_0_and_7_are_both_sunday() -> None:
    expected = ["2021-03-14", "2021-03-21", "2021-03-28"]
    for sunday in ("0", "7", "SUN", "sun", "0,7", "7-7", "00"):
        assert days(f"0 12 * * {sunday}", "2021-03-13T00:00:00", 3) == expected
    assert days("0 12 * * 5-7", "2021-03-11T00:00:00", 4) == [
        "2021-03-12",
        "2021-03-13",
        "2021-03-14",
        "2021-03-19",
    ]


def test_c12_no_week_is_skipped() -> None:
    assert fires("0 12 * * 0", "2022-03-24T00:00:00+01:00", 2, "Europe/Berlin") == [
        "2022-03-27T12:00:00+02:00",
        "2022-04-03T12:00:00+02:00",
    ]


C14 = """
from mainspring_server.domain.calendar import CalendarSpec, parse
import time
time.tzset()
assert time.tzname[1] == "BST", time.tzname
calendar = parse(CalendarSpec("*/30 1 * * *", "UTC"))
print([calendar.local_time(at) for at in calendar.between(1667084399000, 1667170799000, 9)])
"""


def test_c14_the_zone_of_the_host_does_not_matter() -> None:
    environment = {**os.environ, "TZ": "Europe/London"}
    done = subprocess.run(
        [sys.executable, "-c", C14], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['2022-10-30T01:00:00+00:00', '2022-10-30T01:30:00+00:00']"


def test_c17_a_step_of_hours_over_a_gap() -> None:
    assert fires("20 */4 * * *", "2023-03-12T00:00:00-08:00", 3, "America/Los_Angeles") == [
        "2023-03-12T00:20:00-08:00",
        "2023-03-12T04:20:00-07:00",
        "2023-03-12T08:20:00-07:00",
    ]


def test_c17_the_previous_time_of_the_next_is_not_later_than_now() -> None:
    found = calendar("20 */4 * * *", "America/Los_Angeles")
    start = at("2023-03-11T00:00:00-08:00")
    for instant in range(start, start + 48 * HOUR, HOUR // 6):
        following = found.next_after(instant)
        assert following is not None
        before = found.previous_before(following)
        assert before is not None
        assert before <= instant < following


def test_c18_the_29th_of_february() -> None:
    leap = "0 9 29 2 *"
    assert days(leap, "2016-02-29T09:00:00", 2) == ["2020-02-29", "2024-02-29"]
    assert days(leap, "2096-03-01T00:00:00", 1) == ["2104-02-29"]


C19 = [
    ("0 0 30 2 *", "CRON_NEVER_FIRES"),
    ("0 0 31 2,4,6,9,11 *", "CRON_NEVER_FIRES"),
    ("0 0 30 2 */2", "CRON_NEVER_FIRES"),
    ("*/00 * * * *", "CRON_INVALID"),
    ("* * * * 8", "CRON_INVALID"),
    ("* * 0 * *", "CRON_INVALID"),
    ("0 1 0/10 * *", "CRON_INVALID"),
    ("*/5 " * 3_500, "CRON_INVALID"),
]


@pytest.mark.parametrize(("expression", "reason"), C19, ids=lambda text: text[:20])
def test_c19_impossible_input_is_refused_at_once(expression: str, reason: str) -> None:
    started = time.perf_counter()
    with pytest.raises(InvalidArgument) as refused:
        parse(CalendarSpec(expression, "America/New_York"))
    # Milliseconds in fact; the bound leaves room for a busy machine.
    assert time.perf_counter() - started < 0.5
    assert refused.value.reason == reason
    assert refused.value.field == "expression"


def test_c19_a_14_kb_expression_is_refused_by_its_length() -> None:
    with pytest.raises(InvalidArgument, match="has 14000 characters; expected at most 256"):
        parse(CalendarSpec("1," * 7_000))


def test_c19_the_length_is_judged_at_the_bound() -> None:
    longest = f"{','.join(['10'] * 82)}   0 * * *"
    assert len(longest) == 255
    assert fires(f" {longest}", "2026-01-01T00:00:00", 1) == ["2026-01-01T00:10:00+00:00"]
    with pytest.raises(InvalidArgument, match="257 characters"):
        parse(CalendarSpec(f"  {longest}"))


def test_c19_a_day_of_the_week_saves_an_impossible_date() -> None:
    # Neither field begins with `*`, so either day will do.
    assert days("0 0 30 2 MON", "2026-02-01T00:00:00", 2) == ["2026-02-02", "2026-02-09"]
