"""The way to a server: calls by their names in the contract, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from mainspring import Client
from mainspring.errors import MainspringError, from_rpc_error

from .exits import CliError, ExitCode, exit_code_of, usage_error

CALL_TIMEOUT_S = 30.0
RECONNECT_S = 30.0


class Connection:
    """The calls of SchedulerService and AdminService, as messages of the protos.

    A call is made once: who types a command wants to know at once that nobody listens.
    """

    def __init__(self, client: Client, server: str) -> None:
        self._raw = client.raw
        self._server = server

    def call(self, rpc: str, request: Any) -> Any:
        """The reply of a unary call; CliError instead of every other end."""
        method = self._method(rpc)
        try:
            return method(request, timeout=CALL_TIMEOUT_S, metadata=self._raw.metadata)
        except grpc.RpcError as error:
            raise self._failure(error) from None

    def stream(self, rpc: str, request: Any, *, timeout_s: float | None) -> Iterator[Any]:
        """The replies of a streaming call, until its end; CliError instead of another end."""
        call = self._method(rpc)(request, timeout=timeout_s, metadata=self._raw.metadata)
        try:
            yield from call
        except grpc.RpcError as error:
            raise self._failure(error) from None
        finally:
            call.cancel()

    def wait_until_ready(self, limit_s: float | None) -> None:
        """Wait for a server that went away to be back; CliError if it is not in time."""
        limit = RECONNECT_S if limit_s is None else min(limit_s, RECONNECT_S)
        try:
            grpc.channel_ready_future(self._raw.channel).result(timeout=limit)
        except grpc.FutureTimeoutError:
            raise _nobody(self._server) from None

    def _method(self, rpc: str) -> Any:
        return getattr(self._raw.scheduler, rpc, None) or getattr(self._raw.admin, rpc)

    def _failure(self, error: grpc.RpcError) -> CliError:
        return explain_failure(from_rpc_error(error, self._server), self._server)


@contextmanager
def connect(server: str) -> Iterator[Connection]:
    """A connection to the first of a comma list of servers that answers."""
    try:
        client = Client(server)
    except ValueError as error:
        raise usage_error(f"--server: {error}") from None
    with client:
        try:
            connection = Connection(client, server)
        except OSError as error:
            raise usage_error(f"--server: {server}: {error.strerror or error}") from None
        yield connection


def explain_failure(error: MainspringError, server: str) -> CliError:
    """What the server, or the lack of one, means for who typed the command."""
    # A reason is sent by Mainspring; without one the connection itself failed.
    if error.code is grpc.StatusCode.UNAVAILABLE and not error.reason:
        return _nobody(server)
    lines = [error.message]
    lines += [
        f"  {item.field}: {item.description}"
        for item in error.field_violations
        if item.description not in error.message
    ]
    return CliError(
        "\n".join(lines),
        exit_code_of(error.code.name),
        hint=_hint(error, server),
        reason=error.reason,
        field=error.field_violations[0].field if error.field_violations else "",
    )


def _nobody(server: str) -> CliError:
    return CliError(
        f"no server answers at {server}",
        ExitCode.UNAVAILABLE,
        hint="Start one with `mainspring dev`, or say where it is with --server HOST:PORT or "
        "MAINSPRING_SERVER.",
    )


def _hint(error: MainspringError, server: str) -> str:
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return (
            f"{server} did not answer within {CALL_TIMEOUT_S:.0f}s; try again, or look at its log."
        )
    if error.retry_after is not None:
        return f"Try again in {error.retry_after:.1f}s."
    return _HINTS.get(error.reason, "")


_HINTS = {
    "TASK_NOT_FOUND": "`mainspring list` shows the tasks; those that ended are kept for a week.",
    "IDEMPOTENCY_KEY_REUSED": "Use another --key, or submit exactly what was submitted first.",
    "SERVER_DRAINING": "This server is stopping; name another with --server, or try again.",
}
