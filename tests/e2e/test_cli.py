"""The `mainspring` command against a real server and a real worker, each a process of its own."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mainspring_server.cli.app import main

COMMAND = [sys.executable, "-m", "mainspring_server.cli"]
UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"
WORKERS = """
from mainspring_worker import Context, Fail, Worker

class Greet(Worker):
    task_type = "greet"

    def handle(self, context: Context, payload: dict[str, str]) -> str:
        return f"hello {payload['name']}"

class Break(Worker):
    task_type = "break"

    def handle(self, context: Context, payload: None) -> None:
        raise Fail("broken for good")
"""

pytestmark = pytest.mark.timeout(120)


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Cli = Callable[..., Done]


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    command = [*COMMAND, *map(str, arguments), "--stop-with", str(os.getpid())]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


def end(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    process.communicate()
    return process.returncode


def start_dev(data: Path) -> tuple[subprocess.Popen[str], str]:
    process = start("dev", "--listen", "127.0.0.1:0", "--data", data, "--json")
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["address"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process, address = start_dev(tmp_path_factory.mktemp("data"))
    yield address
    assert end(process) == 0


@pytest.fixture(scope="module")
def worker(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("workers")
    (folder / "jobs.py").write_text(WORKERS)
    process = start("worker", "jobs:Greet", "jobs:Break", "--server", address, cwd=folder)
    yield
    assert end(process) == 0


@pytest.fixture
def cli(address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command in this process: what it imports is loaded once, not for each call."""
    monkeypatch.setenv("MAINSPRING_SERVER", address)

    def run(*arguments: str, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "argv", ["mainspring", *arguments])
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin.encode())))
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        found = capsys.readouterr()
        assert "Traceback" not in found.err
        return Done(code, found.out, found.err)

    return run


@pytest.mark.usefixtures("worker")
def test_submit_and_wait(cli: Cli) -> None:
    task = cli("submit", "greet", '{"name": "you"}', "--wait-timeout", "60s", "--json").json()
    assert task["status"] == "TASK_STATUS_SUCCEEDED"
    assert task["attempts"] == 1
    shown = cli("get", task["task_id"], "--full").out
    assert "SUCCEEDED" in shown
    assert "hello you" in shown
    assert '"name": "you"' in shown
    (attempt,) = cli("history", task["task_id"], "--json").json()["attempts"]
    assert attempt["outcome"] == "ATTEMPT_OUTCOME_SUCCEEDED"
    (change,) = cli("watch", task["task_id"], "--json").out.splitlines()
    assert json.loads(change)["status"] == "TASK_STATUS_SUCCEEDED"


@pytest.mark.usefixtures("worker")
def test_a_task_that_fails(cli: Cli) -> None:
    waited = cli("submit", "break", "--wait-timeout", "60s", "--json")
    assert waited.code == 1
    task = json.loads(waited.out)
    assert task["last_error"] == "broken for good"
    assert cli("watch", task["task_id"]).code == 1
    copy = cli("retry", task["task_id"]).out.strip()
    assert cli("watch", copy, "--timeout", "30s").code == 1
    assert cli("get", copy, "--json").json()["retry_of"] == task["task_id"]
    assert "broken for good" in cli("history", copy).out


def test_a_task_that_waits(cli: Cli) -> None:
    submitted = cli("submit", "nobody", "--delay", "1h", "--label", "team=a b", "--priority", "0")
    task_id = submitted.out.strip()
    assert "PENDING, due" in submitted.err
    listed = cli("list", "--filter", 'status=PENDING AND labels.team="a b"', "--json").json()
    assert [task["task_id"] for task in listed["tasks"]] == [task_id]
    assert listed["tasks"][0]["priority"] == 0
    assert "BLOCKING" in cli("explain", task_id).out
    assert "PENDING, due" in cli("reschedule", task_id, "--delay", "0s").out
    late = cli("watch", task_id, "--timeout", "100ms")
    assert (late.code, "has not ended" in late.err) == (124, True)
    assert cli("cancel", task_id, "--reason", "no longer needed").out == "cancelled\n"
    assert cli("cancel", task_id, "--json").json() == {"cancelled_instances": 0}
    assert cli("get", task_id, "--json").json()["status_reason"]
    assert cli("watch", task_id).code == 1
    assert cli("reschedule", task_id, "--delay", "1s").code == 6


def test_payloads_and_options_arrive(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"from": "file"}')
    options = ("--delay", "1h", "--retry-max", "7", "--retry-delay", "2s", "--run-timeout", "5m")
    task_id = cli("submit", "nobody", f"@{file}", *options).out.strip()
    task = cli("get", task_id, "--full", "--json").json()
    assert task["payload"]["json"] == '{"from": "file"}'
    assert task["retry"]["max_attempts"] == 7
    assert task["retry"]["initial_delay"] == "2s"
    assert task["timeouts"]["run_timeout"] == "300s"
    raw = cli("submit", "nobody", "-", "--raw", "--delay", "1h", stdin="no json").out.strip()
    assert cli("get", raw, "--full", "--json").json()["payload"]["data"] == "bm8ganNvbg=="


