"""What this process is and can do, as GetServerInfo answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mainspring.v1 import admin_service_pb2, rung_pb2

from .. import __version__
from ..clock_guard import ClockGuard
from ..config import Settings
from ..domain.calendar import tzdata_version
from ..queue.port import ReadyQueue
from ..store.port import ShardLeases
from ..wheel.port import Wheel
from .convert import duration, timestamp
from .explain import QUEUE_RUNGS, TRIGGER_RUNGS

PROTOCOL_VERSIONS = (1,)
SHARD_PREFIX = "shard/"


@dataclass(frozen=True, slots=True)
class Readings:
    """What changes while the process runs, read when somebody asks. Times in ms."""

    counters: Mapping[str, Callable[[], int]]
    watermark: Callable[[], int | None]
    """Everything due before it was fired here; None without the role trigger."""
    oldest_find_ms: Callable[[], int | None]
    """None without the role sweep."""


NO_READINGS = Readings({}, lambda: None, lambda: None)

CAPABILITIES = (
    *("Submit", "SubmitBatch", "Status", "Cancel", "History", "List", "Count", "Watch"),
    *("Explain", "Reschedule", "Retry", "Lease", "Poll", "Heartbeat", "Complete"),
    *("ListQueues", "PauseQueue", "ResumeQueue", "ListWorkers", "GetServerInfo"),
    *("Submit.schedule.immediate", "Submit.schedule.due_time", "Submit.schedule.delay"),
    *("Submit.schedule.cron", "Pause", "Resume", "Trigger", "Backfill", "Update", "Preview"),
    *("Submit.dependencies", "SubmitBatch.atomic", "SubmitBatch.cron"),
)


class ServerInfo:
    """Describes the process; begun when the process starts, since it keeps that time."""

    def __init__(
        self,
        settings: Settings,
        guard: ClockGuard,
        store: ShardLeases,
        wheel: Wheel,
        queue: ReadyQueue,
        readings: Readings = NO_READINGS,
    ) -> None:
        self.settings = settings
        self._guard = guard
        self._store = store
        self._wheel = wheel
        self._queue = queue
        self._readings = readings
        self._started_at = guard.clock.now()

    async def describe(self, namespace: str) -> admin_service_pb2.GetServerInfoResponse:
        """The answer for a caller of this namespace."""
        settings = self.settings
        response = admin_service_pb2.GetServerInfoResponse(
            version=__version__,
            node_id=settings.node,
            roles=sorted(role.value for role in settings.roles),
            capabilities=CAPABILITIES,
            store="sqlite" if settings.sqlite_path is not None else "postgresql",
            trigger_rung=TRIGGER_RUNGS.get(self._wheel.rung, rung_pb2.TRIGGER_RUNG_WHEEL),
            configured_trigger_rung=(
                rung_pb2.TRIGGER_RUNG_WHEEL if settings.wheel else rung_pb2.TRIGGER_RUNG_STORE
            ),
            queue_rung=QUEUE_RUNGS.get(self._queue.rung, rung_pb2.QUEUE_RUNG_BROKER),
            configured_queue_rung=(
                rung_pb2.QUEUE_RUNG_BROKER if settings.queue else rung_pb2.QUEUE_RUNG_STORE
            ),
            limits=self._limits(),
            start_time=timestamp(self._started_at),
            clock_offset=duration(self._guard.offset_ms),
            tzdata_version=tzdata_version(),
            protocol_versions=PROTOCOL_VERSIONS,
            lease_timeout=duration(settings.lease_ms),
            heartbeat_interval=duration(settings.heartbeat_ms),
            namespace=namespace,
            counters={name: read() for name, read in self._readings.counters.items()},
        )
        oldest = self._readings.oldest_find_ms()
        if oldest is not None:
            response.oldest_find_age.CopyFrom(duration(oldest))
        await self._add_shards(response)
        return response

    async def _add_shards(self, response: admin_service_pb2.GetServerInfoResponse) -> None:
        watermark = self._readings.watermark()
        for lease in await self._store.shard_leases(SHARD_PREFIX):
            number = lease.name.removeprefix(SHARD_PREFIX)
            if number.isdigit():
                shard = response.shards.add(shard=int(number), owner=lease.owner, term=lease.term)
                if watermark is not None and lease.owner == self.settings.node:
                    shard.watermark_time.CopyFrom(timestamp(watermark))
        response.shards.sort(key=lambda info: info.shard)

    def _limits(self) -> admin_service_pb2.ServerLimits:
        limits = self.settings.limits
        return admin_service_pb2.ServerLimits(
            payload_bytes=limits.payload_bytes,
            outcome_bytes=limits.outcome_bytes,
            checkpoint_bytes=limits.checkpoint_bytes,
            error_bytes=limits.error_bytes,
            labels=limits.labels,
            predecessors=limits.predecessors,
            batch_requests=limits.batch_requests,
            batch_bytes=limits.batch_bytes,
            page_size=limits.page_size,
            delay=duration(limits.delay_ms),
            buffered_instances=limits.buffered_instances,
        )
