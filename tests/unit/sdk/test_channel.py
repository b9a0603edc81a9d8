"""Where the servers are."""

import socket
from typing import Any

import pytest

from mainspring._channel import DEFAULT_SERVER, OPTIONS, Settings, server_list, target


def test_argument_before_environment_before_default() -> None:
    environ = {"MAINSPRING_SERVER": "b:1"}
    assert server_list("a:1", environ) == ["a:1"]
    assert server_list(None, environ) == ["b:1"]
    assert server_list(None, {}) == [DEFAULT_SERVER]


def test_several_by_comma() -> None:
    assert server_list(" a:1, b:2 ,", {}) == ["a:1", "b:2"]


@pytest.mark.parametrize("text", ["localhost", "a:1,b", ","])
def test_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        server_list(text, {})


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["scheduler.internal:7400"], "scheduler.internal:7400"),
        (["127.0.0.1:7400", "127.0.0.2:7401"], "ipv4:127.0.0.1:7400,127.0.0.2:7401"),
        (["[::1]:7400", "[::2]:7400"], "ipv6:[::1]:7400,[::2]:7400"),
        (["127.0.0.1:7400", "[::1]:7400"], "ipv6:[::ffff:127.0.0.1]:7400,[::1]:7400"),
    ],
)
def test_targets(addresses: list[str], expected: str) -> None:
    assert target(addresses) == expected


def test_names_of_a_list_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: str, **_: Any) -> list[Any]:
        return [(0, 0, 0, "", (f"10.0.0.{host[-1]}", int(port)))] * 2

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert target(["node1:7400", "node2:7400"]) == "ipv4:10.0.0.1:7400,10.0.0.2:7400"


def test_a_dead_peer_is_noticed_within_30_seconds() -> None:
    options = dict(OPTIONS)
    assert (
        int(options["grpc.keepalive_time_ms"]) + int(options["grpc.keepalive_timeout_ms"]) <= 30_000
    )


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Settings.of("a:1", None, None, 0.0)
    assert Settings.of("a:1", "t", None, None).metadata == (("authorization", "Bearer t"),)
