"""The one request that the driver lacks: Metadata with topic ids.

A topic that was deleted and made again has its name but not its id, and a committed offset means
nothing in it. The driver stops at version 5; ids came with 10, and 12 is what every broker since
3.1 speaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

NO_LEADER = -1
_NO_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it stands: `leaders` holds a node per partition, NO_LEADER where there is none."""

    name: str
    topic_id: bytes
    leaders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """Brokers by node, the controller, and the topics that exist among those asked for."""

    brokers: dict[int, tuple[str, int]]
    controller: int
    topics: dict[str, Topic]


class _Uuid(AbstractType[bytes]):
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class _MetadataResponse(Response):
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _MetadataRequest(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 12
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", _Uuid), ("topic", CompactString("utf-8")), ("tags", TaggedFields)
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class MetadataRequest(Request[_MetadataRequest]):
    """Brokers and the named topics; None asks for every topic."""

    API_KEY = 3

    def __init__(self, names: Sequence[str] | None) -> None:
        self._names = names

    def build(self, request_struct_class: type[_MetadataRequest]) -> _MetadataRequest:
        """The request as the driver sends it."""
        names = self._names
        topics: Any = None if names is None else [(_NO_ID, name, {}) for name in names]
        return request_struct_class(topics, False, False, {})


def read_metadata(response: Any) -> Metadata:
    """The response in our own words; a topic with an error is left out as if it did not exist."""
    found: dict[str, Topic] = {}
    for error, name, topic_id, _, partitions, _, _ in response.topics:
        if error == 0 and name is not None:
            leaders: dict[int, int] = {part[1]: part[2] for part in partitions}
            if sorted(leaders) == list(range(len(leaders))):
                found[name] = Topic(
                    name, topic_id, tuple(leaders[number] for number in range(len(leaders)))
                )
    brokers: dict[int, tuple[str, int]] = {row[0]: (row[1], row[2]) for row in response.brokers}
    return Metadata(brokers, response.controller_id, found)
