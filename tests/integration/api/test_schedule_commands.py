"""The commands about schedules, against a real server."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from mainspring import Client, OverlapPolicy, TaskStatus
from mainspring_server.cli.app import main
from mainspring_server.testing import LocalServer

START = datetime(2026, 3, 2, 10, 0, 30, tzinfo=UTC)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(START) as running:
        yield running


@pytest.fixture
def client(server: LocalServer) -> Iterator[Client]:
    with Client(server.address) as connected:
        yield connected


@pytest.fixture
def run(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """A command in this process: exit code, standard output, error output."""

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(
            sys, "argv", ["mainspring", arguments[0], *arguments[1:], "--server", server.address]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return command


@pytest.fixture
def schedule(run: Run) -> str:
    code, out, note = run("schedule", "report", "0 7 * * MON-FRI", '{"team": "a"}', "--exact")
    assert code == 0
    assert "first due 2026-03-03" in note
    return out.strip()


def test_every_option_arrives(run: Run, client: Client) -> None:
    code, out, _ = run(
        *("schedule", "report", "30 2 * * *", "--tz", "Europe/Berlin", "--jitter", "10s"),
        *("--start", "2026-04-01T00:00:00Z", "--end", "2027-01-01T00:00:00Z", "--max-runs", "5"),
        *("--exclude", "2026-12-25", "--overlap", "buffer-one", "--catch-up", "all"),
        *("--catch-up-window", "2h", "--catch-up-runs", "7", "--dst-gap", "skip"),
        *("--dst-overlap", "both", "--pause-on-failure", "--key", "k", "--label", "team=a"),
        *("--queue", "slow", "--priority", "2"),
    )
    assert code == 0
    state, task = client.get_schedule(out.strip()), client.get(out.strip())
    cron = state.cron
    assert cron is not None
    assert (cron.expression, cron.time_zone, cron.max_runs) == ("30 2 * * *", "Europe/Berlin", 5)
    assert (cron.overlap_policy, tuple(cron.exclusions)) == (
        OverlapPolicy.BUFFER_ONE,
        ("2026-12-25",),
    )
    assert cron.catch_up is not None
    assert (cron.catch_up.policy.name, cron.catch_up.max_runs) == ("ALL", 7)
    assert (cron.dst_gap.name, cron.dst_overlap.name) == ("SKIP", "BOTH")
    assert cron.pause_on_failure
    assert (task.queue, task.priority, task.labels) == ("slow", 2, {"team": "a"})


def test_pause_resume_and_what_get_shows(run: Run, schedule: str) -> None:
    assert run("pause", schedule, "--note", "broken")[0] == 0
    shown = run("get", schedule)[1]
    assert "0 7 * * MON-FRI (UTC)" in shown
    assert "yes, broken" in shown
    code, out, _ = run("resume", schedule, "--from", "2026-03-02T09:00:00Z", "--json")
    state = json.loads(out)
    assert (code, state.get("paused", False)) == (0, False)
    assert state["next_nominal_time"] == "2026-03-03T07:00:00Z"
    assert "makes instances" in run("explain", schedule)[1]


def test_trigger_backfill_and_history(run: Run, schedule: str, client: Client) -> None:
    code, out, _ = run("trigger", schedule, "--key", "k")
    assert code == 0
    assert client.get(out.strip()).status is TaskStatus.READY
    assert run("trigger", schedule, "--key", "k")[1] == out
    code, out, note = run("trigger", schedule)
    assert (code, out) == (0, "")
    assert "skipped" in note
    span = ("--start", "2026-02-23T00:00:00Z", "--end", "2026-03-02T00:00:00Z")
    code, out, note = run("backfill", schedule, *span, "--dry-run")
    assert (code, out) == (0, "")
    assert note.startswith("5 times")
    code, out, _ = run("backfill", schedule, *span, "--overlap", "allow-all", "--rate", "0.01")
    assert code == 0
    assert run("cancel", out.strip())[1].startswith("cancelled 4")
    shown = json.loads(run("history", schedule, "--json")[1])
    sources = [row["source"].removeprefix("INSTANCE_SOURCE_") for row in shown["instances"]]
    assert (sources.count("BACKFILL"), sources.count("TRIGGER")) == (5, 2)
    assert "its backfill was cancelled" in run("history", schedule)[1]


def test_update_tells_what_would_change_and_changes_it(
    run: Run, schedule: str, client: Client
) -> None:
    change = ("--cron", "0 8 * * MON-FRI", "--payload", "[1]", "--priority", "1")
    code, shown, _ = run("update", schedule, *change, "--dry-run")
    assert code == 0
    assert "2026-03-03T07:00:00Z" in shown
    assert "2026-03-03T08:00:00Z" in shown
    before = client.get_schedule(schedule)
    assert before.cron is not None
    assert before.cron.expression == "0 7 * * MON-FRI"
    assert run("update", schedule, *change, "--etag", before.etag)[0] == 0
    after = client.get_schedule(schedule)
    assert after.cron is not None
    assert after.cron.expression == "0 8 * * MON-FRI"
    assert after.cron.exact
    code, _, note = run("update", schedule, "--tz", "UTC", "--etag", before.etag)
    assert (code, "etag" in note) == (6, True)
    assert run("update", schedule)[0] == 2


def test_what_is_refused(run: Run, client: Client) -> None:
    code, _, note = run("schedule", "report", "0 0 30 2 *")
    assert code == 4
    assert "expression" in note
    assert run("pause", "0190b2b4-0000-7000-8000-000000000000")[0] == 3
    task = client.submit("report").task_id
    assert run("pause", task)[0] in {4, 6}
