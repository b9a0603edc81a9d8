"""What the services themselves have counted: statements, commands and records."""

from __future__ import annotations

from collections import Counter
from typing import Any

import asyncpg

from mainspring import Client

from .site import Site

_STATEMENTS = (
    "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements "
    "WHERE query NOT LIKE '%pg_stat_statements%'"
)
# What the connection pools and this program do by themselves.
_OWN_COMMANDS = frozenset({"info", "client", "hello", "ping", "config"})


OWN = {"sql": "sql_statements", "redis": "redis_commands", "kafka": "kafka_records"}
"""What the servers call what the services count."""


def counted_by_servers(site: Site) -> dict[str, int]:
    """The sums of the servers' own counters, by their names in GetServerInfo."""
    found: Counter[str] = Counter()
    for address in site.servers:
        with Client(address) as client:
            found.update(client.server_info().counters)
    return dict(found)


class Counters:
    """Reads the counters of a site's services; the difference of two readings is what was done."""

    def __init__(self, site: Site) -> None:
        self._urls = site.urls

    async def read(self) -> dict[str, int]:
        """`sql`, `redis`, `kafka` and `kafka_internal`, as far as the rung has them."""
        found = {"sql": await self._statements()}
        if "wheel" in self._urls:
            found["redis"] = await self._commands()
        if "queue" in self._urls:
            found["kafka"], found["kafka_internal"] = await self._records()
        return found

    async def _statements(self) -> int:
        connection = await asyncpg.connect(self._urls["store"])
        try:
            return int(await connection.fetchval(_STATEMENTS))
        finally:
            await connection.close()

    async def _commands(self) -> int:
        from redis.asyncio import Redis  # noqa: PLC0415 - only this rung has it

        client = Redis.from_url(self._urls["wheel"])
        try:
            stats = await client.info("commandstats")
        finally:
            await client.aclose()
        calls = {
            name.removeprefix("cmdstat_").partition("|")[0]: int(row["calls"])
            for name, row in stats.items()
        }
        return sum(count for name, count in calls.items() if name not in _OWN_COMMANDS)

    async def _records(self) -> tuple[int, int]:
        """Records in the topics of lanes, and in those that the broker keeps for itself."""
        from aiokafka import AIOKafkaConsumer, TopicPartition  # noqa: PLC0415
        from aiokafka.admin import AIOKafkaAdminClient  # noqa: PLC0415

        brokers = self._urls["queue"].removeprefix("kafka://")
        # Their constructors have no annotations.
        admin: Any = AIOKafkaAdminClient(bootstrap_servers=brokers)
        consumer: Any = AIOKafkaConsumer(bootstrap_servers=brokers)
        await admin.start()
        await consumer.start()
        try:
            partitions = [
                TopicPartition(topic["topic"], row["partition"])
                for topic in await admin.describe_topics()
                for row in topic["partitions"]
            ]
            ends = await consumer.end_offsets(partitions) if partitions else {}
        finally:
            await consumer.stop()
            await admin.close()
        internal = sum(end for place, end in ends.items() if place.topic.startswith("__"))
        return sum(ends.values()) - internal, internal
