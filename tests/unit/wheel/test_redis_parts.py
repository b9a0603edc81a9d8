"""The parts of the wheel in Redis that need no Redis: names, messages, memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mainspring_server.domain.task import SHARDS
from mainspring_server.store.port import DueEntry, id_mark
from mainspring_server.wheel.hierarchy import Level, Slot, score_of
from mainspring_server.wheel.redis.hints import pack, unpack
from mainspring_server.wheel.redis.keys import GROUPS, Keys, Place, group_of, groups_of
from mainspring_server.wheel.redis.loaded import REMEMBER_MS, Loaded
from mainspring_server.wheel.redis.slots import Member
from mainspring_server.wheel.redis.times import (
    LATE_MS,
    LEAD_MS,
    NEAR_MS,
    VERIFY_MS,
    ahead_of,
    second_of,
)

NOW = 1_700_000_000_000
SLOT = Slot(Level.SECONDS, NOW // 1_000)
PLACE = Place(0, SLOT)


class Dropped:
    """What was given back to the slots."""

    def __init__(self) -> None:
        self.members: list[tuple[Place, Member]] = []

    def __call__(self, place: Place, members: Sequence[Member]) -> None:
        self.members += [(place, member) for member in members]


@pytest.fixture
def dropped() -> Dropped:
    return Dropped()


@pytest.fixture
def loaded(dropped: Dropped) -> Loaded:
    return Loaded(dropped)


def entry(due: int = NOW, name: int = 0, priority: int = 5) -> DueEntry:
    return DueEntry(due, priority, name.to_bytes(16, "big"))


def member(item: DueEntry) -> Member:
    return item.task_id, score_of(SLOT, item.due_at, item.priority)


@pytest.mark.parametrize("level", list(Level))
def test_a_key_names_its_place(level: Level) -> None:
    keys = Keys("a-b_C9")
    place = Place(GROUPS - 1, Slot(level, 28_333_333))
    assert keys.slot(place) == f"{{a-b_C9/{GROUPS - 1}}}:L{level:d}:28333333"
    assert keys.place(keys.slot(place).encode()) == place


@pytest.mark.parametrize(
    "key", [b"", b"{a/0}:L4:1", b"{a/9}:L0:1", b"{b/0}:L0:1", b"{a/0}:filled", b"x{a/0}:L0:1"]
)
def test_other_keys_name_none(key: bytes) -> None:
    assert Keys("a").place(key) is None


@pytest.mark.parametrize("prefix", ["", "a*", "a/b", "{a}", "a:b", "x" * 65])
def test_a_prefix_that_could_be_misread_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="key prefix"):
        Keys(prefix)


def test_a_group_is_a_run_of_shards() -> None:
    groups = [group_of(bytes(15) + bytes([shard])) for shard in range(SHARDS)]
    assert groups == sorted(groups)
    assert {groups.count(group) for group in range(GROUPS)} == {SHARDS // GROUPS}
    assert groups_of(range(SHARDS)) == list(range(GROUPS))
    assert groups_of([0, SHARDS - 1]) == [0, GROUPS - 1]


def test_hints_come_out_as_they_went_in() -> None:
    entries = [entry(NOW + n, n, n % 10) for n in range(50)]
    assert unpack(pack(entries)) == entries
    assert unpack(b"") == []
    assert unpack(pack(entries)[:-1]) == []


def test_hints_have_time_to_arrive_before_their_second_is_read() -> None:
    assert VERIFY_MS < LEAD_MS < LATE_MS < NEAR_MS
    for now in range(NOW, NOW + 2_000, 7):
        # Whatever is not near yet lies in a second that nobody has read.
        soonest_far = next(
            s for s in range(second_of(now), now + 9_000, 1_000) if s - now >= NEAR_MS
        )
        assert soonest_far >= ahead_of(now, LEAD_MS)


def test_what_is_due_comes_by_due_time_and_priority(loaded: Loaded) -> None:
    entries = [entry(NOW + n * 7 % 5, n, n * 3 % 10) for n in range(50)]
    loaded.members(PLACE, [member(item) for item in entries])
    found = loaded.peek(NOW + 4, 100)
    assert found == sorted(entries, key=lambda e: (e.due_at, e.priority, e.task_id))
    assert loaded.peek(NOW + 4, 3) == found[:3]
    assert loaded.peek(NOW - 1, 3) == []
    assert loaded.next_due() == NOW
    loaded.remove(found)
    assert loaded.next_due() is None
    assert len(loaded) == 0


def test_what_fired_is_dropped_from_the_slot_that_brought_it(
    loaded: Loaded, dropped: Dropped
) -> None:
    loaded.members(PLACE, [member(entry())])
    loaded.hint(entry(name=1))
    loaded.remove([entry(), entry(name=1)])
    assert dropped.members == [(PLACE, member(entry()))]


def test_a_member_for_a_later_time_stays_when_an_older_hint_fires(
    loaded: Loaded, dropped: Dropped
) -> None:
    later = entry(NOW + 500)
    loaded.hint(entry())
    loaded.members(PLACE, [member(later)])
    assert loaded.peek(NOW + 999, 10) == [entry()]
    loaded.hint(later)  # the store said: early
    loaded.remove([entry()])
    assert dropped.members == []
    assert loaded.peek(NOW + 999, 10) == [later]
    loaded.remove([later])
    assert dropped.members == [(PLACE, member(later))]


def test_a_member_for_an_older_time_goes_with_the_newer_hint(
    loaded: Loaded, dropped: Dropped
) -> None:
    loaded.members(PLACE, [member(entry())])
    loaded.hint(entry(NOW + 700))
    loaded.remove([entry(NOW + 700)])
    assert dropped.members == [(PLACE, member(entry()))]


def test_what_was_removed_is_not_believed_again_for_a_while(
    loaded: Loaded, dropped: Dropped
) -> None:
    loaded.remove([entry()])
    assert not loaded.row(entry())
    loaded.members(PLACE, [member(entry())])
    assert dropped.members == [(PLACE, member(entry()))]
    assert len(loaded) == 0
    loaded.turn(REMEMBER_MS)
    assert not loaded.row(entry())
    loaded.turn(2 * REMEMBER_MS)
    assert loaded.row(entry())
    loaded.remove([entry()])
    loaded.hint(entry())
    assert loaded.peek(NOW, 1) == [entry()]


def test_only_the_kept_shards_stay(loaded: Loaded, dropped: Dropped) -> None:
    loaded.members(PLACE, [member(entry(name=n)) for n in range(4)])
    loaded.keep([1, 3])
    assert [e.task_id[15] for e in loaded.peek(NOW, 10)] == [1, 3]
    loaded.remove([entry(name=0)])
    assert dropped.members == []


async def test_the_digest_is_that_of_a_store(loaded: Loaded) -> None:
    ids = [n.to_bytes(16, "big") for n in (5, 5 + SHARDS, 7)]
    for task_id in ids:
        loaded.hint(DueEntry(NOW + 999, 5, task_id))
    loaded.hint(entry(NOW + 1_000, 5 + 2 * SHARDS))
    assert await loaded.digest(NOW, NOW + 999) == {
        (5, NOW // 1_000): (2, id_mark(ids[0]) ^ id_mark(ids[1])),
        (7, NOW // 1_000): (1, id_mark(ids[2])),
    }


def test_a_herd_that_was_replaced_does_not_pile_up(loaded: Loaded) -> None:
    for moved in range(20):
        for n in range(500):
            loaded.hint(entry(NOW + moved, n))
        loaded.remove([])
    assert len(loaded) == 500
    assert len(loaded._heap) < 4 * 500 + 1_024
