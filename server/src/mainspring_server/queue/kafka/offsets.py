"""Committed offsets, and where partitions begin and end.

A committed offset carries the id of its topic: that of a topic which was deleted and made again
says nothing about the new one, and neither does one beyond the end. Both mean: from the beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.offset import OffsetRequest

from ...domain.errors import Unavailable
from .cluster import Cluster, by_topic, unavailable
from .fetching import Key
from .protocol import NO_LEADER, Topic

_NO_GENERATION = -1
_NO_RETENTION = -1
_NOT_A_REPLICA = -1
_LATEST = -1
_EARLIEST = -2
_MOVED = frozenset({14, 15, 16})  # the coordinator is loading, missing, or another


class Standing(NamedTuple):
    """Where a partition is read from (`claimed`), and its end; `end` was read after `claimed`."""

    claimed: int
    end: int


class Offsets:
    """The consumer group's offsets; the group has no members and never rebalances."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group

    async def commit(self, rows: Sequence[tuple[Topic, int, int]]) -> None:
        """Commit (topic, partition, offset) in one request."""
        parts = [(topic, (number, offset, topic.topic_id.hex())) for topic, number, offset in rows]
        request = OffsetCommitRequest(
            self._group, _NO_GENERATION, "", _NO_RETENTION, by_topic(parts)
        )
        response = await self._cluster.coordinate(self._group, request)
        self._check(code for _, partitions in response.topics for _, code in partitions)

    def _check(self, codes: Iterable[int]) -> None:
        moved = next((code for code in codes if code in _MOVED), 0)
        if moved:
            self._cluster.forget_coordinator(self._group)
            raise unavailable(f"is moving the group {self._group}", f"error {moved}")

    async def standing(self, topics: Sequence[Topic]) -> dict[Key, Standing]:
        """Claimed and end per partition; those that cannot be told now are left out."""
        if not topics:
            return {}
        committed = await self._committed(topics)
        starts, ends = await asyncio.gather(
            self._bounds(topics, _EARLIEST), self._bounds(topics, _LATEST)
        )
        found = {}
        for key, end in ends.items():
            start = starts.get(key)
            if start is not None:
                claimed = committed.get(key, start)
                valid = start <= claimed <= end
                found[key] = Standing(claimed if valid else start, end)
        return found

    async def _committed(self, topics: Sequence[Topic]) -> dict[Key, int]:
        wanted = [(topic.name, list(range(len(topic.leaders)))) for topic in topics]
        response = await self._cluster.coordinate(
            self._group, OffsetFetchRequest(self._group, wanted)
        )
        codes = [code for _, parts in response.topics for _, _, _, code in parts]
        self._check([*codes, getattr(response, "error_code", 0)])
        ids = {topic.name: topic.topic_id.hex() for topic in topics}
        return {
            (name, number): offset
            for name, parts in response.topics
            for number, offset, metadata, code in parts
            if code == 0 and offset >= 0 and metadata == ids.get(name)
        }

    async def _bounds(self, topics: Sequence[Topic], when: int) -> dict[Key, int]:
        by_node: dict[int, list[tuple[Topic, tuple[int, int]]]] = {}
        for topic in topics:
            for number, node in enumerate(topic.leaders):
                if node != NO_LEADER:
                    by_node.setdefault(node, []).append((topic, (number, when)))
        answers = await asyncio.gather(
            *(
                self._cluster.send(node, OffsetRequest(_NOT_A_REPLICA, 0, by_topic(rows)))
                for node, rows in by_node.items()
            ),
            return_exceptions=True,
        )
        found: dict[Key, int] = {}
        for answer in answers:
            if isinstance(answer, Unavailable):
                continue  # one broker of several: its partitions are left out
            if isinstance(answer, BaseException):
                raise answer
            for name, parts in answer.topics:
                for number, code, _, offset in parts:
                    if code == 0:
                        found[name, number] = offset
        return found
