"""What a schedule wants at a clock change, and what a clock change did to a nominal time."""

from __future__ import annotations

from enum import Enum


class DstGap(Enum):
    """What happens at a local time that a clock change leaves out."""

    RUN_AFTER_GAP = "RUN_AFTER_GAP"
    SKIP = "SKIP"


class DstOverlap(Enum):
    """What happens at a local time that a clock change repeats."""

    FIRST = "FIRST"
    LAST = "LAST"
    BOTH = "BOTH"


class DstEffect(Enum):
    """What a clock change does to a nominal time."""

    NONE = "NONE"
    AFTER_GAP = "AFTER_GAP"
    SKIPPED = "SKIPPED"
    FIRST = "FIRST"
    LAST = "LAST"
