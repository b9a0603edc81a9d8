"""Connections to the brokers: the one door through which everything goes to Kafka.

Built on the driver's connections and messages rather than on its producer and consumer, for what
the queue needs and those do not give: a partition may be taken or given up without disturbing the
others, a slow poll of one never delays another, topic ids are seen, and while a broker is away
nothing turns in a loop or fills the log. Every failure is Unavailable.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import CreateTopicsRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from ...clock import Clock
from ...domain.errors import Unavailable
from .protocol import Metadata, MetadataRequest, Topic, read_metadata

log = logging.getLogger(__name__)

CONTROL = "control"
PRODUCE = "produce"

_BACKOFF_MS = 100
_BACKOFF_MAX_MS = 1_000
_IDLE_MS = 300_000
_GROUP = 0

TOPIC_EXISTS = 36


def unavailable(what: str, error: object = None) -> Unavailable:
    """Kafka, or a part of it, cannot be used now."""
    detail = "" if error is None else f": {error or type(error).__name__}"
    return Unavailable("QUEUE_UNAVAILABLE", f"Kafka {what}{detail}")


class Cluster:
    """The brokers behind `brokers` (`host:port,host:port`), reached when first needed."""

    def __init__(self, brokers: str, clock: Clock, *, timeout_ms: int, client: str) -> None:
        self._bootstrap = [_address(part) for part in brokers.split(",") if part.strip()]
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._client = client
        self._nodes: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int, str], Any] = {}
        self._locks: dict[tuple[str, int, str], asyncio.Lock] = {}
        self._refused: dict[tuple[str, int], tuple[int, int, str]] = {}  # retry at, pause, why
        self._closing: set[asyncio.Future[None]] = set()
        self._controller = -1
        self._coordinators: dict[str, int] = {}
        self._closed = False
        self.requests: Counter[str] = Counter()
        """Requests sent, by kind."""

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        for connection in self._connections.values():
            self._part(connection)
        self._connections.clear()
        if self._closing:
            await asyncio.wait(self._closing, timeout=self._timeout_ms / 1000)

    # --- Requests -----------------------------------------------------------------------------

    async def send(self, node: int, request: Any, channel: str = CONTROL) -> Any:
        """The response of one broker; requests of one channel are answered in order."""
        address = self._nodes.get(node)
        if address is None:
            raise unavailable(f"has no broker {node}")
        return await self._send(address, request, channel)

    async def metadata(self, names: Sequence[str] | None) -> Metadata:
        """What any broker says about these topics (None: all) and the cluster."""
        response = await self._ask(MetadataRequest(names))
        found = read_metadata(response)
        self._nodes = found.brokers
        self._controller = found.controller
        return found

    async def create(
        self, names: Sequence[str], partitions: int, replication: int, configs: dict[str, str]
    ) -> dict[str, str]:
        """Make topics; answers what went wrong by name. One that exists already is fine."""
        wanted: list[Any] = [
            (name, partitions, replication, [], list(configs.items())) for name in names
        ]
        if self._controller not in self._nodes:
            await self.metadata([])
        response = await self.send(
            self._controller, CreateTopicsRequest(wanted, self._timeout_ms, False)
        )
        return {
            name: message or f"error {code}"
            for name, code, message in response.topic_errors
            if code not in (0, TOPIC_EXISTS)
        }

    async def coordinate(self, group: str, request: Any) -> Any:
        """The response of the coordinator of a consumer group."""
        node = self._coordinators.get(group)
        if node is None or node not in self._nodes:
            found = await self._ask(FindCoordinatorRequest(group, _GROUP))
            if found.error_code:
                raise unavailable(
                    f"has no coordinator for {group} yet", f"error {found.error_code}"
                )
            node = self._coordinators[group] = found.coordinator_id
            self._nodes.setdefault(node, (found.host, found.port))
        try:
            return await self.send(node, request)
        except Unavailable:
            self.forget_coordinator(group)
            raise

    def forget_coordinator(self, group: str) -> None:
        """It answered that it is not the one any more."""
        self._coordinators.pop(group, None)

    # --- Connections --------------------------------------------------------------------------

    async def _ask(self, request: Any) -> Any:
        """The response of the first broker that gives one."""
        known = list(self._nodes.values())
        error: Unavailable | None = None
        for address in dict.fromkeys((*known, *self._bootstrap)):
            try:
                return await self._send(address, request, CONTROL)
            except Unavailable as refused:
                error = refused
        raise error or unavailable("has no brokers configured")

    async def _send(self, address: tuple[str, int], request: Any, channel: str) -> Any:
        connection = await self._connect((*address, channel))
        self.requests[type(request).__name__.removesuffix("Request")] += 1
        try:
            return await connection.send(request)
        except (KafkaError, OSError, TimeoutError) as error:
            # what is still to come on it has no reader: start again
            self._drop((*address, channel), connection)
            raise unavailable("did not answer", error) from error

    async def _connect(self, key: tuple[str, int, str]) -> Any:
        found = self._connections.get(key)
        if found is not None and found.connected():
            return found
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = self._connections.get(key)
            if found is not None and found.connected():
                return found
            if self._closed:
                raise unavailable("is closed")
            return await self._open(key)

    async def _open(self, key: tuple[str, int, str]) -> Any:
        host, port, _ = key
        retry_at, pause, why = self._refused.get((host, port), (0, 0, ""))
        if self._clock.monotonic() < retry_at:
            raise unavailable(f"at {host}:{port} cannot be reached", why)
        try:
            made: Any = AIOKafkaConnection
            connection = made(
                host,
                port,
                client_id=self._client,
                request_timeout_ms=self._timeout_ms,
                max_idle_ms=_IDLE_MS,
            )
            await connection.connect()
        except (KafkaError, OSError, TimeoutError) as error:
            pause = min(max(2 * pause, _BACKOFF_MS), _BACKOFF_MAX_MS)
            why = str(error) or type(error).__name__
            self._refused[host, port] = (self._clock.monotonic() + pause, pause, why)
            raise unavailable(f"at {host}:{port} cannot be reached", why) from error
        self._refused.pop((host, port), None)
        if self._closed:  # meanwhile
            self._part(connection)
            raise unavailable("is closed")
        self._connections[key] = connection
        return connection

    def _drop(self, key: tuple[str, int, str], connection: Any) -> None:
        if self._connections.get(key) is connection:
            del self._connections[key]
        self._part(connection)

    def _part(self, connection: Any) -> None:
        closed = connection.close()
        if closed is not None and not closed.done():
            self._closing.add(closed)
            closed.add_done_callback(self._closing.discard)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    return host.strip("[]"), int(port)


def by_topic(rows: Sequence[tuple[Topic, Any]]) -> list[tuple[str, list[Any]]]:
    """Group rows as requests want them: (topic name, rows of that topic)."""
    grouped: dict[str, list[Any]] = {}
    for topic, row in rows:
        grouped.setdefault(topic.name, []).append(row)
    return list(grouped.items())
