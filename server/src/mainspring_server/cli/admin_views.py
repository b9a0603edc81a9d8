"""How queues, workers and servers read to people; `views` has the tasks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .views import duration, instant, relative, rung_name

if TYPE_CHECKING:
    from mainspring.v1.admin_service_pb2 import GetServerInfoResponse, Queue, Worker

QUEUE_COLUMNS = (
    "Queue",
    "State",
    "Ready",
    "Oldest",
    "Running",
    "Pending",
    "Workers",
    "Slots",
    "Drained in",
    "Reason",
)
WORKER_COLUMNS = ("Worker", "State", "Host", "Leases", "Slots", "Takes", "Seen", "Library")


def queue_row(queue: Queue) -> list[str]:
    """A queue in a list, by QUEUE_COLUMNS."""
    return [
        queue.queue,
        "PAUSED" if queue.paused else "open",
        str(queue.ready),
        duration(queue.oldest_ready_age),
        str(queue.running),
        str(queue.pending),
        str(queue.workers),
        str(queue.slots),
        duration(queue.drain_estimate),
        queue.pause_reason,
    ]


def worker_row(worker: Worker) -> list[str]:
    """A worker in a list, by WORKER_COLUMNS."""
    takes = [*worker.task_types, *(f"queue {name}" for name in worker.queues)]
    return [
        worker.worker_id,
        "DRAINING" if worker.draining else "open" if worker.session_id else "polls",
        worker.hostname,
        str(worker.leases),
        str(worker.slots),
        ", ".join(takes),
        instant(worker.last_seen_time),
        f"{worker.sdk_name} {worker.sdk_version}".strip(),
    ]


def info_fields(reply: GetServerInfoResponse) -> dict[str, str]:
    """What a server is, for `info`."""
    limits = reply.limits
    owned = sum(1 for shard in reply.shards if shard.owner)
    return {
        "version": reply.version,
        "node": reply.node_id,
        "roles": ", ".join(reply.roles),
        "namespace": reply.namespace,
        "store": reply.store,
        "trigger": _rung(rung_name(reply.trigger_rung), rung_name(reply.configured_trigger_rung)),
        "queue": _rung(
            rung_name(reply.queue_rung, queue=True),
            rung_name(reply.configured_queue_rung, queue=True),
        ),
        "shards": f"{owned} of {len(reply.shards)} owned" if reply.shards else "",
        "started": relative(reply.start_time, datetime.now(UTC)),
        "lease": f"{duration(reply.lease_timeout)}, a beat every {duration(reply.heartbeat_interval)}",
        "clock offset": f"{reply.clock_offset.ToTimedelta().total_seconds() * 1_000:+.0f}ms",
        "tz database": reply.tzdata_version,
        "limits": (
            f"payload {limits.payload_bytes:,} bytes\noutcome {limits.outcome_bytes:,} bytes\n"
            f"batch {limits.batch_requests:,} tasks, {limits.batch_bytes:,} bytes\n"
            f"page {limits.page_size:,} tasks\ndelay {duration(limits.delay)}"
        ),
    }


def _rung(now: str, configured: str) -> str:
    """Where the server is on its ladder, and whether it should be higher."""
    return now if now == configured else f"{now} (configured: {configured}, which is away)"
