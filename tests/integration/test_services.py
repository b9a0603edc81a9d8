"""The native services answer real clients, come back after a kill, and die with their owner."""

import os
import select
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from native_services import Services
from redis.asyncio import Redis

from tests.services import RealServices

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"

OWNER = """
import sys
from native_services import Services
services = Services()
services.start("redis", "postgresql")
print(*(entry.pid for entry in services.running.values()), services.folder, flush=True)
sys.stdin.read()
"""


async def test_postgresql_is_durable_and_counts_statements(services: RealServices) -> None:
    connection = await asyncpg.connect(services.store)
    try:
        settings = [
            await connection.fetchval(f"SHOW {name}") for name in ("fsync", "synchronous_commit")
        ]
        counted = await connection.fetchval("SELECT count(*) FROM pg_stat_statements")
    finally:
        await connection.close()
    assert settings == ["on", "on"]
    assert counted >= 0


async def test_redis_never_evicts_and_forgets_on_a_kill(services: RealServices) -> None:
    key = uuid.uuid4().hex
    redis = Redis.from_url(services.wheel)
    try:
        assert (await redis.config_get("maxmemory-policy"))["maxmemory-policy"] == "noeviction"
        await redis.set(key, "1")
    finally:
        await redis.aclose()
    services.kill("redis")
    services.restart("redis")
    redis = Redis.from_url(services.wheel)
    try:
        assert await redis.get(key) is None
    finally:
        await redis.aclose()


async def test_kafka_keeps_acknowledged_records_over_a_kill(services: RealServices) -> None:
    server, topic = services.queue.removeprefix("kafka://"), f"t-{uuid.uuid4().hex}"
    admin = AIOKafkaAdminClient(bootstrap_servers=server)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=8, replication_factor=1)])
    finally:
        await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=server, enable_idempotence=True, acks="all")
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"due", partition=7)
    finally:
        await producer.stop()
    services.kill("kafka")
    services.restart("kafka")
    consumer = AIOKafkaConsumer(bootstrap_servers=server, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 7)])
        assert (await consumer.getone()).value == b"due"
    finally:
        await consumer.stop()


def test_services_die_with_their_owner_and_leave_nothing() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=DEPLOY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with owner:
        assert owner.stdout is not None
        *pids, folder = owner.stdout.readline().split()
        handles = [os.pidfd_open(int(pid)) for pid in pids]
        owner.send_signal(signal.SIGKILL)
    for handle in handles:
        ended, _, _ = select.select([handle], [], [], 30)
        os.close(handle)
        assert ended, "a service outlived its owner"
    assert len(handles) == 2
    assert folder


def test_stopping_removes_the_data_and_keeps_the_logs(tmp_path: Path) -> None:
    services = Services(tmp_path)
    services.start("redis")
    entry = services.running["redis"]
    assert Path(entry.launch.data).is_dir()
    services.stop()
    assert not Path(entry.launch.data).exists()
    assert Path(entry.launch.log).exists()
    assert not services.running
