"""The server that users' tests run in their own process."""

from datetime import UTC, datetime, timedelta

import pytest

from mainspring import Client, TaskStatus
from mainspring_server.config import ConfigError
from mainspring_server.testing import LocalServer
from mainspring_worker import Context, Runner, Worker


class Greet(Worker):
    task_type = "greet"

    def handle(self, context: Context, name: str) -> str:
        if name == "nobody" and context.attempt == 1:
            raise LookupError("there is nobody yet")
        return f"hello {name}"


def test_a_delayed_task_runs_when_time_is_moved() -> None:
    with LocalServer() as server, Client(server.address) as client:
        runner = Runner([Greet()], server=server.address, slots=1)
        runner.start()
        task_id = client.submit("greet", "ada", delay=timedelta(hours=1)).task_id
        server.advance(3_599)
        assert client.get(task_id).status is TaskStatus.PENDING
        server.advance(1)
        assert client.wait(task_id, timeout=20).result() == "hello ada"
        runner.stop()


def test_a_retry_waits_for_the_clock() -> None:
    with LocalServer() as server, Client(server.address) as client:
        runner = Runner([Greet()], server=server.address, slots=1)
        runner.start()
        task_id = client.submit("greet", "nobody").task_id
        seen = []
        for change in client.watch([task_id], timeout=20):
            seen.append(change.status)
            if change.status is TaskStatus.PENDING:
                server.advance(60)
        runner.stop()
        task = client.get(task_id)
    assert (task.status, task.attempts) == (TaskStatus.SUCCEEDED, 2)
    assert TaskStatus.PENDING in seen


def test_it_begins_when_it_is_told_to() -> None:
    start = datetime(2030, 5, 1, 12, tzinfo=UTC)
    with LocalServer(start) as server, Client(server.address) as client:
        assert server.now == start
        created = client.get(client.submit("greet", "ada").task_id).create_time
        assert created == start
        server.advance(timedelta(days=400))
        assert server.now == start + timedelta(days=400)


def test_the_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "STORE": "postgresql://elsewhere/db",
        "WHEEL": "redis://elsewhere:6379/0",
        "QUEUE": "kafka://elsewhere:9092",
        "ROLES": "api",
        "LISTEN": "elsewhere:1",
        "LEASE_MS": "1",
        "HOLD_MS": "1",
        "LIMITS": '{"payload_bytes": 1}',
    }.items():
        monkeypatch.setenv(f"MAINSPRING_{name}", value)
    with LocalServer() as server, Client(server.address) as client:
        assert client.submit("greet", "ada").status is TaskStatus.READY


def test_settings_are_given_by_name() -> None:
    with LocalServer(heartbeat_ms=1_000) as server, Client(server.address) as client:
        assert client.server_info().heartbeat_interval == timedelta(seconds=1)


def test_a_bad_setting_is_refused_and_nothing_is_left_behind() -> None:
    with pytest.raises(ConfigError, match="lease_ms"):
        LocalServer(lease_ms=-1).__enter__()


def test_it_serves_once_at_a_time_and_again_afterwards() -> None:
    server = LocalServer()
    with pytest.raises(RuntimeError, match="with block"):
        _ = server.address
    with pytest.raises(RuntimeError, match="with block"):
        server.advance(1)
    with server, pytest.raises(RuntimeError, match="runs already"):
        server.__enter__()
    with server, Client(server.address) as client:
        assert client.count().total == 0


def test_time_does_not_go_back() -> None:
    with LocalServer() as server, pytest.raises(ValueError, match="only grows"):
        server.advance(-1)
