"""The commands that are a server: dev, serve, migrate."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .exits import CliError, ExitCode, usage_error
from .options import DEFAULT_SERVER, JsonOption, shared
from .output import for_people, print_json, print_json_line, print_line, print_note, print_table
from .parsing import parse_duration, parse_listen

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..app import App
    from ..config import Settings
    from ..domain.errors import MainspringError
    from ..store.postgres.migrate import MigrationStatus

DATABASE = "mainspring.db"

StopWithOption = Annotated[
    int | None,
    typer.Option(
        "--stop-with", metavar="PID", help="Stop when process PID, which started this one, ends."
    ),
]
LeaseOption = Annotated[
    str | None,
    typer.Option(
        "--lease", metavar="DURATION", help="How long a lease lasts from a beat. Default 60s."
    ),
]
HeartbeatOption = Annotated[
    str | None,
    typer.Option("--heartbeat", metavar="DURATION", help="How often workers beat. Default 15s."),
]
LogOption = Annotated[
    str, typer.Option("--log-level", help="debug, info, warning or error.", metavar="LEVEL")
]


def data_folder() -> Path:
    """Where `dev` keeps its data for this user when no folder is named."""
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/mainspring"
    configured = os.environ.get("XDG_DATA_HOME")
    base = Path(configured) if configured and Path(configured).is_absolute() else None
    return (base or Path.home() / ".local/share") / "mainspring"


def dev(
    context: typer.Context,
    listen: Annotated[
        str,
        typer.Option(
            "--listen", envvar="MAINSPRING_LISTEN", help="Where to serve; port 0 takes a free one."
        ),
    ] = DEFAULT_SERVER,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", help="Where to keep the data. Default: a folder of this user."
        ),
    ] = None,
    lease: LeaseOption = None,
    heartbeat: HeartbeatOption = None,
    log_level: LogOption = "warning",
    stop_with: StopWithOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a whole Mainspring in this process, on a SQLite file: for development and small machines.

    With --json one line with the address is printed once it serves.
    """
    begin(stop_with, log_level)
    folder = (data or data_folder()).expanduser().absolute()
    _make_folder(folder)
    settings = _settings(
        listen=listen,
        store=f"sqlite:///{folder / DATABASE}",
        lease_ms=lease and parse_duration(lease, "--lease"),
        heartbeat_ms=heartbeat and parse_duration(heartbeat, "--heartbeat"),
        # One process, one database: what the environment says about a cluster is not meant for it.
        wheel="",
        queue="",
        roles="api,trigger,dispatch,sweep",
    )
    _check_port(settings)
    as_json = shared(context, None, as_json).json
    _run_server(settings, lambda app: _announce(app, as_json, f"data in {folder}"))


