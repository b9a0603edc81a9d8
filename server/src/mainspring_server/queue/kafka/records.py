"""A record's bytes: one chunk of READY tasks of one lane and band.

The header says how many tasks follow, when the first of them was published and when the last of
them is due, so that a reader learns the position of a partition, and whether anything must wait,
without looking at the tasks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...domain.task import ReadyRef

CHUNK_TASKS = 500
"""Tasks in one record, at most: 18.5 kB, far below the 64 KiB that one fetch of a partition takes."""

_FORMAT = 1
_HEADER = struct.Struct("<BHqq")  # format, tasks, oldest published_at, latest due_at
_TASK = struct.Struct("<16sIBqq")  # id, version, priority, due_at, published_at


class UnknownRecord(Exception):
    """Bytes that this version cannot read: a newer format, or not ours at all."""


class Chunk(NamedTuple):
    """A decoded record. `published_at` is its oldest, `due_at` its latest."""

    published_at: int
    due_at: int
    refs: list[ReadyRef]


def chunks(refs: Sequence[ReadyRef]) -> Iterator[tuple[bytes, int, int]]:
    """Encode tasks of one lane and band: (value, oldest published_at, tasks) per record."""
    for start in range(0, len(refs), CHUNK_TASKS):
        part = refs[start : start + CHUNK_TASKS]
        published = min(ref.published_at for ref in part)
        latest = max(ref.due_at for ref in part)
        pack = _TASK.pack
        body = [
            pack(task_id, version, priority, due_at, published_at)
            for task_id, version, _, priority, due_at, published_at in part
        ]
        value = b"".join((_HEADER.pack(_FORMAT, len(part), published, latest), *body))
        yield value, published, len(part)


def _header(value: bytes) -> tuple[int, int, int]:
    try:
        version, count, published, latest = _HEADER.unpack_from(value)
    except struct.error:
        raise UnknownRecord("too short for a header") from None
    if version != _FORMAT or len(value) != _HEADER.size + count * _TASK.size:
        raise UnknownRecord(f"format {version}, {count} tasks, {len(value)} bytes")
    return count, published, latest


def decode(value: bytes, lane: str) -> Chunk:
    """Read a record of `lane`; UnknownRecord where that is impossible."""
    _, published, latest = _header(value)
    refs = [
        ReadyRef(task_id, version, lane, priority, due_at, published_at)
        for task_id, version, priority, due_at, published_at in _TASK.iter_unpack(
            memoryview(value)[_HEADER.size :]
        )
    ]
    return Chunk(published, latest, refs)


def published_at(value: bytes) -> int:
    """When the oldest task of a record was published."""
    return _header(value)[1]
