"""The raw life cycle of the store that a rung stands on, measured in the same run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from .site import Site


def raw_life_cycles(site: Site, folder: Path, tasks: int, batch: int) -> dict[str, Any]:
    """`raw_life_cycle_per_s`: insert and three batched updates of the same rows."""
    if site.rung == "embedded":
        from .raw_sqlite import raw_life_cycles as sqlite  # noqa: PLC0415

        return {
            "raw_life_cycle_per_s": round(sqlite(folder, tasks, batch, indexed=False), 1),
            "raw_indexed_per_s": round(sqlite(folder, tasks, batch, indexed=True), 1),
        }
    from .raw_postgres import raw_life_cycles as postgres  # noqa: PLC0415

    found = asyncio.run(postgres(site.urls["store"], tasks, batch))
    return {"raw_life_cycle_per_s": round(found, 1)}
