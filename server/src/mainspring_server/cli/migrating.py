"""The command that brings a store to this version's schema: migrate."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .exits import usage_error
from .options import JsonOption, shared
from .output import print_json, print_line, print_note, print_table
from .starting import cannot_serve

if TYPE_CHECKING:
    from ..store.postgres.migrate import MigrationStatus


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
        raise cannot_serve(error) from None
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
