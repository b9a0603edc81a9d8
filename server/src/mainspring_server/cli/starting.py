"""From a command line to a running server: logging, settings, port, event loop, first words."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, Any

from .exits import CliError, ExitCode, usage_error
from .output import for_people, print_json_line, print_line
from .parsing import parse_listen

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..app import App
    from ..config import Settings
    from ..domain.errors import MainspringError


def begin(stop_with: int | None, log_level: str) -> None:
    """Set up logging, and the end with the parent, for a command that lasts."""
    import logging

    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise usage_error(f"--log-level: {log_level!r} is none of debug, info, warning, error")
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    if stop_with is not None:
        from .parent import stop_with as end_with

        end_with(stop_with)


def read_settings(**given: Any) -> Settings:
    """The configuration of arguments and environment; CliError names what is wrong in it."""
    from ..config import ConfigError, load_settings

    try:
        return load_settings(**given)
    except ConfigError as error:
        raise CliError(f"the configuration is not valid:\n{error}", ExitCode.USAGE) from None


def check_port(settings: Settings) -> None:
    """Say who is in the way before anything is opened; gRPC's own message names no remedy."""
    host, port = parse_listen(settings.listen)
    if port == 0:
        return
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the server will: a connection of a server that ended is no reason to wait.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise _cannot_listen(settings.listen, error) from None


def _cannot_listen(listen: str, error: OSError) -> CliError:
    import errno

    if error.errno == errno.EADDRINUSE:
        return CliError(
            f"cannot listen on {listen}: the port is taken",
            ExitCode.UNAVAILABLE,
            hint="Another program, perhaps another Mainspring, serves there: stop it, or choose "
            "another port with --listen HOST:PORT.",
        )
    return CliError(
        f"cannot listen on {listen}: {error.strerror or error}",
        ExitCode.UNAVAILABLE,
        hint="Choose an address of this machine and a free port with --listen HOST:PORT.",
    )


def cannot_serve(error: MainspringError) -> CliError:
    """What the store, or another service, has against it."""
    from ..domain.errors import FailedPrecondition, Unavailable

    if isinstance(error, Unavailable):
        hint = "Check that it runs at the address that --store, --wheel or --queue names."
        return CliError(error.message, ExitCode.UNAVAILABLE, hint=hint, reason=error.reason)
    conflict = isinstance(error, FailedPrecondition)
    code = ExitCode.CONFLICT if conflict else ExitCode.INTERNAL
    return CliError(error.message, code, reason=error.reason)


def announce(app: App, as_json: bool, detail: str) -> None:
    """Say that it serves, and where: with --json one line, which scripts can wait for."""
    from .. import __version__

    host = app.settings.listen.rpartition(":")[0]
    address = f"{host}:{app.grpc.port}"
    if as_json:
        print_json_line({"address": address, "pid": os.getpid(), "version": __version__})
        return
    print_line(f"Mainspring {__version__} serves on {address}, {detail}", style="bold green")
    if for_people():
        print_line("Try `mainspring info`, `mainspring submit greet '{}'`, or")
        print_line(f"`grpcurl -plaintext {address} list`. Ctrl-C stops it.")


def run_server(settings: Settings, started: Callable[[App], None]) -> None:
    """Run a server in this process until it is told to stop."""
    from ..app import serve as serve_app
    from ..domain.errors import MainspringError

    try:
        _run(serve_app(settings, started))
    except MainspringError as error:
        raise cannot_serve(error) from None
    except NotImplementedError as error:
        raise CliError(f"not supported by this version: {error}", ExitCode.UNIMPLEMENTED) from None
    except OSError as error:
        raise CliError(str(error), ExitCode.UNAVAILABLE) from None


def run_group(processes: int) -> None:
    """Run this very command several times, on one port."""
    from .process_group import ProcessGroup, this_command

    arguments = list(sys.argv[1:])
    command = this_command([*arguments, "--processes", "1"])
    os.environ["MAINSPRING_SHARE_PORT"] = "true"
    _run(ProcessGroup(command, processes).run())


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is installed: the same results with less processor time."""
    import asyncio

    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)
