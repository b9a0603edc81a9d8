"""Where the servers are, and how channels to them are set up."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import grpc

from . import __version__

SERVER_VARIABLE: Final = "MAINSPRING_SERVER"
"""The environment variable that is read when no server is given."""
DEFAULT_SERVER: Final = "127.0.0.1:7400"
"""The server when neither argument nor variable names one."""
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""The largest message, both ways; the server's own cap."""
KEEPALIVE_TIME: Final = 20.0
"""Seconds of silence after which the peer is pinged."""
KEEPALIVE_TIMEOUT: Final = 8.0
"""Seconds that it has to answer: a dead peer is noticed within 28 s."""

_SERVICE_CONFIG = '{"loadBalancingConfig": [{"round_robin": {}}]}'

OPTIONS: Final[tuple[tuple[str, int | str], ...]] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", int(KEEPALIVE_TIME * 1000)),
    ("grpc.keepalive_timeout_ms", int(KEEPALIVE_TIMEOUT * 1000)),
    # Also between calls: the next one must not be the one that finds the peer dead.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # gRPC's own backoff grows to two minutes; a server that restarts is back within seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Among several addresses: calls in turn, and only to those that answer.
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.primary_user_agent", f"mainspring-sdk-python/{__version__}"),
)
"""Channel options of every client."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a client was told about its servers; checked when it is made."""

    addresses: tuple[str, ...]
    """The servers."""
    credentials: grpc.ChannelCredentials | None
    """TLS, or None for plain text."""
    metadata: tuple[tuple[str, str], ...]
    """Sent with each call."""
    timeout: float | None
    """Default deadline of unary calls; None for that of each call in `retry.RULES`."""

    @classmethod
    def of(
        cls,
        server: str | None,
        token: str | None,
        credentials: grpc.ChannelCredentials | None,
        timeout: float | None,
    ) -> "Settings":
        """Check what a client was given.

        Raises:
            ValueError: An address has no port, or the timeout is not above zero.
        """
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}: pass seconds above 0")
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        return cls(tuple(server_list(server)), credentials, metadata, timeout)

    @property
    def server(self) -> str:
        """The servers, for error messages."""
        return ",".join(self.addresses)


def server_list(server: str | None, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The addresses to use: the argument, else the environment, else the default.

    Raises:
        ValueError: An address has no port.
    """
    text = server or environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
    addresses = [part.strip() for part in text.split(",") if part.strip()]
    for address in addresses:
        if ":" not in address:
            raise ValueError(f"{address!r} has no port: a server is HOST:PORT, several by comma")
    if not addresses:
        raise ValueError(f"{text!r} names no server: pass HOST:PORT, several by comma")
    return addresses


def target(addresses: Sequence[str]) -> str:
    """What gRPC dials for these addresses.

    A single one goes to gRPC as it is, so that its name is looked up again as needed and each of
    the name's addresses is used. Of a list the names are looked up here, once: gRPC takes lists of
    literal addresses only.

    Raises:
        OSError: A name of a list is unknown.
    """
    if len(addresses) == 1:
        return addresses[0]
    literals = [literal for address in addresses for literal in _literals(address)]
    if all(isinstance(host, IPv4Address) for host, _ in literals):
        return "ipv4:" + ",".join(f"{host}:{port}" for host, port in literals)
    # gRPC mixes no families: version 4 goes as its image in version 6.
    return "ipv6:" + ",".join(
        f"[::ffff:{host}]:{port}" if isinstance(host, IPv4Address) else f"[{host}]:{port}"
        for host, port in literals
    )


def _literals(address: str) -> list[tuple[IPv4Address | IPv6Address, int]]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        return [(ip_address(host), int(port))]
    except ValueError:
        pass
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # Keys of a dict: each address once, in the resolver's order.
    return list(dict.fromkeys((ip_address(entry[4][0]), int(port)) for entry in found))
