"""Tasks that fall due at one instant, with a slot for each of them."""

from __future__ import annotations

from typing import Any

from ..options import Options
from .delayed import measure


def run(options: Options) -> dict[str, Any]:
    """All due at the same millisecond."""
    return measure(options, 0.0)
