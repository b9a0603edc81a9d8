"""What every result says beside its figures, and how figures are rounded."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_PACKAGES = (
    "mainspring-server",
    "grpcio",
    "protobuf",
    "uvloop",
    "huey",
    "asyncpg",
    "aiokafka",
    "redis",
)


def versions() -> dict[str, str]:
    """Releases of what takes part."""
    found = {"sqlite": sqlite3.sqlite_version}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Where it was measured."""
    return {
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "platform": f"{sys.platform} {platform.machine()}",
    }


def spread(values: Sequence[float], prefix: str) -> dict[str, float]:
    """Median, 99th percentile and maximum, under `prefix_p50` and so on."""
    ordered = sorted(values)
    return {
        f"{prefix}_p50": round(_at(ordered, 0.50), 3),
        f"{prefix}_p99": round(_at(ordered, 0.99), 3),
        f"{prefix}_max": round(ordered[-1], 3),
    }


def _at(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed."""
    rank = -(-len(ordered) * share // 1)
    return ordered[max(int(rank) - 1, 0)]


def cpu_per_1000(seconds: dict[str, float], tasks: int) -> dict[str, float]:
    """Processor seconds of 1,000 tasks by kind of process."""
    return {kind: round(1_000 * value / tasks, 4) for kind, value in seconds.items()}
