"""`make stack`: everything starts, is on record, is started again when it dies, and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from native_services.process import start_ticks

from mainspring import Client

from ..faults.cluster import free_ports
from ..faults.processes import eventually

STACK = Path(__file__).parents[2] / "deploy" / "stack.py"
KEYS = {"name", "role", "pid", "log", "command", "cwd", "user"}
SERVICES = {"postgresql", "redis", "kafka"}
ROLES = {"api", "dispatch", "trigger", "sweep"}

pytestmark = pytest.mark.timeout(120)


@dataclass
class Running:
    folder: Path
    child: subprocess.Popen[str]
    output: Path
    by_hand: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Services that a test has started again."""

    def record(self) -> dict[str, Any]:
        """The record; it is replaced in one step, so it can be read at any time."""
        found: dict[str, Any] = json.loads((self.folder / "stack.json").read_text())
        return found

    def member(self, name: str) -> dict[str, Any]:
        return next(entry for entry in self.record()["processes"] if entry["name"] == name)

    @property
    def is_up(self) -> bool:
        assert self.child.poll() is None, self.output.read_text()
        return (self.folder / "stack.json").exists()


def stack(*arguments: object) -> list[str]:
    return [sys.executable, str(STACK), *map(str, arguments)]


def start(folder: Path, *options: object) -> Running:
    folder.mkdir()
    output = folder / "output.txt"
    command = stack("start", "--dir", folder, "--base-port", free_ports(), *options)
    command += ["--stop-with", str(os.getpid())]
    with output.open("w") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True)
    running = Running(folder, child, output)
    try:
        eventually(lambda: running.is_up, 90, "the stack is up")
    except BaseException:
        child.terminate()
        child.wait(60)
        raise
    return running


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = start(tmp_path_factory.mktemp("stack") / "here")
    try:
        yield found
    finally:
        if found.child.poll() is None:
            found.child.terminate()
            found.child.wait(60)


def healthy(address: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        try:
            reply = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=2
            )
        except grpc.RpcError:
            return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def all_gone(pids: list[int]) -> Callable[[], bool]:
    return lambda: all(start_ticks(pid) is None for pid in pids)


def test_the_record_names_everything(running: Running) -> None:
    record = running.record()
    counted: dict[str, int] = {}
    for entry in record["processes"]:
        counted[entry["role"]] = counted.get(entry["role"], 0) + 1
        assert entry.keys() >= KEYS
        assert start_ticks(entry["pid"]) is not None
        assert Path(entry["log"]).exists()
    assert counted == dict.fromkeys(SERVICES, 1) | dict.fromkeys(ROLES, 2)
    urls = record["urls"]
    assert urls["store"].startswith("postgresql://")
    assert urls["wheel"].startswith("redis://")
    assert urls["queue"].startswith("kafka://")
    assert (len(urls["api"]), len(urls["dispatch"])) == (2, 2)
    for entry in record["processes"]:
        assert entry["role"] in SERVICES or healthy(entry["address"])


def test_it_prints_what_to_try(running: Running) -> None:
    output = running.output.read_text()
    assert output.count("grpcurl -plaintext") == 3
    for url in running.record()["urls"].values():
        for address in [url] if isinstance(url, str) else url:
            assert address in output


def test_a_task_runs(running: Running, tmp_path: Path) -> None:
    urls = running.record()["urls"]
    (tmp_path / "greeting.py").write_text(
        "from mainspring_worker import Context, Worker\n"
        "class Greet(Worker):\n"
        "    task_type = 'greet'\n"
        "    async def handle(self, context: Context, given: dict) -> str:\n"
        "        return 'hello ' + given['name']\n"
    )
    mainspring = str(Path(sys.executable).with_name("mainspring"))
    arguments = [mainspring, "--server", ",".join(urls["dispatch"]), "worker", "greeting:Greet"]
    with (tmp_path / "worker.log").open("w") as log:
        worker = subprocess.Popen(arguments, cwd=tmp_path, stderr=log)
    try:
        with Client(",".join(urls["api"])) as client:
            at_once = client.submit("greet", {"name": "Ada"})
            later = client.submit("greet", {"name": "Ada"}, delay=1)
            for submitted in (at_once, later):
                task = client.wait(submitted.task_id, timeout=30)
                assert (task.status.name, task.outcome) == ("SUCCEEDED", b'"hello Ada"')
            info = client.server_info()
    finally:
        worker.terminate()
        worker.wait(30)
    assert (info.trigger_rung.name, info.queue_rung.name) == ("WHEEL", "BROKER")
    assert len({shard.shard for shard in info.shards}) == 64


@pytest.mark.parametrize("role", sorted(ROLES))
def test_a_process_that_dies_is_started_again(running: Running, role: str) -> None:
    name = f"{role}-1"
    before = running.member(name)
    os.kill(before["pid"], signal.SIGKILL)
    began = time.monotonic()
    eventually(lambda: running.member(name)["pid"] != before["pid"], 10, "a new pid is on record")
    assert time.monotonic() - began < 2
    after = running.member(name)
    assert {key: after[key] for key in KEYS - {"pid"}} == {
        key: before[key] for key in KEYS - {"pid"}
    }
    eventually(lambda: healthy(after["address"]), 30, "it serves")


def test_a_second_stack_in_the_folder_is_refused(running: Running) -> None:
    command = stack("start", "--dir", running.folder, "--base-port", free_ports())
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "make stack-stop" in done.stderr
    assert running.is_up


def test_a_service_is_left_to_whoever_stopped_it_and_can_be_started_by_its_record(
    running: Running,
) -> None:
    redis = running.member("redis")
    os.kill(redis["pid"], signal.SIGKILL)
    eventually(all_gone([redis["pid"]]), 10, "Redis is gone")
    child = subprocess.Popen(
        redis["command"], cwd=redis["cwd"], start_new_session=True, stdout=subprocess.DEVNULL
    )
    trigger = running.member("trigger-0")["address"]

    def back() -> bool:
        with Client(trigger) as client:
            return client.server_info().trigger_rung.name == "WHEEL"

    eventually(back, 60, "the wheel is used again")
    assert child.poll() is None
    assert running.member("redis")["pid"] == redis["pid"]
    running.by_hand.append(child)


def test_stop_ends_everything(running: Running) -> None:
    pids = [entry["pid"] for entry in running.record()["processes"]]
    done = subprocess.run(
        stack("stop", "--dir", running.folder), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "stack: stopped\n")
    assert running.child.wait(10) == 0
    assert all_gone(pids)()
    assert [child.wait(5) for child in running.by_hand] == [-signal.SIGKILL]
    assert not (running.folder / "stack.json").exists()
    again = subprocess.run(
        stack("stop", "--dir", running.folder), capture_output=True, text=True, check=False
    )
    assert again.returncode == 0
    assert "no stack runs" in again.stderr


def test_nothing_outlives_a_stack_that_was_killed(tmp_path: Path) -> None:
    options = ("--counts", "api=1,dispatch=1,trigger=1,sweep=1", "--without", "wheel,queue")
    killed = start(tmp_path / "killed", *options)
    pids = [entry["pid"] for entry in killed.record()["processes"]]
    assert len(pids) == 5
    assert killed.record()["urls"]["wheel"] is None
    killed.child.kill()
    killed.child.wait()
    eventually(all_gone(pids), 30, "its processes have ended with it")
    again = subprocess.run(stack("stop", "--dir", killed.folder), check=False, capture_output=True)
    assert again.returncode == 0