def serve(
    context: typer.Context,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            help="api, trigger, dispatch or sweep; repeat it, or write a comma list. Default: all.",
            metavar="ROLE",
        ),
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help=f"Default {DEFAULT_SERVER}.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="URL", help="postgresql://… or sqlite:///PATH (MAINSPRING_STORE)."
        ),
    ] = None,
    wheel: Annotated[
        str | None, typer.Option("--wheel", metavar="URL", help="redis://… (MAINSPRING_WHEEL).")
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", metavar="URL", help="kafka://HOST:PORT,… (MAINSPRING_QUEUE)."),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=256, help="Processes that share the port.")
    ] = 1,
    lease: LeaseOption = None,
    heartbeat: HeartbeatOption = None,
    log_level: LogOption = "info",
    stop_with: StopWithOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a server of a cluster: one role or several, on the store, wheel and queue that you name.

    Every option can come from the environment too: MAINSPRING_STORE, MAINSPRING_WHEEL, and so on.
    """
    begin(stop_with, log_level)
    settings = _settings(
        roles=",".join(role) if role else None,
        listen=listen,
        store=store,
        wheel=wheel,
        queue=queue,
        lease_ms=lease and parse_duration(lease, "--lease"),
        heartbeat_ms=heartbeat and parse_duration(heartbeat, "--heartbeat"),
    )
    if processes > 1 and settings.sqlite_path is not None:
        raise usage_error(
            "--processes: a sqlite store belongs to one process", hint="Use a postgresql:// store."
        )
    if not settings.share_port:
        _check_port(settings)
    if processes > 1:
        _run_group(processes)
        return
    as_json = shared(context, None, as_json).json
    roles = ", ".join(sorted(role.value for role in settings.roles))
    _run_server(settings, lambda app: _announce(app, as_json, f"roles {roles}"))


def migrate(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Option("--store", envvar="MAINSPRING_STORE", metavar="URL", help="postgresql://…"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be applied.")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Say which migrations are applied.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring a PostgreSQL store to this version's schema. A SQLite store does that itself."""
    import asyncio

    if not store:
        raise usage_error(
            "no store is named", hint="Write --store postgresql://… or set MAINSPRING_STORE."
        )
    if not store.startswith(("postgresql://", "postgres://")):
        raise usage_error(
            f"--store: only a postgresql:// store is migrated by hand, not {store.partition(':')[0]}"
        )
    from ..domain.errors import MainspringError
    from ..store.postgres.migrate import migrate as apply
    from ..store.postgres.migrate import migration_status

    as_json = shared(context, None, as_json).json
    try:
        if status:
            _show_migrations(asyncio.run(migration_status(store)), as_json)
            return
        names = asyncio.run(apply(store, dry_run=dry_run))
    except MainspringError as error:
        raise _cannot_serve(error) from None
    if as_json:
        print_json({"dry_run": dry_run, "migrations": names})
    elif not names:
        print_note("The schema is up to date.")
    for name in [] if as_json else names:
        print_line(f"{'would apply' if dry_run else 'applied'} {name}")


def _show_migrations(found: MigrationStatus, as_json: bool) -> None:
    states = {
        "applied": found.applied,
        "pending": found.pending,
        "changed after it was applied": found.changed,
        "unknown to this version": found.unknown,
    }
    if as_json:
        print_json(asdict(found))
        return
    # An edited migration is among the applied ones too: its last state is the one to show.
    by_name = {name: state for state, names in states.items() for name in names}
    print_table(("Migration", "State"), sorted(by_name.items()), empty="No migrations.")


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


def _make_folder(folder: Path) -> None:
    try:
        # Payloads are nobody else's business.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(
            f"cannot make the data folder {folder}: {error.strerror or error}",
            ExitCode.USAGE,
            hint="Name another with --data DIR.",
        ) from None


def _settings(**given: Any) -> Settings:
    from ..config import ConfigError, load_settings

    try:
        return load_settings(**given)
    except ConfigError as error:
        raise CliError(f"the configuration is not valid:\n{error}", ExitCode.USAGE) from None


def _check_port(settings: Settings) -> None:
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


def _cannot_serve(error: MainspringError) -> CliError:
    """What the store, or another service, has against it."""
    from ..domain.errors import FailedPrecondition, Unavailable

    if isinstance(error, Unavailable):
        hint = "Check that it runs at the address that --store, --wheel or --queue names."
        return CliError(error.message, ExitCode.UNAVAILABLE, hint=hint, reason=error.reason)
    conflict = isinstance(error, FailedPrecondition)
    code = ExitCode.CONFLICT if conflict else ExitCode.INTERNAL
    return CliError(error.message, code, reason=error.reason)


def _announce(app: App, as_json: bool, detail: str) -> None:
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


def _run_server(settings: Settings, started: Callable[[App], None]) -> None:
    from ..app import serve as serve_app
    from ..domain.errors import MainspringError

    try:
        _run(serve_app(settings, started))
    except MainspringError as error:
        raise _cannot_serve(error) from None
    except NotImplementedError as error:
        raise CliError(f"not supported by this version: {error}", ExitCode.UNIMPLEMENTED) from None
    except OSError as error:
        raise CliError(str(error), ExitCode.UNAVAILABLE) from None


def _run_group(processes: int) -> None:
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
