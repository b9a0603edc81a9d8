import io
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from mainspring_server.cli import parsing
from mainspring_server.cli.exits import CliError, ExitCode


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90", 90_000),
        ("0", 0),
        ("1.5s", 1_500),
        (".5", 500),
        ("250ms", 250),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("2D", 172_800_000),
        ("1w", 604_800_000),
        ("0.1s", 100),
        # Below a millisecond is rounded up: a delay is never shorter than what was asked for.
        ("0.1ms", 1),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parsing.parse_duration(text, "--delay") == milliseconds


@pytest.mark.parametrize("text", ["", "x", "5x", "-5s", "5s later", "1e3", "nan", "inf", "s"])
def test_bad_durations_name_the_option(text: str) -> None:
    with pytest.raises(CliError, match="--delay") as found:
        parsing.parse_duration(text, "--delay")
    assert found.value.code is ExitCode.USAGE
    assert "1h30m" in found.value.hint


def test_longest_duration() -> None:
    assert parsing.parse_duration("315576000000s", "--delay") == 315_576_000_000_000
    with pytest.raises(CliError, match="10,000 years"):
        parsing.parse_duration("315576000001s", "--delay")


def test_instants_are_aware() -> None:
    summer = timezone(timedelta(hours=2))
    assert parsing.parse_instant("2030-01-31T08:00:00Z", "--at") == datetime(
        2030, 1, 31, 8, tzinfo=UTC
    )
    assert parsing.parse_instant("2030-01-31T08:00:00", "--at") == datetime(
        2030, 1, 31, 8, tzinfo=UTC
    )
    assert parsing.parse_instant("2030-07-31T08:00+02:00", "--at") == datetime(
        2030, 7, 31, 8, tzinfo=summer
    )
    with pytest.raises(CliError, match="--at: 'tomorrow'"):
        parsing.parse_instant("tomorrow", "--at")


def test_labels() -> None:
    assert parsing.parse_labels(["a=1", "b=x=y", "c=", "a=2"]) == {"a": "2", "b": "x=y", "c": ""}
    for bad in ("a", "=1"):
        with pytest.raises(CliError, match="is no label"):
            parsing.parse_labels([bad])


def test_listen() -> None:
    assert parsing.parse_listen("127.0.0.1:7400") == ("127.0.0.1", 7400)
    assert parsing.parse_listen("[::1]:0") == ("::1", 0)
    for bad in ("7400", ":7400", "host:", "host:70000", "host:x"):
        with pytest.raises(CliError, match="is no address"):
            parsing.parse_listen(bad)


def test_payload_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "payload.bin"
    file.write_bytes(b"\xff\x00")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"[1]")))
    assert parsing.read_payload(None) is None
    assert parsing.read_payload("") == b""
    assert parsing.read_payload('{"a": 1}') == b'{"a": 1}'
    assert parsing.read_payload("-") == b"[1]"
    assert parsing.read_payload(f"@{file}") == b"\xff\x00"
    with pytest.raises(CliError, match="No such file"):
        parsing.read_payload(f"@{tmp_path / 'none'}")


def test_json_is_handed_on_unchanged() -> None:
    assert parsing.check_json(b' {"a": 1.0} ') == ' {"a": 1.0} '


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b'{"a":\n x}', "line 2, column 2"),
        (b"", "line 1, column 1"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_json_says_where(payload: bytes, message: str) -> None:
    with pytest.raises(CliError, match=message) as found:
        parsing.check_json(payload)
    assert found.value.code is ExitCode.USAGE


def test_an_instant_beyond_the_calendar_becomes_its_end() -> None:
    assert parsing.parse_instant("9999-12-31T23:59:59-12:00", "--at").year == 9999
    assert parsing.parse_instant("0001-01-01T00:00:00+23:59", "--at").year == 1
