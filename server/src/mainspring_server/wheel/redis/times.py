"""How far ahead of its time everything happens; all processes must agree on these.

A second is read into memory LEAD_MS before it begins. So hints for it must be in Redis by then:
those that are not due for NEAR_MS are put into slots, with time to linger; nearer ones are told to
the owners directly. What is left of the difference is room for clocks that differ and for a slow
reply.
"""

LEAD_MS = 2_000
"""The pointer is so far ahead of the clock: slots that begin up to there have been read."""

VERIFY_MS = 1_000
"""A second is compared with the store so long before it begins."""

NEAR_MS = 3_000
"""Hints for seconds that begin sooner are published, not put into slots."""

LATE_MS = 2_250
"""A hint that lingered and is sent later than this before its second is published as well."""

AGAIN_MS = 3_000
"""A slot is read once more so long after it began, for hints that were slow to arrive."""


def second_of(due: int) -> int:
    """The first millisecond of the second."""
    return due - due % 1_000


def ahead_of(now: int, lead: int) -> int:
    """The first second boundary beyond now + lead."""
    return second_of(now + lead) + 1_000
