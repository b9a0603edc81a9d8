"""The slots as sorted sets: many members a command, no expiry, nothing popped.

A member is removed only if its score is still the one that was read: it may have been put there
again since, for a task that was rescheduled within the slot.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from redis.exceptions import NoScriptError, OutOfMemoryError, ResponseError

from ...store.port import DueEntry
from ..hierarchy import Slot, score_of
from .door import Command, Door, away
from .hints import pack
from .keys import Keys, Place, group_of

CHUNK = 1_000
"""The most members of one command."""

PUBLISHED = 5_000
"""The most hints of one message."""

PIPELINE = 64
"""The most commands of one round trip."""

Member = tuple[bytes, int]
"""Task id and score."""

# The members come as one string of (id, score as a double): packed once, not argument by argument.
REMOVE = """
local given, ids, gone = ARGV[1], {}, {}
for at = 1, #given, 24 do ids[#ids + 1] = string.sub(given, at, at + 15) end
local held = redis.call('ZMSCORE', KEYS[1], unpack(ids))
for i, id in ipairs(ids) do
  local score = held[i]
  if score and tonumber(score) == struct.unpack('>d', given, 24 * i - 7) then
    gone[#gone + 1] = id
  end
end
if #gone > 0 then redis.call('ZREM', KEYS[1], unpack(gone)) end
return #gone
"""
_SHA = hashlib.sha1(REMOVE.encode(), usedforsecurity=False).hexdigest()
_ID_BYTES = 16
_MEMBER = struct.Struct(">16sd")


class Slots:
    """All slots of all groups."""

    def __init__(self, door: Door, keys: Keys) -> None:
        self._door = door
        self._keys = keys

    async def add(self, entries: Iterable[tuple[Slot, DueEntry]]) -> int:
        """Put entries into slots, a score standing there is replaced; how many a full Redis refused."""
        members: dict[Place, list[bytes | int]] = {}
        for slot, entry in entries:
            place = Place(group_of(entry.task_id), slot)
            members.setdefault(place, []).extend(
                (score_of(slot, entry.due_at, entry.priority), entry.task_id)
            )
        commands: list[Command] = [
            ("ZADD", self._keys.slot(place), *pairs[start : start + 2 * CHUNK])
            for place, pairs in members.items()
            for start in range(0, len(pairs), 2 * CHUNK)
        ]
        refused = 0
        for start in range(0, len(commands), PIPELINE):
            batch = commands[start : start + PIPELINE]
            for command, reply in zip(batch, await self._door.calls(batch), strict=True):
                if isinstance(reply, OutOfMemoryError):
                    refused += (len(command) - 2) // 2
                elif isinstance(reply, ResponseError):
                    raise away(reply)
        return refused

    async def read(self, places: Sequence[Place]) -> AsyncIterator[tuple[Place, list[Member]]]:
        """All members, in chunks and in no order; what is removed or added meanwhile, perhaps.

        By cursor, not by rank: ranks move when another owner removes what it has fired.
        """
        left = [(place, b"0") for place in places]
        while left:
            batch, left = left[:PIPELINE], left[PIPELINE:]
            replies = await self._door.calls(
                [
                    ("ZSCAN", self._keys.slot(place), cursor, "COUNT", CHUNK)
                    for place, cursor in batch
                ]
            )
            for (place, _), reply in zip(batch, replies, strict=True):
                if isinstance(reply, ResponseError):
                    raise away(reply)
                cursor, flat = reply
                if flat:
                    yield place, _members(flat)
                if cursor != b"0":
                    left.append((place, cursor))

    async def remove(self, members: Mapping[Place, Sequence[Member]]) -> None:
        """Remove each member whose score is still the one given."""
        commands: list[Command] = []
        for place, listed in members.items():
            key = self._keys.slot(place)
            for start in range(0, len(listed), CHUNK):
                packed = b"".join(_MEMBER.pack(*m) for m in listed[start : start + CHUNK])
                commands.append(("EVALSHA", _SHA, 1, key, packed))
        for start in range(0, len(commands), PIPELINE):
            await self._run(commands[start : start + PIPELINE])

    async def find(self) -> list[Place]:
        """Every slot that holds something."""
        found: set[Place] = set()
        cursor: bytes = b"0"
        while True:
            cursor, keys = await self._door.call(
                "SCAN", cursor, "MATCH", self._keys.slots, "COUNT", CHUNK
            )
            found.update(place for key in keys if (place := self._keys.place(key)) is not None)
            if cursor == b"0":
                return list(found)

    async def publish(self, entries: Sequence[DueEntry]) -> None:
        """Tell all owners that these fall due."""
        for start in range(0, len(entries), PUBLISHED):
            data = pack(entries[start : start + PUBLISHED])
            await self._door.call("PUBLISH", self._keys.channel, data)

    async def _run(self, commands: list[Command]) -> None:
        replies = await self._door.calls(commands)
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            await self._door.call("SCRIPT", "LOAD", REMOVE)
            again = await self._door.calls([commands[n] for n in unknown])
            for n, reply in zip(unknown, again, strict=True):
                replies[n] = reply
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise away(reply)
            # The commands within the script: the look, and the removal if there was one.
            self._door.commands += 2 if reply else 1


def _members(flat: Sequence[bytes]) -> list[Member]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return [(member, int(score)) for member, score in pairs if len(member) == _ID_BYTES]