def test_idempotency_key(cli: Cli) -> None:
    request = ("submit", "nobody", "1", "--delay", "1h", "--key", "only once")
    first, second = cli(*request), cli(*request)
    assert first.out == second.out
    assert "the key was used before" in second.err
    other = cli("submit", "nobody", "2", "--delay", "1h", "--key", "only once", "--json")
    assert other.code == 6
    assert json.loads(other.err)["error"]["reason"] == "IDEMPOTENCY_KEY_REUSED"


def test_pages_of_a_list(cli: Cli) -> None:
    ids = [cli("submit", "paged", "--delay", "1h").out.strip() for _ in range(3)]
    query = ("list", "--filter", "task_type=paged", "--order-by", "create_time")
    first = cli(*query, "--limit", "2", "--json").json()
    assert [task["task_id"] for task in first["tasks"]] == ids[:2]
    assert first["next_page_token"]
    assert "--limit 0 shows all" in cli(*query, "--limit", "2").err
    assert len(cli(*query, "--limit", "0", "--json").json()["tasks"]) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("get", UNKNOWN), 3, "TASK_NOT_FOUND"),
        (("get", "nonsense"), 4, "TASK_ID_INVALID"),
        (("cancel", UNKNOWN), 3, "TASK_NOT_FOUND"),
        (("watch", UNKNOWN), 3, "TASK_NOT_FOUND"),
        (("list", "--filter", "nope=1"), 4, "FILTER_INVALID"),
        (("submit", "not a type"), 4, "FIELD_INVALID"),
        (("submit", "x", "--priority", "10"), 4, "FIELD_INVALID"),
    ],
)
def test_refusals(cli: Cli, arguments: tuple[str, ...], code: int, reason: str) -> None:
    done = cli(*arguments, "--json")
    error = json.loads(done.err)["error"]
    assert (done.code, error["reason"]) == (code, reason)
    assert error["message"]


@pytest.mark.usefixtures("worker")
def test_operation(cli: Cli) -> None:
    cli("submit", "greet", '{"name": "x"}', "--wait-timeout", "60s")
    (worker,) = cli("workers", "--json").json()["workers"]
    assert worker["task_types"] == ["greet", "break"]
    assert worker["worker_id"] in cli("workers").out
    assert cli("queues", "pause", "idle", "--reason", "maintenance", "--json").json()["paused"]
    assert "maintenance" in cli("queues").out
    assert not cli("queues", "resume", "idle", "--json").json()["paused"]
    info = cli("info", "--json").json()
    assert (info["store"], info["limits"]["payload_bytes"]) == ("sqlite", 1_048_576)
    assert "sqlite" in cli("info").out


def test_a_taken_port_is_refused(address: str, tmp_path: Path) -> None:
    process = start("dev", "--listen", address, "--data", tmp_path, stderr=subprocess.PIPE)
    _, err = process.communicate()
    assert process.returncode == 5
    assert f"cannot listen on {address}: the port is taken" in err
    assert "--listen" in err


def test_a_data_folder_has_one_server(tmp_path: Path) -> None:
    first, _ = start_dev(tmp_path)
    second = start(
        "dev", "--listen", "127.0.0.1:0", "--data", tmp_path, "--json", stderr=subprocess.PIPE
    )
    _, err = second.communicate()
    assert second.returncode != 0
    assert str(tmp_path) in json.loads(err)["error"]["message"]
    assert end(first) == 0


def test_data_outlives_the_server(tmp_path: Path) -> None:
    first, address = start_dev(tmp_path)
    arguments = ["submit", "nobody", "--delay", "1h", "--server", address]
    task_id = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert end(first) == 0
    second, address = start_dev(tmp_path)
    arguments = ["get", task_id.strip(), "--json", "--server", address]
    shown = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(shown)["status"] == "TASK_STATUS_PENDING"
    assert end(second) == 0


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys; "
        "subprocess.Popen([*sys.argv[1:], '--stop-with', str(os.getpid())]).wait()"
    )
    dev = [*COMMAND, "dev", "--listen", "127.0.0.1:0", "--data", str(tmp_path), "--json"]
    parent = subprocess.Popen(
        [sys.executable, "-c", program, *dev], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert json.loads(parent.stdout.readline())["address"]
    parent.kill()
    # The server holds the other end of the pipe: it ends when the server does.
    assert parent.stdout.read() == ""
    parent.communicate()


def test_a_command_in_a_pipe(address: str) -> None:
    command = [Path(sys.executable).with_name("mainspring"), "info", "--json", "--server", address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["roles"]


def test_shell_completion() -> None:
    environment = {**os.environ, "_MAINSPRING_COMPLETE": "source_bash"}
    done = subprocess.run(
        [Path(sys.executable).with_name("mainspring")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert "complete -o default -F _mainspring_completion mainspring" in done.stdout
