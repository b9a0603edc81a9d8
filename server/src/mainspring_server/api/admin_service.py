"""AdminService: queues, workers, and what the server is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mainspring.v1 import admin_service_pb2, admin_service_pb2_grpc

from ..dispatch.dispatcher import Dispatcher
from ..domain.errors import Unimplemented
from ..domain.task import lane_of
from ..engine import Engine
from ..store.port import Field, LaneCounts, PausedQueue, Store, WorkerRow
from .convert import check_name, check_text, duration, page_size, timestamp
from .interceptors import namespace_of
from .pages import page_key, page_token
from .server_info import ServerInfo

__all__ = ["AdminService"]

PACE_MS = 60_000
"""The pace of a queue is what it finished within so long."""


class AdminService(admin_service_pb2_grpc.AdminServiceServicer):
    """For those who run Mainspring."""

    def __init__(
        self, engine: Engine, store: Store, dispatcher: Dispatcher, info: ServerInfo
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._info = info
        self._clock = engine.clock
        self._limits = info.settings.limits

    def register(self, server: Any) -> None:
        """Add this service to a gRPC server."""
        admin_service_pb2_grpc.add_AdminServiceServicer_to_server(self, server)

    async def ListQueues(
        self, request: admin_service_pb2.ListQueuesRequest, context: Any
    ) -> admin_service_pb2.ListQueuesResponse:
        """Read the queues that hold tasks, have workers or are paused, by name."""
        namespace = namespace_of(context)
        size = self._page_size(request.page_size)
        scope = ("ListQueues", namespace)
        key = page_key(request.page_token, scope)
        queues = await self._queues(namespace)
        left = [queue for queue in queues if key is None or queue.queue > key[1]]
        response = admin_service_pb2.ListQueuesResponse(queues=left[:size])
        if len(left) > size:
            response.next_page_token = page_token(scope, (0, left[size - 1].queue))
        return response

    async def PauseQueue(
        self, request: admin_service_pb2.PauseQueueRequest, context: Any
    ) -> admin_service_pb2.PauseQueueResponse:
        """Stop a queue from giving tasks to workers."""
        name = check_name(request.queue, "queue")
        reason = check_text(request.reason, "reason", self._limits.reason_chars)
        namespace = namespace_of(context)
        await self._store.pause(lane_of(namespace, name), reason)
        await self._refresh()
        queue = await self._queue(namespace, name)
        return admin_service_pb2.PauseQueueResponse(queue=queue)

    async def ResumeQueue(
        self, request: admin_service_pb2.ResumeQueueRequest, context: Any
    ) -> admin_service_pb2.ResumeQueueResponse:
        """Let a paused queue go on."""
        name = check_name(request.queue, "queue")
        namespace = namespace_of(context)
        await self._store.resume(lane_of(namespace, name))
        await self._refresh()
        queue = await self._queue(namespace, name)
        return admin_service_pb2.ResumeQueueResponse(queue=queue)

    async def ListWorkers(
        self, request: admin_service_pb2.ListWorkersRequest, context: Any
    ) -> admin_service_pb2.ListWorkersResponse:
        """Read the connected workers, by id."""
        namespace = namespace_of(context)
        queue = request.queue and check_name(request.queue, "queue")
        size = self._page_size(request.page_size)
        scope = ("ListWorkers", namespace, queue)
        key = page_key(request.page_token, scope)
        rows = [
            row for row in await self._store.workers(namespace) if not queue or _takes(row, queue)
        ]
        places = sorted((_place(row), row.session_id) for row in rows)
        left = [place for place in places if key is None or place[0] > key[1]]
        by_session = {row.session_id: row for row in rows}
        response = admin_service_pb2.ListWorkersResponse()
        draining = {s.session_id for s in self._dispatcher.sessions if s.draining}
        for _, session in left[:size]:
            response.workers.append(_worker(by_session[session], draining=session in draining))
        if len(left) > size:
            response.next_page_token = page_token(scope, (0, left[size - 1][0]))
        return response

    async def Forecast(
        self, request: admin_service_pb2.ForecastRequest, context: Any
    ) -> admin_service_pb2.ForecastResponse:
        """Not served yet."""
        raise Unimplemented(
            "NOT_IMPLEMENTED",
            "Forecast is not served by this version; GetServerInfo lists its capabilities",
            metadata={"rpc": "Forecast"},
        )

    async def GetServerInfo(
        self, request: admin_service_pb2.GetServerInfoRequest, context: Any
    ) -> admin_service_pb2.GetServerInfoResponse:
        """Say what the answering server is and can do."""
        return await self._info.describe(namespace_of(context))

    # --- Queues -------------------------------------------------------------------------------

    def _page_size(self, value: int) -> int:
        return page_size(value, self._limits.default_page_size, self._limits.page_size)

    async def _refresh(self) -> None:
        """The dispatcher of this process need not wait for its own next look."""
        self._dispatcher.pause(row.lane for row in await self._store.paused())

    async def _queue(self, namespace: str, name: str) -> admin_service_pb2.Queue:
        for queue in await self._queues(namespace):
            if queue.queue == name:
                return queue
        return admin_service_pb2.Queue(queue=name)

    async def _queues(self, namespace: str) -> list[admin_service_pb2.Queue]:
        """All queues of a namespace, by name."""
        now = self._clock.now()
        prefix = lane_of(namespace, "")
        counts = {row.lane: row for row in await self._store.lane_counts(namespace)}
        paused = {
            row.lane: row for row in await self._store.paused() if row.lane.startswith(prefix)
        }
        workers = await self._store.workers(namespace)
        named = {
            lane_of(namespace, name) for row in workers for name in (*row.queues, *row.task_types)
        }
        finished = await self._finished(namespace, now) if counts else {}
        queues = []
        for lane in sorted({*counts, *paused, *named}):
            queue = admin_service_pb2.Queue(queue=lane.removeprefix(prefix))
            _add_counts(queue, counts.get(lane), now, finished)
            _add_pause(queue, paused.get(lane))
            _add_workers(queue, workers)
            queues.append(queue)
        return queues

    async def _finished(self, namespace: str, now: int) -> dict[str, int]:
        """How many tasks of each queue became terminal within the last minute."""
        recent = Field("complete_time", ">=", now - PACE_MS)
        groups = await self._store.count_tasks(namespace, recent, "queue")
        return {str(name): count for name, count in groups if name is not None}


def _place(row: WorkerRow) -> str:
    """Workers are listed by id; one id may have two sessions for a moment."""
    return f"{row.worker_id}\0{row.session_id}"


def _takes(row: WorkerRow, queue: str) -> bool:
    return queue in row.queues or queue in row.task_types


def _add_counts(
    queue: admin_service_pb2.Queue,
    counts: LaneCounts | None,
    now: int,
    finished: dict[str, int],
) -> None:
    if counts is None:
        return
    queue.ready = counts.ready
    queue.running = counts.running
    queue.pending = counts.pending
    if counts.oldest_ready_at is not None:
        queue.oldest_ready_age.CopyFrom(duration(max(now - counts.oldest_ready_at, 0)))
    pace = finished.get(queue.queue, 0)
    if counts.ready and pace:
        queue.drain_estimate.CopyFrom(duration(counts.ready * PACE_MS // pace))


def _add_pause(queue: admin_service_pb2.Queue, paused: PausedQueue | None) -> None:
    if paused is not None:
        queue.paused = True
        queue.pause_reason = paused.reason
        queue.pause_time.CopyFrom(timestamp(paused.paused_at))


def _add_workers(queue: admin_service_pb2.Queue, workers: Iterable[WorkerRow]) -> None:
    takers = [row for row in workers if _takes(row, queue.queue)]
    queue.workers = len(takers)
    queue.slots = sum(row.slots for row in takers)


def _worker(row: WorkerRow, *, draining: bool) -> admin_service_pb2.Worker:
    sdk_name, _, sdk_version = row.sdk.partition(" ")
    return admin_service_pb2.Worker(
        worker_id=row.worker_id,
        hostname=row.hostname,
        sdk_name=sdk_name,
        sdk_version=sdk_version,
        slots=row.slots,
        leases=row.in_use,
        max_leases=row.slots,
        task_types=row.task_types,
        queues=row.queues,
        draining=draining,
        session_id=row.session_id,
        connect_time=timestamp(row.connected_at),
        last_seen_time=timestamp(row.seen_at),
        node_id=row.node,
    )
