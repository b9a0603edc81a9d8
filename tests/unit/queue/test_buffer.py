"""What a dispatcher has read: order, due times, and the offset that may be committed."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring_server.domain.task import ReadyRef
from mainspring_server.queue.kafka.buffer import SKEW_MS, Buffer, Partition, Taken
from mainspring_server.queue.kafka.protocol import Topic
from mainspring_server.queue.kafka.records import Chunk

NOW = 1_000_000


class Log:
    """One partition, written and read at once."""

    def __init__(self, buffer: Buffer, lane: str = "default/work", band: int = 1) -> None:
        self.buffer = buffer
        self.partition = Partition(Topic(f"{lane}-{band}", bytes(16), (1,)), 0, lane, band, 0, 0, 0)

    def add(self, numbers: Sequence[int], *, due_at: int = NOW, published_at: int = NOW) -> None:
        refs = [ref(number, self.partition.lane, due_at, published_at) for number in numbers]
        offset = self.partition.next_offset
        self.partition.next_offset += 1
        self.buffer.add(self.partition, offset, Chunk(published_at, due_at, refs), NOW)


def ref(number: int, lane: str, due_at: int = NOW, published_at: int = NOW) -> ReadyRef:
    return ReadyRef(number.to_bytes(16, "big"), 1, lane, 5, due_at, published_at)


def numbers(taken: Sequence[Taken]) -> list[int]:
    return [int.from_bytes(r.task_id, "big") for item in taken for r in item.refs]


def grant_all(buffer: Buffer, taken: Sequence[Taken]) -> None:
    buffer.settle(taken, {r.task_id for item in taken for r in item.refs}, NOW)


@pytest.fixture
def buffer() -> Buffer:
    return Buffer()


def test_the_offset_to_commit_is_the_lowest_that_is_not_settled(buffer: Buffer) -> None:
    log = Log(buffer)
    log.add([1, 2])
    log.add([3])
    assert log.partition.position() == 0
    first = buffer.take(["default/work"], 1, NOW)
    rest = buffer.take(["default/work"], 9, NOW)
    grant_all(buffer, rest)
    assert log.partition.position() == 0  # task 1 is still out
    grant_all(buffer, first)
    assert log.partition.position() == 2
    assert log.partition.unclaimed() == 0


def test_the_oldest_record_comes_first_over_all_partitions(buffer: Buffer) -> None:
    Log(buffer).add([1], published_at=NOW - 1)
    Log(buffer).add([2], published_at=NOW - 3)
    Log(buffer).add([3], published_at=NOW - 2)
    assert numbers(buffer.take(["default/work"], 9, NOW)) == [2, 3, 1]


def test_bands_are_strict_over_all_lanes_with_a_guard(buffer: Buffer) -> None:
    logs = {band: Log(buffer, f"default/{band}", band) for band in (2, 1, 0)}
    for band, log in logs.items():
        log.add([band * 1_000 + n for n in range(100)])
    lanes = [f"default/{band}" for band in range(3)]
    bands = [numbers(buffer.take(lanes, 1, NOW))[0] // 1_000 for _ in range(64)]
    assert [n + 1 for n, band in enumerate(bands) if band == 1] == [8, 16, 24, 40, 48, 56]
    assert [n + 1 for n, band in enumerate(bands) if band == 2] == [32, 64]


def test_only_the_lanes_that_are_wanted_are_taken(buffer: Buffer) -> None:
    Log(buffer, "default/a").add([1])
    Log(buffer, "default/b").add([2])
    assert numbers(buffer.take(["default/b", "default/c"], 9, NOW)) == [2]


def test_what_is_not_due_waits_and_lets_the_rest_go_past(buffer: Buffer) -> None:
    log = Log(buffer)
    log.add([1], due_at=NOW + 50)
    log.add([2])
    assert buffer.next_due() == NOW + 50
    taken = buffer.take(["default/work"], 9, NOW + 49)
    assert numbers(taken) == [2]
    grant_all(buffer, taken)
    assert log.partition.position() == 0
    assert buffer.ripen(NOW + 50) == ["default/work"]
    assert numbers(buffer.take(["default/work"], 9, NOW + 50)) == [1]
    assert buffer.next_due() is None


def test_a_chunk_with_several_due_times_is_dealt_out_as_they_pass(buffer: Buffer) -> None:
    log = Log(buffer)
    lane = log.partition.lane
    refs = [ref(n, lane, NOW + due) for n, due in ((1, 30), (2, 0), (3, 10), (4, 10))]
    log.partition.next_offset = 1
    buffer.add(log.partition, 0, Chunk(NOW, NOW + 30, refs), NOW)
    assert [numbers(buffer.take([lane], 9, NOW + at)) for at in (0, 9, 10, 31)] == [
        [2],
        [],
        [3, 4],
        [1],
    ]


def test_a_refusal_close_to_the_due_time_is_tried_once_more(buffer: Buffer) -> None:
    log = Log(buffer)
    log.add([1])
    buffer.settle(buffer.take(["default/work"], 9, NOW), (), NOW)
    assert log.partition.position() == 0
    assert buffer.take(["default/work"], 9, NOW + SKEW_MS - 1) == []
    again = buffer.take(["default/work"], 9, NOW + SKEW_MS)
    assert numbers(again) == [1]
    buffer.settle(again, (), NOW + SKEW_MS)
    assert log.partition.position() == 1


def test_a_refusal_long_after_the_due_time_is_final(buffer: Buffer) -> None:
    log = Log(buffer)
    log.add([1], due_at=NOW - SKEW_MS)
    buffer.settle(buffer.take(["default/work"], 9, NOW), (), NOW)
    assert log.partition.position() == 1


def test_what_a_failed_claim_took_is_there_again(buffer: Buffer) -> None:
    log = Log(buffer)
    log.add([1, 2, 3])
    buffer.put_back(buffer.take(["default/work"], 2, NOW), NOW)
    assert sorted(numbers(buffer.take(["default/work"], 9, NOW))) == [1, 2, 3]
    assert log.partition.position() == 0


def test_a_partition_that_is_given_up_leaves_nothing(buffer: Buffer) -> None:
    gone, kept = Log(buffer), Log(buffer)
    gone.add([1, 2])
    gone.add([3], due_at=NOW + 5)
    kept.add([4])
    out = buffer.take(["default/work"], 1, NOW)
    buffer.drop([gone.partition])
    buffer.put_back(out, NOW)
    assert numbers(buffer.take(["default/work"], 9, NOW + 9)) == [4]
    assert buffer.next_due() is None
    assert not buffer.lanes or buffer.lanes["default/work"].count == 0


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), st.integers(0, 3)), max_size=20),
    st.lists(st.tuples(st.integers(1, 7), st.booleans()), max_size=60),
)
def test_every_task_is_handed_out_until_it_is_settled(
    records: list[tuple[int, int, int]], turns: list[tuple[int, bool]]
) -> None:
    buffer = Buffer()
    logs = [Log(buffer, band=band) for band in range(3)]
    count = 0
    for band, size, delay in records:
        logs[band].add(range(count, count + size), due_at=NOW + delay)
        count += size
    settled: list[int] = []
    clock = NOW
    for room, works in [*turns, *[(1_000, True)] * 4]:
        clock += 1
        taken = buffer.take(["default/work"], room, clock)
        assert len(numbers(taken)) <= room
        if works:
            settled += numbers(taken)
            buffer.settle(taken, {r.task_id for item in taken for r in item.refs}, clock)
        else:
            buffer.put_back(taken, clock)
    assert sorted(settled) == list(range(count))
    for log in logs:
        assert log.partition.position() == log.partition.next_offset
    lane = buffer.lanes.get("default/work")
    assert lane is None or (lane.count, lane.held) == (0, 0)
