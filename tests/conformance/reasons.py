"""Why cronsim strays from its own rules: what it does, at which clock changes, to which effect.

A straying that none of these explains is a difference, and fails the comparison.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from .referee import Boundary

HOUR = timedelta(hours=1)
NOTHING = timedelta(0)

ADDS, MISSES, SHIFTS, STUCK = "adds a time", "misses a time", "shifts a time", "never answers"


class Reason(NamedTuple):
    """One habit of cronsim; it needs a clock change of this shape, and has only these effects."""

    name: str
    applies: Callable[[Boundary], bool]
    effects: frozenset[str]


def _skips_midnight(change: Boundary) -> bool:
    last_skipped = change.local - timedelta(microseconds=1)
    midnight = last_skipped.replace(hour=0, minute=0, second=0, microsecond=0)
    return change.local - change.shift <= midnight


def _off_the_hour(change: Boundary) -> bool:
    return change.shift % HOUR != NOTHING or change.local.minute != 0


REASONS = (
    # It moves to the next day by setting the clock to 00:00, and takes that for a real time.
    Reason(
        "midnight does not exist, and cronsim fires at it",
        _skips_midnight,
        frozenset((ADDS, MISSES, SHIFTS)),
    ),
    # It looks for an hour in steps of an hour, so it enters the hours after such a change in their
    # middle, and does not look at their beginning; or it sets the minute to 0, which takes it back
    # to before the change, for ever.
    Reason(
        "the clock change is not on the hour, and cronsim steps by hours",
        _off_the_hour,
        frozenset((MISSES, SHIFTS, STUCK)),
    ),
)


def reason_for(change: Boundary | None, effect: str, *, real_time: bool) -> str | None:
    """Why cronsim strays after this change in this way; None where it has no reason to.

    Fixed times are looked for on a clock without a zone: there it never strays.
    """
    if change is None or not real_time:
        return None
    for reason in REASONS:
        if effect in reason.effects and reason.applies(change):
            return reason.name
    return None
