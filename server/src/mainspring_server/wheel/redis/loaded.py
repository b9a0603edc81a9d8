"""What an owner has in memory: the seconds that were read, and the hints that came since.

Redis and the store are read into here; the trigger fires from here. Each entry remembers the slot
that it was read from, so that it is taken out there too once it has fired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...domain.task import shard_of
from ...store.port import DueEntry, id_mark
from ..hierarchy import Hierarchy, entry_of
from .keys import Place

Drop = Callable[[Place, bytes, int], None]

REMEMBER_MS = 5_000
"""How long what was removed is not believed again when a slot or the store still brings it."""

_REMEMBERED = 500_000


class Loaded:
    """Entries of the own shards; `drop` is called with each slot member that has had its day."""

    def __init__(self, now: int, drop: Drop) -> None:
        self._hierarchy = Hierarchy(now)
        self._drop = drop
        self._seconds: dict[int, set[bytes]] = {}
        self._origins: dict[bytes, tuple[Place, int]] = {}
        # Due times of what was removed: lately, and before that.
        self._removed: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        self._turned_at = 0

    def __len__(self) -> int:
        return len(self._hierarchy)

    def hint(self, entry: DueEntry) -> None:
        """A hint is always believed: it is newer than what was read."""
        held = self._hierarchy.get(entry.task_id)
        if held is not None:
            self._leave(held)
        self._hierarchy.add(entry)
        self._seconds.setdefault(entry.due_at // 1_000, set()).add(entry.task_id)

    def member(self, place: Place, task_id: bytes, score: int) -> None:
        """Take in a member of a slot; at once dropped there if it has been removed here."""
        entry = entry_of(place.slot, score, task_id)
        if self._was_removed(entry):
            self._drop(place, task_id, score)
            return
        self._origins[task_id] = (place, score)
        self._take(entry)

    def row(self, entry: DueEntry) -> bool:
        """Take in a row of the store; False if it is known."""
        return not self._was_removed(entry) and self._take(entry)

    def peek(self, now: int, limit: int) -> list[DueEntry]:
        """What is due; see Wheel.peek."""
        return self._hierarchy.peek(now, limit)

    def next_due(self) -> int | None:
        """When the soonest falls due, or a moment before."""
        return self._hierarchy.next_due()

    def remove(self, entries: Sequence[DueEntry]) -> None:
        """Forget them here, and drop the members that brought them or something older."""
        for entry in entries:
            task_id = entry.task_id
            if self._hierarchy.get(task_id) == entry:
                self._leave(entry)
            self._removed[0][task_id] = entry.due_at
            origin = self._origins.get(task_id)
            if origin is not None:
                place, score = origin
                if entry_of(place.slot, score, task_id).due_at <= entry.due_at:
                    del self._origins[task_id]
                    self._drop(place, task_id, score)
        self._hierarchy.remove(entries)

    def keep(self, shards: Iterable[int]) -> None:
        """Forget all other shards; their members stay in Redis for the next owner."""
        kept = frozenset(shards)
        gone = [entry for entry in self._hierarchy if shard_of(entry.task_id) not in kept]
        for entry in gone:
            self._leave(entry)
        self._hierarchy.remove(gone)
        for task_id in [key for key in self._origins if shard_of(key) not in kept]:
            del self._origins[task_id]

    def turn(self, monotonic: int) -> None:
        """Let go of what was removed long ago."""
        if monotonic - self._turned_at >= REMEMBER_MS or len(self._removed[0]) > _REMEMBERED:
            self._removed = ({}, self._removed[0])
            self._turned_at = monotonic

    def digest(self, second: int) -> dict[int, tuple[int, int]]:
        """Count and mark of what is due in that second, per shard; see DueDigest."""
        found: dict[int, tuple[int, int]] = {}
        for task_id in self._seconds.get(second, ()):
            shard = shard_of(task_id)
            count, mark = found.get(shard, (0, 0))
            found[shard] = (count + 1, mark ^ id_mark(task_id))
        return found

    def _take(self, entry: DueEntry) -> bool:
        """The earlier of two due times wins: too early is put right by the answer of make_ready,
        too late would be late.
        """
        held = self._hierarchy.get(entry.task_id)
        if held is not None and held.due_at <= entry.due_at:
            return False
        self.hint(entry)
        return True

    def _was_removed(self, entry: DueEntry) -> bool:
        now, before = self._removed
        return entry.due_at in (now.get(entry.task_id), before.get(entry.task_id))

    def _leave(self, entry: DueEntry) -> None:
        second = entry.due_at // 1_000
        ids = self._seconds.get(second, set())
        ids.discard(entry.task_id)
        if not ids:
            self._seconds.pop(second, None)
