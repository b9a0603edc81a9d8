import json
import subprocess
import sys
from pathlib import Path

import pytest

import mainspring_server
from mainspring_server.cli import app, serving
from mainspring_server.cli.exits import ExitCode

FREE = "127.0.0.1:1"  # the port of tcpmux: nobody listens there


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["mainspring", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("arguments", [("version",), ("--version",)])
def test_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *arguments) == 0
    assert capsys.readouterr().out == f"mainspring {mainspring_server.__version__}\n"


@pytest.mark.parametrize("arguments", [("version", "--json"), ("--json", "version")])
def test_json_before_and_after_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *arguments) == 0
    assert json.loads(capsys.readouterr().out) == {"version": mainspring_server.__version__}


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("get",),
        ("get", "x", "--no-such-option"),
        ("submit", "x", "{"),
        ("submit", "x", "--delay", "1s", "--at", "2030-01-01T00:00:00Z"),
        ("submit", "x", "--label", "a"),
        ("reschedule", "x"),
        ("list", "--limit", "-1"),
        ("list", "--server", "no-port"),
        ("list", "--server", ","),
        ("migrate",),
        ("migrate", "--store", "sqlite:///x"),
        ("dev", "--listen", "7400", "--data", "."),
        ("dev", "--lease", "1x", "--data", "."),
        ("dev", "--log-level", "loud", "--data", "."),
        ("serve", "--role", "cook"),
        ("serve", "--store", "mysql://x"),
        ("serve", "--processes", "2"),
        ("worker", "nocolon"),
        ("worker", "no_such_module:Class"),
        ("worker", "json:NoSuchClass"),
        ("worker", "json:JSONDecoder"),
    ],
)
def test_usage_errors(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *arguments) == ExitCode.USAGE
    found = capsys.readouterr()
    assert found.out == ""
    assert "Traceback" not in found.err
    assert found.err


def test_refused_connection(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "get", "x", "--server", FREE) == ExitCode.UNAVAILABLE
    found = capsys.readouterr()
    assert f"no server answers at {FREE}" in found.err
    assert "mainspring dev" in found.err


def test_errors_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--json", "--server", FREE, "info") == ExitCode.UNAVAILABLE
    found = capsys.readouterr()
    assert found.out == ""
    assert json.loads(found.err)["error"]["exit_code"] == ExitCode.UNAVAILABLE


def test_server_from_environment_loses_to_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MAINSPRING_SERVER", "127.0.0.1:2")
    run(monkeypatch, "info")
    assert "127.0.0.1:2\n" in capsys.readouterr().err
    run(monkeypatch, "--server", FREE, "info")
    assert f"{FREE}\n" in capsys.readouterr().err
    run(monkeypatch, "--server", "127.0.0.1:3", "info", "--server", FREE)
    assert f"{FREE}\n" in capsys.readouterr().err


def test_a_defect_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(app, "app", broken)
    monkeypatch.delenv("MAINSPRING_TRACEBACK", raising=False)
    assert run(monkeypatch, "info") == ExitCode.INTERNAL
    found = capsys.readouterr()
    assert "unexpected ZeroDivisionError" in found.err
    assert "MAINSPRING_TRACEBACK" in found.err


def test_help_imports_neither_grpc_nor_the_server() -> None:
    heavy = {"grpc", "rich.console", "asyncpg", "mainspring", "mainspring_server.app"}
    program = (
        f"import sys; import mainspring_server.cli.app; print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert serving.data_folder() == tmp_path / ".local/share/mainspring"
    # A relative one is to be ignored, says the XDG specification.
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert serving.data_folder() == tmp_path / ".local/share/mainspring"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert serving.data_folder() == tmp_path / "xdg/mainspring"


def test_exit_codes_are_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/cli.md").read_text()
    for code in ExitCode:
        assert f"| {int(code)} |" in page
