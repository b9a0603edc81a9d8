"""WorkerService: the lease stream, and the same in unary calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from mainspring.v1 import lease_pb2, worker_service_pb2, worker_service_pb2_grpc

from ..admission.limits import Limits
from ..clock import Clock
from ..dispatch.dispatcher import Dispatcher
from ..dispatch.session import GrantFrame, Session, WorkerInfo
from ..domain.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unavailable,
)
from ..domain.leases import LeaseRef, LeaseTerms, ResultState, WorkerResult
from ..engine import Engine
from ..ids import mint, text_of
from .convert import check_text, duration, duration_ms
from .interceptors import namespace_of
from .lease_frames import beats, lease_message, lease_reply, result, result_reply
from .lease_stream import LeaseStream, check_count, check_worker

MAX_WAIT_MS = 60_000


class WorkerService(worker_service_pb2_grpc.WorkerServiceServicer):
    """Leases tasks to workers and takes their beats and results.

    Without a dispatcher, in a process that has not that role, it only takes beats and results: a
    lease is held by its token, so any process of the cluster serves for them.
    """

    def __init__(
        self,
        engine: Engine,
        dispatcher: Dispatcher | None,
        clock: Clock,
        leases: LeaseTerms,
        limits: Limits,
    ) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._clock = clock
        self._leases = leases
        self._limits = limits

    def register(self, server: Any) -> None:
        """Add this service to a gRPC server."""
        worker_service_pb2_grpc.add_WorkerServiceServicer_to_server(self, server)

    async def Lease(  # type: ignore[override]  # it writes through the context
        self, request_iterator: AsyncIterator[Any], context: Any
    ) -> None:
        """One worker's stream."""
        dispatcher = self._dispatching("Lease")
        stream = LeaseStream(self._engine, dispatcher, self._clock, self._leases, self._limits)
        await stream.serve(request_iterator, context)

    def _dispatching(self, rpc: str) -> Dispatcher:
        if self._dispatcher is None:
            raise FailedPrecondition(
                "ROLE_MISSING",
                f"this process does not hand out tasks: call {rpc} on one with the role dispatch "
                "(mainspring worker --server takes a comma list of them)",
                metadata={"rpc": f"WorkerService/{rpc}", "role": "dispatch"},
            )
        if self._dispatcher.draining:
            raise Unavailable("SERVER_DRAINING", "this server is stopping; connect to another")
        return self._dispatcher

    async def Poll(self, request: Any, context: Any) -> worker_service_pb2.PollResponse:
        """Waits for tasks and leases them for the full lease."""
        dispatcher = self._dispatching("Poll")
        info = check_worker(namespace_of(context), request)
        most = request.max_tasks or 1
        if not 1 <= most <= self._limits.batch_requests:
            raise InvalidArgument(
                "FIELD_INVALID",
                f"max_tasks must be from 0 to {self._limits.batch_requests}, not {most}",
                field="max_tasks",
            )
        wait = duration_ms(request.wait_timeout, "wait_timeout", minimum=0, maximum=MAX_WAIT_MS)
        frame = await self._wait(dispatcher, info, most, wait)
        return worker_service_pb2.PollResponse(
            leases=[lease_message(grant) for grant in frame.grants] if frame else [],
            lease_timeout=duration(self._leases.lease_ms),
            heartbeat_interval=duration(self._leases.heartbeat_ms),
        )

    async def _wait(
        self, dispatcher: Dispatcher, info: WorkerInfo, most: int, wait_ms: int
    ) -> GrantFrame | None:
        """A session that lives for one claim; what it did not take along goes back."""
        now = self._clock.now()
        session = Session(
            session_id=text_of(mint(now, 1)[0]),
            info=info,
            connected_at=now,
            lease_ms=self._leases.lease_ms,
            acked=True,
            credits=most,
        )
        dispatcher.register(session)
        try:
            if wait_ms == 0:
                # one pass may be under way without this session; the next one has seen it
                await dispatcher.probe.next(2 if dispatcher.busy else 1)
            elif not session.outbox:
                await self._clock.wait(session.ready, now + wait_ms)
            frame = session.take() if session.outbox else None
            return frame if isinstance(frame, GrantFrame) else None
        finally:
            await dispatcher.unregister(session)

    async def Heartbeat(self, request: Any, context: Any) -> worker_service_pb2.HeartbeatResponse:
        """Extends leases."""
        check_text(request.worker_id, "worker_id", 128, required=True)
        self._check_count(request.leases, "leases")
        found = beats(request.leases, self._leases.lease_ms, self._limits)
        answers = await self._engine.heartbeat(found)
        return worker_service_pb2.HeartbeatResponse(
            leases=[
                lease_reply(LeaseRef(beat.task_id, beat.token), answer)
                for beat, answer in zip(found, answers, strict=True)
            ]
        )

    def _check_count(self, items: Sequence[Any], field: str) -> None:
        if not items:
            raise InvalidArgument("FIELD_REQUIRED", f"{field} must not be empty", field=field)
        check_count(items, field, self._limits)

    async def Complete(self, request: Any, context: Any) -> worker_service_pb2.CompleteResponse:
        """Takes results; the only result of a call answers its own status when it is refused."""
        check_text(request.worker_id, "worker_id", 128, required=True)
        self._check_count(request.results, "results")
        if len(request.results) == 1:
            return await self._complete_one(request.results[0])
        replies, good = split_results(request.results, self._limits)
        states = await self._engine.complete([found for _, found in good])
        for (n, found), state in zip(good, states, strict=True):
            if isinstance(state, Unavailable):
                raise state  # the caller repeats the call: what was stored is a duplicate then
            replies[n] = result_reply(LeaseRef(found.task_id, found.token), state)
        return worker_service_pb2.CompleteResponse(results=replies)

    async def _complete_one(
        self, item: lease_pb2.TaskResult
    ) -> worker_service_pb2.CompleteResponse:
        found = result(item, "results[0]", self._limits)
        state = (await self._engine.complete([found]))[0]
        if isinstance(state, Exception):
            raise state
        if state is ResultState.STALE:
            await self._refuse(found)
        ref = LeaseRef(found.task_id, found.token)
        return worker_service_pb2.CompleteResponse(results=[result_reply(ref, state)])

    async def _refuse(self, found: WorkerResult) -> None:
        name = text_of(found.task_id)
        if (await self._engine.store.load([found.task_id]))[0] is None:
            raise NotFound("TASK_NOT_FOUND", f"no task {name}", metadata={"task_id": name})
        raise FailedPrecondition(
            "LEASE_LOST",
            f"lease token {found.token} is not the current one of task {name}; nothing was changed. "
            "Drop the work: another attempt may be running",
            metadata={"task_id": name, "lease_token": str(found.token)},
        )


def split_results(
    items: Sequence[lease_pb2.TaskResult], limits: Limits
) -> tuple[list[lease_pb2.ResultReply], list[tuple[int, WorkerResult]]]:
    """A reply per item (INVALID already filled in) and the good results with their positions."""
    replies = [lease_pb2.ResultReply()] * len(items)
    good: list[tuple[int, WorkerResult]] = []
    for n, item in enumerate(items):
        try:
            good.append((n, result(item, f"results[{n}]", limits)))
        except InvalidArgument as error:
            replies[n] = lease_pb2.ResultReply(
                task_id=item.task_id,
                lease_token=item.lease_token,
                state=lease_pb2.RESULT_STATE_INVALID,
                error=error.message,
            )
    return replies, good
