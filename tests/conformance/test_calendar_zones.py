"""Clock changes: each policy, and two days over both changes of six zones, tick for tick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from mainspring_server.domain.calendar import (
    DstEffect,
    DstGap,
    DstOverlap,
    preview,
    tzdata_version,
    zone_names,
)
from mainspring_server.domain.calendar.zones import LAST_YEAR, find_zone

from ..unit.domain.calendars import HOUR, at, calendar, fires

# Two changes of each zone in UTC: two days around each are looked at.
CHANGES = {
    "Australia/Lord_Howe": ("2023-04-01T15:00:00", "2023-09-30T15:30:00"),
    "Europe/Dublin": ("2023-03-26T01:00:00", "2023-10-29T01:00:00"),
    "Africa/Casablanca": ("2024-03-10T02:00:00", "2024-04-14T02:00:00"),
    "America/Sao_Paulo": ("2018-02-18T02:00:00", "2018-11-04T03:00:00"),
    "America/New_York": ("2023-03-12T07:00:00", "2023-11-05T06:00:00"),
    "Europe/Helsinki": ("2017-03-26T01:00:00", "2017-10-29T01:00:00"),
}
CASES = [(zone, change) for zone, changes in CHANGES.items() for change in changes]
FIXED = (
    "30 1 * * *",
    "0 2 * * *",
    "15,45 0-4 * * *",
    "0 0 * * SUN",
    "59 23 * * *",
    "0 2-3/1 * * *",
)
STARRED = ("*/15 * * * *", "20 * * * *", "*/20 1,2 * * *", "10 */2 * * *", "* 0-3 * * *")


def zone_of(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def reference(expression: str, name: str, start: datetime, *, real_time: bool) -> list[int]:
    """48 hours of the rules, minute by minute, with nothing but zoneinfo and the fields."""
    zone = zone_of(name)
    fields = CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))

    def matches(local: datetime) -> bool:
        return (
            local.minute in fields.minutes
            and local.hour in fields.hours
            and fields.match_day(local.date())
        )

    found = set()
    shown = (start - timedelta(minutes=1)).astimezone(zone).replace(tzinfo=None)
    for minute in range(48 * 60):
        instant = start + timedelta(minutes=minute)
        aware = instant.astimezone(zone)
        local = aware.replace(tzinfo=None)
        passed = shown + timedelta(minutes=1)
        while not real_time and passed < local:
            if matches(passed):
                found.add(instant)
            passed += timedelta(minutes=1)
        if matches(local) and (real_time or not aware.fold):
            found.add(instant)
        shown = local
    return sorted(int(instant.timestamp()) * 1_000 for instant in found)


@pytest.mark.parametrize(("name", "change"), CASES)
def test_c21_two_days_over_a_change_have_the_ticks_of_the_reference(name: str, change: str) -> None:
    middle = datetime.fromisoformat(f"{change}+00:00")
    zone = zone_of(name)
    offsets = {(middle + timedelta(seconds=side)).astimezone(zone).utcoffset() for side in (-1, 0)}
    assert len(offsets) == 2, "there is a clock change here"
    start = middle - timedelta(hours=24)
    after = int(start.timestamp()) * 1_000 - 1
    for expressions, real_time in ((FIXED, False), (STARRED, True)):
        for expression in expressions:
            expected = reference(expression, name, start, real_time=real_time)
            found = calendar(expression, name).between(after, after + 48 * HOUR, 100_000)
            assert found == expected, expression
            assert len(set(found)) == len(found)


@pytest.mark.parametrize(("name", "change"), CASES)
def test_c21_fixed_times_are_those_of_cronsim(name: str, change: str) -> None:
    start = datetime.fromisoformat(f"{change}+00:00") - timedelta(hours=24)
    after = int(start.timestamp()) * 1_000
    for expression in FIXED:
        ticks = CronSim(expression, start.astimezone(zone_of(name)))
        instants = (int(tick.timestamp()) * 1_000 for tick in ticks)
        expected = list(takewhile(lambda tick: tick <= after + 48 * HOUR, instants))
        assert calendar(expression, name).between(after, after + 48 * HOUR, 1_000) == expected


# --- Each policy ------------------------------------------------------------------------------

GAP_AFTER = "2026-03-08T00:00:00-05:00"
OVERLAP_AFTER = "2026-11-01T00:00:00-04:00"


def test_run_after_the_gap_or_skip() -> None:
    assert fires("30 2 * * *", GAP_AFTER, 2, "America/New_York") == [
        "2026-03-08T03:00:00-04:00",
        "2026-03-09T02:30:00-04:00",
    ]
    assert fires("30 2 * * *", GAP_AFTER, 1, "America/New_York", dst_gap=DstGap.SKIP) == [
        "2026-03-09T02:30:00-04:00"
    ]


def test_all_times_of_a_gap_are_one_run() -> None:
    # 02:00, 02:20 and 02:40 do not exist; 03:00 does, and is the same instant.
    assert fires("0,20,40 2,3 * * *", GAP_AFTER, 3, "America/New_York") == [
        "2026-03-08T03:00:00-04:00",
        "2026-03-08T03:20:00-04:00",
        "2026-03-08T03:40:00-04:00",
    ]


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        (DstOverlap.FIRST, ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"]),
        (DstOverlap.LAST, ["2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"]),
        (DstOverlap.BOTH, ["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"]),
    ],
)
def test_a_repeated_hour(overlap: DstOverlap, expected: list[str]) -> None:
    zone = "America/New_York"
    assert fires("30 1 * * *", OVERLAP_AFTER, 2, zone, dst_overlap=overlap) == expected


@pytest.mark.parametrize("expression", ["30 * * * *", "*/30 1 * * *", "0,30 */1 * * *"])
@pytest.mark.parametrize("overlap", DstOverlap)
def test_an_hour_or_minute_with_a_star_runs_through_real_time(
    expression: str, overlap: DstOverlap
) -> None:
    zone = "America/New_York"
    options = {"dst_overlap": overlap, "dst_gap": DstGap.RUN_AFTER_GAP}
    found = fires(expression, "2026-11-01T01:00:00-04:00", 4, zone, **options)
    assert {"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"} <= set(found)
    # Nothing is made up for the hour that does not exist.
    found = fires("*/30 2 * * *", GAP_AFTER, 1, zone, **options)
    assert found == ["2026-03-09T02:00:00-04:00"]


def test_a_range_over_all_hours_is_not_a_star() -> None:
    # As in Debian: `0-23` names fixed times, so the second 01:30 is left out.
    assert fires("30 0-23 * * *", OVERLAP_AFTER, 3, "America/New_York") == [
        "2026-11-01T00:30:00-04:00",
        "2026-11-01T01:30:00-04:00",
        "2026-11-01T02:30:00-05:00",
    ]


def test_seconds_follow_the_same_rule() -> None:
    zone = "America/New_York"
    assert fires("30 30 2 * * *", GAP_AFTER, 1, zone) == ["2026-03-08T03:00:00-04:00"]
    assert fires("30 30 1 * * *", OVERLAP_AFTER, 2, zone) == [
        "2026-11-01T01:30:30-04:00",
        "2026-11-02T01:30:30-05:00",
    ]


def test_half_an_hour_of_gap_and_of_repetition() -> None:
    zone = "Australia/Lord_Howe"
    assert fires("15 2 * * *", "2026-10-03T12:00:00+10:30", 2, zone) == [
        "2026-10-04T02:30:00+11:00",
        "2026-10-05T02:15:00+11:00",
    ]
    assert fires("45 1 * * *", "2026-04-04T12:00:00+11:00", 2, zone) == [
        "2026-04-05T01:45:00+11:00",
        "2026-04-06T01:45:00+10:30",
    ]
    # 01:15 is shown once only.
    assert fires(
        "15,45 1 * * *", "2026-04-05T00:00:00+11:00", 2, zone, dst_overlap=DstOverlap.BOTH
    ) == [
        "2026-04-05T01:15:00+11:00",
        "2026-04-05T01:45:00+11:00",
    ]


def test_a_day_that_does_not_exist() -> None:
    # Apia had no 30 December 2011: its run comes at the first instant of the 31st.
    after = "2011-12-29T13:00:00-10:00"
    assert fires("0 12 * * *", after, 2, "Pacific/Apia") == [
        "2011-12-31T00:00:00+14:00",
        "2011-12-31T12:00:00+14:00",
    ]
    assert fires("0 12 * * *", after, 1, "Pacific/Apia", dst_gap=DstGap.SKIP) == [
        "2011-12-31T12:00:00+14:00"
    ]
    assert fires("0 * * * *", "2011-12-29T22:00:00-10:00", 2, "Pacific/Apia") == [
        "2011-12-29T23:00:00-10:00",
        "2011-12-31T00:00:00+14:00",
    ]


def test_summer_time_that_is_the_exception_the_other_way_round() -> None:
    # In Dublin winter time counts as the daylight saving one; the clock is London's all the same.
    for change in CHANGES["Europe/Dublin"]:
        for expression in (*FIXED, *STARRED):
            dublin = calendar(expression, "Europe/Dublin").between(
                at(change), at(change) + 48 * HOUR, 500
            )
            london = calendar(expression, "Europe/London").between(
                at(change), at(change) + 48 * HOUR, 500
            )
            assert dublin == london


# --- What a preview says ----------------------------------------------------------------------


def test_a_preview_flags_what_a_change_does() -> None:
    zone = "America/New_York"
    moved, usual = preview(calendar("30 2 * * *", zone), at(GAP_AFTER), 2)
    assert (moved.effect, usual.effect) == (DstEffect.AFTER_GAP, DstEffect.NONE)
    both = calendar("30 1 * * *", zone, dst_overlap=DstOverlap.BOTH)
    effects = [fire.effect for fire in preview(both, at(OVERLAP_AFTER), 3)]
    assert effects == [DstEffect.FIRST, DstEffect.LAST, DstEffect.NONE]


def test_a_preview_shows_what_is_skipped_and_does_not_count_it() -> None:
    skips = calendar("30 2 * * *", "America/New_York", dst_gap=DstGap.SKIP)
    found = preview(skips, at(GAP_AFTER), 1)
    assert [(fire.effect, fire.local_time) for fire in found] == [
        (DstEffect.SKIPPED, "2026-03-08T03:00:00-04:00"),
        (DstEffect.NONE, "2026-03-09T02:30:00-04:00"),
    ]


# --- The zones --------------------------------------------------------------------------------


def test_every_zone_has_the_offsets_of_zoneinfo() -> None:
    # On the hour, a few times a year; a wrong rule or transition shows within a year.
    moments = [
        int(datetime(year, month, 1 + year % 28, month, tzinfo=UTC).timestamp())
        for year in (1970, 1985, 2011, 2026, 2037, 2038, 2100, LAST_YEAR)
        for month in (1, 4, 7, 11)
    ]
    for name in sorted(zone_names()):
        zone, ours = zone_of(name), find_zone(name)
        for moment in moments:
            offset = datetime.fromtimestamp(moment, zone).utcoffset()
            assert offset is not None
            assert ours.offset_at(moment) == offset.total_seconds(), (name, moment)


def test_a_change_far_ahead_follows_the_zone_s_rule() -> None:
    assert fires("30 2 * * *", "2150-03-07T12:00:00-05:00", 1, "America/New_York") == [
        "2150-03-08T03:00:00-04:00"
    ]


def test_the_version_of_the_tz_database_is_known() -> None:
    year, letter = tzdata_version()[:4], tzdata_version()[4:]
    assert int(year) >= 2025
    assert letter.isalpha()
