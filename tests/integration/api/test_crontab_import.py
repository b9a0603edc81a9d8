"""`mainspring import crontab`, the schedules it makes, and the worker that runs them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from mainspring import Client, RetryPolicy, TaskStatus
from mainspring_server.cli.app import main
from mainspring_server.testing import LocalServer
from mainspring_worker import Runner
from mainspring_worker.testing import run_handler

WORKER = Path(__file__).parents[3] / "examples" / "command_worker" / "worker.py"
CRONTAB = """\
GREETING="hello there"
CRON_TZ=Europe/Paris
*/10 8-17 * * MON-FRI  echo "$GREETING"
30 2 * * *             cat%from%standard input
"""


@pytest.fixture(scope="session")
def example() -> ModuleType:
    spec = spec_from_file_location("command_worker_example", WORKER)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@dataclass
class Shell:
    """`mainspring import crontab FILE` in this process: exit code, standard output, error output."""

    file: Path
    address: str
    patch: pytest.MonkeyPatch
    output: pytest.CaptureFixture[str]

    def __call__(self, text: str, *options: str) -> tuple[int, str, str]:
        self.file.write_text(text)
        command = ["mainspring", "import", "crontab", str(self.file), "--server", self.address]
        self.patch.setattr(sys, "argv", [*command, *options])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self.output.readouterr()
        return int(ended.value.code or 0), out, err


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer() as running:
        yield running


@pytest.fixture
def shell(
    server: LocalServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    return Shell(tmp_path / "crontab", server.address, monkeypatch, capsys)


def test_a_crontab_becomes_schedules_that_run(
    server: LocalServer, shell: Shell, example: ModuleType
) -> None:
    code, out, _ = shell(CRONTAB, "--json")
    assert code == 0
    greet, cat = json.loads(out)["schedules"]
    assert (greet["expression"], greet["time_zone"]) == ("*/10 8-17 * * MON-FRI", "Europe/Paris")
    with Client(server.address) as client:
        state = client.get_schedule(greet["task_id"])
        assert state.cron is not None
        assert (state.cron.time_zone, state.cron.exact) == ("Europe/Paris", True)
        runner = Runner([example.CommandWorker()], server=server.address, slots=2)
        runner.start()
        for schedule, said in ((greet, "hello there\n"), (cat, "from\nstandard input\n")):
            task_id = client.trigger(schedule["task_id"]).task_id
            result = client.wait(task_id, timeout=20).result()
            assert result == {"exit_code": 0, "output": said}
        runner.stop()
        again = json.loads(shell(CRONTAB, "--json")[1])["schedules"]
        assert [row["task_id"] for row in again] == [greet["task_id"], cat["task_id"]]


def test_nothing_is_imported_while_a_line_is_refused(server: LocalServer, shell: Shell) -> None:
    code, out, err = shell(f"{CRONTAB}@reboot /bin/once\n0 0 31 2 * never\n61 * * * * odd\n")
    assert (code, out) == (4, "")
    for words in ("3 of its lines", "line 5: @reboot", "line 6", "line 7"):
        assert words in err
    assert "Traceback" not in err
    with Client(server.address) as client:
        assert client.count("").total == 0
    assert shell(CRONTAB, "--dry-run")[0] == 0
    with Client(server.address) as client:
        code, out, _ = shell("", "--json")
        assert (code, json.loads(out)) == (0, {"schedules": []})


def test_a_command_that_fails_fails_its_task(server: LocalServer, example: ModuleType) -> None:
    with Client(server.address) as client:
        runner = Runner([example.CommandWorker()], server=server.address, slots=1)
        runner.start()
        once = RetryPolicy(max_attempts=1)
        command = {"command": "echo so far; exit 3"}
        task = client.wait(client.submit("command", command, retry=once).task_id, timeout=20)
        runner.stop()
    assert task.status is TaskStatus.FAILED
    assert "exit code 3" in str(task.last_error)
    assert "so far" in str(task.last_error)


def eventually(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_cancelled_command_takes_its_children_along(
    server: LocalServer, example: ModuleType, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    command = f"sleep 300 & echo $! > {mark}; wait"
    with Client(server.address) as client:
        runner = Runner([example.CommandWorker()], server=server.address, slots=1)
        runner.start()
        task_id = client.submit("command", {"command": command}).task_id
        eventually(lambda: mark.exists() and mark.read_text().strip() != "")
        child = Path("/proc") / mark.read_text().strip()
        assert child.exists()
        client.cancel(task_id)
        eventually(lambda: not child.exists() or "zombie" in (child / "status").read_text())
        runner.stop()
        assert client.get(task_id).status is TaskStatus.CANCELLED


def test_only_the_end_of_a_long_output_is_kept(example: ModuleType) -> None:
    run = run_handler(example.CommandWorker(), {"command": "seq 1 100000"})
    text = run.value["output"]
    assert len(text) <= example.OUTPUT_BYTES
    assert text.endswith("99999\n100000\n")
