"""The options that every command shares, and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

DEFAULT_SERVER = "127.0.0.1:7400"

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT[,…]",
        help=f"Where the server is, or several (MAINSPRING_SERVER). Default {DEFAULT_SERVER}.",
        show_default=False,
    ),
]
# Only this one reads the environment: otherwise the variable would beat what
# was written before the command's name.
RootServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="MAINSPRING_SERVER",
        metavar="HOST:PORT[,…]",
        help=f"Where the server is, or several. Default {DEFAULT_SERVER}.",
        show_default=False,
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print JSON for scripts instead of tables.", show_default=False),
]
TaskArgument = Annotated[str, typer.Argument(metavar="TASK_ID", help="The id that submit printed.")]


@dataclass(frozen=True)
class Shared:
    """The shared options of one run: a command's own win over those before its name."""

    server: str = ""
    json: bool = False


def shared(context: typer.Context, server: str | None, as_json: bool) -> Shared:
    """What was asked for before and after the command's name, together."""
    before = context.find_object(Shared) or Shared()
    return Shared(server or before.server or DEFAULT_SERVER, as_json or before.json)
