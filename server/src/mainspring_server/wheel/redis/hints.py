"""Hints for the next seconds as bytes, the way they are published to the owners."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ...store.port import DueEntry

_HINT = struct.Struct(">qB16s")


def pack(entries: Sequence[DueEntry]) -> bytes:
    """Due time, priority and id of each, 25 bytes an entry."""
    return b"".join(_HINT.pack(e.due_at, e.priority, e.task_id) for e in entries)


def unpack(data: bytes) -> list[DueEntry]:
    """The entries of a message; what is no whole number of entries is nobody's message."""
    if len(data) % _HINT.size:
        return []
    return [DueEntry(*fields) for fields in _HINT.iter_unpack(data)]
