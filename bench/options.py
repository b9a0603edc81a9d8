"""What can be set on the command line; every workload takes from it what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """One run of one workload. None: the workload's own default."""

    workload: str
    rung: str
    folder: Path
    """Scratch space; the caller removes it."""
    tasks: int | None = None
    batch: int = 500
    in_flight: int = 4
    """Batches that the client has on their way at a time."""
    slots: int | None = None
    workers: int = 1
    processes: int = 1
    """Server processes of the Postgres-only rung."""
    rate: float | None = None
    seconds: float | None = None
    peer_tasks: int | None = None
    """Tasks for the peer in the same run; 0 leaves it out."""
