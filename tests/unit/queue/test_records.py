"""The bytes of a record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring_server.domain.task import ReadyRef
from mainspring_server.queue.kafka.records import (
    CHUNK_TASKS,
    UnknownRecord,
    chunks,
    decode,
    published_at,
)

LANE = "default/work"
times = st.integers(0, 253_402_300_799_999)
refs = st.builds(
    ReadyRef,
    st.binary(min_size=16, max_size=16),
    st.integers(1, 2**32 - 1),
    st.just(LANE),
    st.integers(0, 9),
    times,
    times,
)


@given(st.lists(refs, min_size=1, max_size=5))
def test_what_is_written_is_read(tasks: list[ReadyRef]) -> None:
    ((value, oldest, count),) = chunks(tasks)
    chunk = decode(value, LANE)
    assert chunk.refs == tasks
    assert chunk.due_at == max(ref.due_at for ref in tasks)
    assert chunk.published_at == oldest == published_at(value)
    assert count == len(tasks)


def test_a_chunk_is_bounded() -> None:
    ref = ReadyRef(bytes(16), 1, LANE, 5, 1, 1)
    sizes = [count for _, _, count in chunks([ref] * (2 * CHUNK_TASKS + 1))]
    assert sizes == [CHUNK_TASKS, CHUNK_TASKS, 1]
    assert list(chunks([])) == []
    assert all(len(value) <= 64 * 1024 for value, _, _ in chunks([ref] * CHUNK_TASKS))


@pytest.mark.parametrize("spoil", [b"", b"\x01", b"\x02" + bytes(18), b"\xff" * 200])
def test_other_bytes_are_refused(spoil: bytes) -> None:
    with pytest.raises(UnknownRecord):
        decode(spoil, LANE)
    with pytest.raises(UnknownRecord):
        published_at(spoil)


def test_a_record_that_was_cut_is_refused() -> None:
    ((value, _, _),) = chunks([ReadyRef(bytes(16), 1, LANE, 5, 1, 1)] * 3)
    with pytest.raises(UnknownRecord):
        decode(value[:-1], LANE)
