"""Draws that are the same on every node and at every time: `H` in an expression, and jitter.

A strong hash, keyed by purpose: schedules with consecutive ids land far apart, and the `H` of one
field says nothing about that of another.
"""

from __future__ import annotations

from hashlib import blake2b

_H_KEY = b"mainspring schedule H"
_JITTER_KEY = b"mainspring schedule jitter"


def _draw(key: bytes, data: bytes, bound: int) -> int:
    digest = blake2b(data, key=key, digest_size=8).digest()
    # Multiplying keeps the draw even where a remainder would favour small numbers.
    return int.from_bytes(digest) * bound >> 64


def draw_value(schedule_id: bytes, field: str, low: int, high: int) -> int:
    """The value in low…high that stands for this schedule's `H` in this field."""
    return low + _draw(_H_KEY, schedule_id + field.encode(), high - low + 1)


def draw_jitter(schedule_id: bytes, nominal_at: int, bound_ms: int) -> int:
    """The shift in 0…bound_ms milliseconds of this schedule's instance of this nominal time."""
    if bound_ms <= 0:
        return 0
    return _draw(_JITTER_KEY, schedule_id + nominal_at.to_bytes(8, signed=True), bound_ms + 1)
