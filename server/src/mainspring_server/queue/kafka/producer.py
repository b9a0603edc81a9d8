"""Writes records: idempotent, acknowledged by all in-sync replicas, within a deadline.

What waits for a broker goes into one request, one request under way at a time, so that the order
of publishing holds and batches grow with the load while an idle system waits for nothing. A
producer id whose request failed is not used again: its sequence may have a hole.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from ...batching import Batcher
from ...domain.errors import Unavailable
from .cluster import PRODUCE, Cluster, by_topic, unavailable
from .protocol import NO_LEADER, Topic

log = logging.getLogger(__name__)

BATCHED_RECORDS = 40
"""Records that wait together for one broker, at most."""

PARTITION_RECORDS = 3
"""Of those, records of one partition in one request, at most: with full chunks 56 kB.

They become one batch, which a reader gets whole or not at all: it must fit into what is fetched of
a partition at a time, and not bring much more than there is credit for.
"""

_MAGIC = 2
_BATCH_BYTES = 1 << 20
_ALL_REPLICAS = -1
_NO_TIMEOUT = 2**31 - 1
_DUPLICATE = 46
_NO_ANSWER = -1

Partition = tuple[bytes, int]  # topic id, number


class Entry(NamedTuple):
    """A record to be written; `published_at` becomes its timestamp."""

    topic: Topic
    partition: int
    value: bytes
    published_at: int
    tasks: int


@dataclass(slots=True)
class _Identity:
    producer_id: int
    epoch: int
    sequences: dict[Partition, int] = field(default_factory=dict)


class Producer:
    """Delivers entries to the leaders of their partitions."""

    def __init__(self, cluster: Cluster, delivery_ms: int) -> None:
        self._cluster = cluster
        self._delivery_ms = delivery_ms
        self._identity: _Identity | None = None
        self._outboxes: dict[int, Batcher[Entry, Exception | None]] = {}
        self.records = 0
        """Records acknowledged since the start."""
        self.tasks = 0
        """Tasks in them."""

    async def send(self, node: int, entries: list[Entry]) -> list[Exception | None]:
        """Write entries of partitions that `node` leads; None where acknowledged."""
        if node == NO_LEADER:
            return [unavailable("has no leader for a partition")] * len(entries)
        outbox = self._outboxes.get(node)
        if outbox is None:
            outbox = self._outboxes[node] = Batcher(_Outbox(self, node).write, BATCHED_RECORDS)
        return await outbox.submit(entries)

    async def drain(self) -> None:
        """Return when nothing is under way."""
        for outbox in list(self._outboxes.values()):
            await outbox.drain()

    async def write(self, node: int, entries: Sequence[Entry]) -> list[Exception | None]:
        """Requests to one broker; per entry None where acknowledged. Raises if nothing was."""
        grouped: dict[Partition, list[int]] = {}
        for index, entry in enumerate(entries):
            grouped.setdefault((entry.topic.topic_id, entry.partition), []).append(index)
        results: list[Exception | None] = [None] * len(entries)
        while grouped:
            part = {key: indexes[:PARTITION_RECORDS] for key, indexes in grouped.items()}
            refused = await self._request(
                node, {key: [entries[n] for n in indexes] for key, indexes in part.items()}
            )
            left: dict[Partition, list[int]] = {}
            for key, indexes in grouped.items():
                if key in refused:  # what comes after it would only arrive out of order
                    for index in indexes:
                        results[index] = refused[key]
                elif len(indexes) > PARTITION_RECORDS:
                    left[key] = indexes[PARTITION_RECORDS:]
            grouped = left
        return results

    async def _request(
        self, node: int, grouped: dict[Partition, list[Entry]]
    ) -> dict[Partition, Exception]:
        """One request, one batch per partition; answers the partitions that refused theirs."""
        identity = await self._identify(node)
        batches = [
            (part[0].topic, (part[0].partition, _batch(part, identity, key)))
            for key, part in grouped.items()
        ]
        request = ProduceRequest(None, _ALL_REPLICAS, self._delivery_ms, by_topic(batches))
        try:
            codes = await self._deliver(node, request)
        except BaseException:
            self._disown(identity)
            raise
        refused: dict[Partition, Exception] = {}
        for key, part in grouped.items():
            name, number = part[0].topic.name, key[1]
            code = codes.get((name, number), _NO_ANSWER)
            if code in (0, _DUPLICATE):
                identity.sequences[key] = identity.sequences.get(key, 0) + len(part)
                self.records += len(part)
                self.tasks += sum(entry.tasks for entry in part)
            else:
                refused[key] = unavailable(f"refused a record for {name}/{number}", f"error {code}")
        if refused:
            self._disown(identity)
        return refused

    def _disown(self, identity: _Identity) -> None:
        if self._identity is identity:
            self._identity = None

    async def _deliver(self, node: int, request: ProduceRequest) -> dict[tuple[str, int], int]:
        """Kafka's codes by topic name and partition."""
        try:
            response = await self._cluster.send(node, request, PRODUCE)
        except Unavailable as error:
            if isinstance(error.__cause__, TimeoutError):
                raise
            # most often an idle connection that the broker had closed; the broker drops a repeat
            response = await self._cluster.send(node, request, PRODUCE)
        return {
            (name, part[0]): part[1] for name, partitions in response.topics for part in partitions
        }

    async def _identify(self, node: int) -> _Identity:
        if self._identity is None:
            no_transaction: Any = None  # the driver's annotation does not know that it may be null
            request = InitProducerIdRequest(no_transaction, _NO_TIMEOUT)
            answer = await self._cluster.send(node, request, PRODUCE)
            if answer.error_code:
                raise unavailable("gave no producer id", f"error {answer.error_code}")
            if self._identity is None:
                self._identity = _Identity(answer.producer_id, answer.producer_epoch)
        return self._identity


class _Outbox:
    """What is written to one broker; its batcher calls write, never twice at a time."""

    def __init__(self, producer: Producer, node: int) -> None:
        self._producer = producer
        self._node = node

    async def write(self, entries: list[Entry]) -> list[Exception | None]:
        return await self._producer.write(self._node, entries)


def _batch(entries: Sequence[Entry], identity: _Identity, key: Partition) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=0,
        is_transactional=0,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=identity.sequences.get(key, 0),
        batch_size=_BATCH_BYTES,
    )
    for offset, entry in enumerate(entries):
        builder.append(offset, entry.published_at, None, entry.value, [])
    return bytes(builder.build())
