"""`mainspring preview`: the next times of an expression, without a server."""

import json
import os
import sys
from typing import Any

import pytest

from mainspring_server.cli import app
from mainspring_server.cli.exits import ExitCode


@pytest.fixture(autouse=True)
def nobody_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_SERVER", "127.0.0.1:1")
    for name in [name for name in os.environ if name.startswith("MAINSPRING_TOKEN")]:
        monkeypatch.delenv(name)


class Run:
    """What a command printed and how it ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["mainspring", "preview", *arguments])
        with pytest.raises(SystemExit) as ended:
            app.main()
        printed = self._capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    def fires(self, *arguments: str) -> list[str]:
        code, out, err = self(*arguments, "--json")
        assert (code, err) == (0, "")
        document = json.loads(out)
        assert list(document) == ["fires"]
        return list(document["fires"])

    def refusal(self, *arguments: str) -> dict[str, Any]:
        code, out, err = self(*arguments, "--json")
        assert out == ""
        assert code == ExitCode.INVALID
        found: dict[str, Any] = json.loads(err)["error"]
        return found


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(monkeypatch, capsys)


NEW_YORK = ("--tz", "America/New_York")


def test_json_is_one_line_with_the_offset_of_each_time(run: Run) -> None:
    code, out, err = run(
        "30 1 * * *", *NEW_YORK, "--from", "2026-10-31T12:00:00-04:00", "--count", "2", "--json"
    )
    assert (code, err) == (0, "")
    assert out == '{"fires": ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"]}\n'


def test_utc_and_its_offset_by_default(run: Run) -> None:
    assert run.fires("0 9 * * *", "--from", "2026-01-01T00:00:00Z", "--count", "1") == [
        "2026-01-01T09:00:00+00:00"
    ]


def test_ten_times_from_now_by_default(run: Run) -> None:
    fires = run.fires("* * * * *")
    assert len(fires) == 10
    assert fires == sorted(set(fires))


@pytest.mark.parametrize(
    ("since", "first"),
    [
        ("2026-01-01T09:00:00Z", "2026-01-02T09:00:00+00:00"),
        ("2026-01-01T10:00:00+01:00", "2026-01-02T09:00:00+00:00"),
        ("2026-01-01T08:59:59.999Z", "2026-01-01T09:00:00+00:00"),
        ("2026-01-01T09:00:00.000001Z", "2026-01-02T09:00:00+00:00"),
        ("2026-01-01T09:00:00", "2026-01-02T09:00:00+00:00"),
        ("2026-01-01", "2026-01-01T09:00:00+00:00"),
        ("0001-01-01T00:00:00+23:59", "1970-01-01T09:00:00+00:00"),
    ],
)
def test_fires_are_strictly_after_from(run: Run, since: str, first: str) -> None:
    assert run.fires("0 9 * * *", "--from", since, "--count", "1") == [first]


def test_nominal_times_have_no_jitter(run: Run) -> None:
    fires = run.fires("0 * * * *", "--from", "2026-01-01T00:00:00Z", "--count", "100")
    assert {time[14:] for time in fires} == {"00:00+00:00"}


def test_the_policies_at_a_gap(run: Run) -> None:
    arguments = ("30 2 * * *", *NEW_YORK, "--from", "2026-03-08T00:00:00-05:00", "--count", "1")
    assert run.fires(*arguments) == ["2026-03-08T03:00:00-04:00"]
    # What is skipped is shown to people only.
    assert run.fires(*arguments, "--dst-gap", "skip") == ["2026-03-09T02:30:00-04:00"]
    _, out, _ = run(*arguments, "--dst-gap", "skip")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        "2026-03-08T03:00:00-04:00",
        "2026-03-09T02:30:00-04:00",
    ]
    assert "does not run: its time does not exist" in out


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("first", ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"]),
        ("last", ["2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"]),
        ("both", ["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"]),
    ],
)
def test_the_policies_at_a_repetition(run: Run, policy: str, expected: list[str]) -> None:
    after = ("--from", "2026-11-01T00:00:00-04:00", "--count", "2")
    assert run.fires("30 1 * * *", *NEW_YORK, *after, "--dst-overlap", policy) == expected


def test_people_see_what_a_clock_change_does(run: Run) -> None:
    arguments = ("30 2 * * *", *NEW_YORK, "--from", "2026-03-08T00:00:00-05:00", "--count", "2")
    code, out, _ = run(*arguments)
    assert code == 0
    moved, usual = out.splitlines()[1:]
    assert moved.startswith("2026-03-08T03:00:00-04:00  2026-03-08T07:00:00Z  moved: ")
    assert usual.split() == ["2026-03-09T02:30:00-04:00", "2026-03-09T06:30:00Z", "-"]


def test_exclusions_leave_times_out(run: Run) -> None:
    after = ("--from", "2026-12-24T00:00:00Z", "--count", "2")
    exclusions = ("--exclude", "2026-12-25", "--exclude", "* * * * SAT,SUN")
    assert run.fires("0 9 * * *", *after, *exclusions) == [
        "2026-12-24T09:00:00+00:00",
        "2026-12-28T09:00:00+00:00",
    ]


def test_an_interval_counts_from_the_instant_that_is_asked_about(run: Run) -> None:
    assert run.fires("@every 90s", "--from", "2026-01-01T00:00:10.5Z", "--count", "2") == [
        "2026-01-01T00:01:40.500+00:00",
        "2026-01-01T00:03:10.500+00:00",
    ]


def test_h_is_that_of_the_schedule(run: Run) -> None:
    after = ("--from", "2026-01-01T00:00:00Z", "--count", "1")
    ids = [f"0193{n:04x}-0000-7000-8000-000000000000" for n in range(20)]
    minutes = {run.fires("H * * * *", *after, "--schedule", one)[0] for one in ids}
    assert len(minutes) > 10
    # Without a schedule a note says what is missing.
    code, _, err = run("H * * * *", *after)
    assert code == 0
    assert "name one with --schedule" in err
    code, _, err = run("0 9 * * THU", *after)
    assert err == ""


def test_a_schedule_that_ended_has_no_more_times(run: Run) -> None:
    assert run.fires("0 9 * * *", "--from", "9999-12-31T00:00:00Z") == []
    code, out, err = run("0 9 * * *", "--from", "9999-12-31T00:00:00Z")
    assert (code, out, err) == (0, "", "No more times.\n")


@pytest.mark.parametrize(
    ("arguments", "reason", "field", "words"),
    [
        (("0 0 30 2 *",), "CRON_NEVER_FIRES", "expression", "EXPR: the expression never matches"),
        (("* * * * 8",), "CRON_INVALID", "expression", "8 is out of range; expected 0 to 7"),
        (("*/00 * * * *",), "CRON_INVALID", "expression", "/00 is no step"),
        (("@reboot",), "CRON_INVALID", "expression", "@reboot names no time"),
        (("",), "CRON_INVALID", "expression", "is empty"),
        (("1," * 7_000,), "CRON_INVALID", "expression", "has 14000 characters"),
        (
            ("0 0 * * *", "--tz", "Europe/Berln"),
            "TIME_ZONE_UNKNOWN",
            "time_zone",
            "--tz: 'Europe/Berln' is no time zone of the IANA database; did you mean Europe/Berlin",
        ),
        (
            ("0 0 * * *", "--exclude", "2026-02-30"),
            "CRON_INVALID",
            "exclusions[0]",
            "--exclude: 2026-02-30 is no date",
        ),
        (
            ("0 0 * * *", "--exclude", "* * * * *"),
            "CRON_NEVER_FIRES",
            "expression",
            "its exclusions leave none of its times",
        ),
        (("H * * * *", "--schedule", "x"), "TASK_ID_INVALID", "", "--schedule: 'x' is no id"),
    ],
)
def test_a_refused_expression_ends_with_its_reason(
    run: Run, arguments: tuple[str, ...], reason: str, field: str, words: str
) -> None:
    error = run.refusal(*arguments)
    assert words in error["message"]
    assert (error["reason"], error.get("field", "")) == (reason, field)
    code, out, err = run(*arguments)
    assert (code, out) == (ExitCode.INVALID, "")
    assert words in err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("0 0 * * *", "--from", "tomorrow"),
        ("0 0 * * *", "--count", "0"),
        ("0 0 * * *", "--count", "1001"),
        ("0 0 * * *", "--dst-gap", "sometimes"),
        # Unquoted, a shell makes many arguments of it.
        ("0", "0", "*", "*", "*"),
    ],
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    code, out, _ = run(*arguments)
    assert (code, out) == (ExitCode.USAGE, "")
