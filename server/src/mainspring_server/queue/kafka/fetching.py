"""One fetch of several partitions from one broker, and the records in its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords

from .cluster import Cluster, by_topic
from .protocol import Topic

PARTITION_BYTES = 64 * 1024
"""What one fetch takes of one partition, at most; the first with records gives at least one batch."""

_RESPONSE_BYTES = 1024 * 1024
_COMMITTED_AND_NOT = 0

Key = tuple[str, int]  # topic name, partition
Start = tuple[Topic, int, int, int]  # topic, partition, first offset, bytes


class Fetched(NamedTuple):
    """A partition's part of the answer: `error` is Kafka's code, `end` the offset after the last."""

    error: int
    end: int
    batches: bytes


async def fetch(
    cluster: Cluster, node: int, starts: Sequence[Start], wait_ms: int, channel: str
) -> dict[Key, Fetched]:
    """Records from these offsets on; waits up to `wait_ms` for the first where there are none."""
    rows = [(topic, (number, offset, size)) for topic, number, offset, size in starts]
    request = FetchRequest(wait_ms, 1, _RESPONSE_BYTES, _COMMITTED_AND_NOT, by_topic(rows))
    response = await cluster.send(node, request, channel)
    return {
        (name, part[0]): Fetched(part[1], part[2], part[-1] or b"")
        for name, partitions in response.topics
        for part in partitions
    }


def records(batches: bytes) -> Iterator[tuple[int, bytes | None]]:
    """(offset, value) of each whole record; (offset, None) closes a batch, naming its last offset."""
    found = MemoryRecords(batches)
    while found.has_next():
        batch = found.next_batch()
        assert batch is not None
        if not batch.is_control_batch:
            for record in batch:
                yield record.offset, record.value or b""
        yield batch.next_offset - 1, None
