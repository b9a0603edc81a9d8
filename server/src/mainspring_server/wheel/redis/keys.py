"""The names of everything that the wheel keeps in Redis.

The shards are bundled into a few groups. What a group owns carries one hash tag, so that a command
or script never leaves its node of a Redis Cluster. A key per single shard would cost a command per
task: a second's worth of hints would touch hundreds of keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ...domain.task import SHARDS, shard_of
from ..hierarchy import Level, Slot

GROUPS = 4
"""All processes must agree on it; a power of two that divides the number of shards."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Place(NamedTuple):
    """One slot of one group: the coordinates of a sorted set."""

    group: int
    slot: Slot


def group_of(task_id: bytes) -> int:
    """The group of a task: neighbouring shards lie together, as their owners take them."""
    return shard_of(task_id) * GROUPS // SHARDS


def groups_of(shards: Iterable[int]) -> list[int]:
    """The groups that hold these shards."""
    return sorted({shard * GROUPS // SHARDS for shard in shards})


class Keys:
    """Key names under a prefix, which keeps two clusters on one Redis apart."""

    def __init__(self, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"a key prefix has letters, digits, _ and -, not {prefix!r}")
        self._prefix = prefix
        self.channel = f"{prefix}:near"
        """Where hints for the next seconds are published."""
        self.slots = f"{{{prefix}/*}}:L*"
        """The pattern of all slots."""
        self._slot = re.compile(rf"\{{{prefix}/(\d+)\}}:L(\d):(-?\d+)".encode())

    def slot(self, place: Place) -> str:
        """The sorted set of a slot."""
        level, number = place.slot
        return f"{{{self._prefix}/{place.group}}}:L{level:d}:{number}"

    def filled(self, group: int) -> str:
        """The hash of how far each shard's later tasks were brought in: shard -> ms."""
        return f"{{{self._prefix}/{group}}}:filled"

    def place(self, key: bytes) -> Place | None:
        """The slot that a key names, if it names one."""
        found = self._slot.fullmatch(key)
        if found is None or int(found[1]) >= GROUPS or int(found[2]) >= len(Level):
            return None
        return Place(int(found[1]), Slot(Level(int(found[2])), int(found[3])))
