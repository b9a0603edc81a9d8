"""How the partitions of a topic are shared out over the nodes that serve its lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from ...store.port import ShardLease

LANE_PREFIX = "lane/"
CREDIT_PREFIX = "credit/"


class Claim(NamedTuple):
    """What a credit lease says: this node serves this lane with about so many credits."""

    lane: str
    node: str
    weight: int


def weight_of(credits_: int) -> int:
    """Credits to the nearest power of two below: workers that come and go hardly change it."""
    return 1 << (max(credits_, 1).bit_length() - 1)


def credit_name(lane: str, node: str, credits_: int) -> str:
    """The lease by which a node tells the others that it serves a lane (its key)."""
    return f"{CREDIT_PREFIX}{lane}/{node}/{weight_of(credits_)}"


def read_credit(lease: ShardLease) -> Claim:
    """The other way round; the owner is the node, whatever its name contains."""
    lane = lease.name.removeprefix(CREDIT_PREFIX).partition("/")[0]
    return Claim(lane, lease.owner, int(lease.name.rpartition("/")[2]))


def partition_name(topic: str, number: int) -> str:
    """The lease of a partition."""
    return f"{LANE_PREFIX}{topic}/{number}"


def read_partition(name: str) -> tuple[str, int]:
    """Topic and number of a partition's lease."""
    topic, _, number = name.removeprefix(LANE_PREFIX).rpartition("/")
    return topic, int(number)


def share(weights: Mapping[str, int], node: str, partitions: int, topic: str) -> int:
    """How many partitions `node` should hold: by weight, largest remainder first.

    Every node computes the same from the same leases. Ties are broken by a hash with the topic,
    so that the same node does not get the odd partition of every topic.
    """
    total = sum(weights.values())
    if not weights.get(node) or not total:
        return 0
    whole = {name: partitions * weight // total for name, weight in weights.items()}
    rest = partitions - sum(whole.values())
    order = sorted(
        weights,
        key=lambda name: (
            -(partitions * weights[name] % total),
            crc32(f"{topic}/{name}".encode()),
            name,
        ),
    )
    return whole[node] + (node in order[:rest])
