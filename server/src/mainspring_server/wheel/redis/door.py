"""The one door to Redis: every command goes through here and is counted.

Built on the driver's connection rather than on its client, so that nothing is sent, retried or
repeated behind the wheel's back: one connection for commands, one for what is published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from redis.asyncio.connection import Connection, parse_url
from redis.exceptions import RedisError, ResponseError

from ...domain.errors import FailedPrecondition, Unavailable

Command = Sequence[str | bytes | int]

UNAVAILABLE = "WHEEL_UNAVAILABLE"
UNUSABLE = "WHEEL_UNUSABLE"

POLICY = "noeviction"
OLDEST = (6, 2)
"""The release that brought ZMSCORE."""


def away(error: object) -> Unavailable:
    """Redis cannot be used now."""
    what = str(error).rstrip(".") or type(error).__name__
    return Unavailable(UNAVAILABLE, f"Redis is away: {what}")


class Door:
    """Connects when first needed, and again after a failure. A reply that takes longer than
    `timeout_ms` is a failure.
    """

    def __init__(self, url: str, *, timeout_ms: int) -> None:
        try:
            given: dict[str, Any] = dict(parse_url(url))
        except ValueError as error:
            raise FailedPrecondition(UNUSABLE, f"{url!r} is no address of a Redis: {error}")
        self._kind = given.pop("connection_class", Connection)
        self._timeout = timeout_ms / 1_000
        self._given = {"socket_connect_timeout": self._timeout, "protocol": 2} | given
        # What the handshake sends: AUTH and SELECT.
        self._greeting = sum(name in given for name in ("password", "db")) - (given.get("db") == 0)
        self._connection: Any = None
        self._lock = asyncio.Lock()
        self.commands = 0
        """Commands sent so far, those that scripts ran included: what `INFO commandstats` counts."""

    async def call(self, *command: str | bytes | int) -> Any:
        """One command; an error that Redis answers is raised as Unavailable."""
        (reply,) = await self.calls([command])
        if isinstance(reply, ResponseError):
            raise away(reply)
        return reply

    async def calls(self, commands: Sequence[Command]) -> list[Any]:
        """Several commands in one round trip; an error that Redis answers stands in its place."""
        if not commands:
            return []
        async with self._lock:
            try:
                connection = await self._connected()
                await connection.send_packed_command(connection.pack_commands(commands))
                self.commands += len(commands)
                return [await _reply(connection) for _ in commands]
            except BaseException as error:
                # Replies may be under way that nobody waits for any more.
                await self._disconnect()
                if isinstance(error, (RedisError, OSError)):
                    raise away(error)
                raise

    async def check(self) -> None:
        """Unavailable if Redis does not answer, FailedPrecondition if it is of no use."""
        info = dict(
            line.split(":", 1)
            for line in (await self.call("INFO")).decode().splitlines()
            if ":" in line
        )
        release = info.get("redis_version", "0")
        if tuple(int(part) for part in release.split(".")[:2]) < OLDEST:
            raise FailedPrecondition(
                UNUSABLE,
                f"Redis is {release}; the wheel needs {OLDEST[0]}.{OLDEST[1]} or later",
            )
        policy = info.get("maxmemory_policy", POLICY)
        if policy != POLICY:
            raise FailedPrecondition(
                UNUSABLE,
                f"Redis evicts keys (maxmemory-policy is {policy}): the wheel would forget tasks. "
                f"Set maxmemory-policy to {POLICY}",
            )

    async def listen(
        self, channel: str, started: Callable[[], None], receive: Callable[[bytes], None]
    ) -> None:
        """Pass on what is published until the connection breaks, which raises Unavailable."""
        connection = self._new(None)
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect()
                await connection.send_command("SUBSCRIBE", channel)
                await connection.read_response()
            self.commands += 1 + self._greeting
            started()
            while True:
                kind, _, data = await connection.read_response()
                if kind == b"message":
                    receive(data)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            raise away(error)
        finally:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Disconnect."""
        async with self._lock:
            await self._disconnect()

    async def _connected(self) -> Any:
        if self._connection is None:
            connection = self._connection = self._new(self._timeout)
            await connection.connect()
            self.commands += self._greeting
        return self._connection

    def _new(self, timeout: float | None) -> Any:
        connection = self._kind(**self._given, socket_timeout=timeout)
        connection.driver_info = None  # or it would send CLIENT SETINFO, twice
        return connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


async def _reply(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error
