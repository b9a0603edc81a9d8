"""The commands that are a server: dev and serve; `starting` has what they share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from .exits import CliError, ExitCode, usage_error
from .options import DEFAULT_SERVER, JsonOption, shared
from .parsing import parse_duration
from .starting import announce, begin, check_port, read_settings, run_group, run_server

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
    settings = read_settings(
        listen=listen,
        store=f"sqlite:///{folder / DATABASE}",
        lease_ms=lease and parse_duration(lease, "--lease"),
        heartbeat_ms=heartbeat and parse_duration(heartbeat, "--heartbeat"),
        # One process, one database: what the environment says about a cluster is not meant for it.
        wheel="",
        queue="",
        roles="api,trigger,dispatch,sweep",
    )
    check_port(settings)
    as_json = shared(context, None, as_json).json
    run_server(settings, lambda app: announce(app, as_json, f"data in {folder}"))


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
    settings = read_settings(
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
        check_port(settings)
    if processes > 1:
        run_group(processes)
        return
    as_json = shared(context, None, as_json).json
    roles = ", ".join(sorted(role.value for role in settings.roles))
    run_server(settings, lambda app: announce(app, as_json, f"roles {roles}"))


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
