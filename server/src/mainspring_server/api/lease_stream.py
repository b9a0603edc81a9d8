"""One lease stream: a reader that feeds the dispatcher, a writer that empties the session's outbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sized
from typing import Any

from mainspring.v1 import lease_pb2, lease_stream_pb2

from .. import __version__
from ..admission.limits import Limits
from ..clock import Clock
from ..dispatch.dispatcher import Dispatcher
from ..dispatch.session import ReplyFrame, Session, WorkerInfo
from ..domain.errors import (
    Aborted,
    FailedPrecondition,
    InvalidArgument,
    MainspringError,
    Unavailable,
)
from ..domain.leases import (
    Beat,
    BeatAnswer,
    BeatState,
    LeaseRef,
    LeaseTerms,
    ResultState,
    WorkerResult,
)
from ..engine import Engine
from ..ids import mint, text_of
from .convert import check_name, check_text, duration
from .interceptors import namespace_of
from .lease_frames import (
    beats,
    frame_message,
    lease_refs,
    lease_reply,
    result,
    worker_time,
)

log = logging.getLogger(__name__)

PROTOCOL_VERSIONS = (1,)
ITEMS = {"ack": "leases", "heartbeat": "leases", "results": "results", "hand_back": "leases"}
"""The frames that carry lists, and where."""
MAX_SLOTS = 10_000
MAX_NAMES = 100
MAX_FRAMES_UNDER_WAY = 64
"""Frames of one stream whose results or beats are being stored; then reading pauses."""
AGAIN_MS = 500
"""The pause before what the store could not take is tried again."""


class LeaseStream:
    """Serves one worker from Hello to the end of its stream."""

    def __init__(
        self,
        engine: Engine,
        dispatcher: Dispatcher,
        clock: Clock,
        leases: LeaseTerms,
        limits: Limits,
    ) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._clock = clock
        self._leases = leases
        self._limits = limits
        self._under_way: set[asyncio.Task[None]] = set()
        self._session: Session | None = None

    async def serve(self, frames: AsyncIterator[Any], context: Any) -> None:
        """Read and write until either side ends; what was in flight is put right afterwards."""
        session = await self._open(frames, context)
        self._session = session
        writer = asyncio.create_task(self._write(session, context))
        reader = asyncio.create_task(self._read(session, frames))
        try:
            done, _ = await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if writer in done and reader not in done:
                reader.cancel()
                writer.result()
                raise self._ended()
            reader.result()
            await self._settle()
            session.half_close()
            await writer
        finally:
            for task in (reader, writer):
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
            session.ended.set()  # no answer can be told any more: nothing is tried again
            await self._settle()
            await self._dispatcher.unregister(session)

    def _ended(self) -> MainspringError:
        if self._dispatcher.draining:
            return Unavailable("SERVER_DRAINING", "this server has stopped; connect to another")
        return Aborted("SESSION_REPLACED", "a newer stream of this worker took over")

    async def _settle(self) -> None:
        while self._under_way:
            await asyncio.wait(set(self._under_way))

    # --- Hello --------------------------------------------------------------------------------

    async def _open(self, frames: AsyncIterator[Any], context: Any) -> Session:
        first = await anext(aiter(frames), None)
        if first is None or first.WhichOneof("frame") != "hello":
            raise FailedPrecondition("SESSION_NOT_STARTED", "the first frame must be hello")
        hello = first.hello
        info = self._check(hello, namespace_of(context))
        now = self._clock.now()
        session = Session(
            session_id=text_of(mint(now, 1)[0]),
            info=info,
            connected_at=now,
            lease_ms=self._leases.first_lease_ms,
        )
        session.heard(worker_time(first), self._clock.monotonic())
        read_at = self._clock.monotonic()
        held = lease_refs(hello.held, "hello.held")
        answers = await self._engine.heartbeat(
            [Beat(ref.task_id, ref.token, self._leases.lease_ms) for ref in held]
        )
        session.hold(
            [
                ref
                for ref, answer in zip(held, answers, strict=True)
                if isinstance(answer, Exception) or answer.state is BeatState.EXTENDED
            ],
            now,
            self._leases.lease_ms,
        )
        welcome = lease_stream_pb2.Welcome(
            session_id=session.session_id,
            lease_timeout=duration(self._leases.lease_ms),
            first_lease_timeout=duration(self._leases.first_lease_ms),
            heartbeat_interval=duration(self._leases.heartbeat_ms),
            server_version=__version__,
            held=[lease_reply(ref, answer) for ref, answer in zip(held, answers, strict=True)],
            echo_monotonic_time=duration(max(session.echo(read_at) or 0, 0)),
        )
        await context.write(lease_stream_pb2.LeaseResponse(welcome=welcome))
        self._dispatcher.register(session)
        return session

    def _check(self, hello: lease_stream_pb2.Hello, namespace: str) -> WorkerInfo:
        if hello.protocol_version not in PROTOCOL_VERSIONS:
            raise FailedPrecondition(
                "PROTOCOL_VERSION_UNSUPPORTED",
                f"protocol version {hello.protocol_version} is not served; upgrade the older side",
                metadata={"supported": ",".join(map(str, PROTOCOL_VERSIONS))},
            )
        info = check_worker(namespace, hello)
        if not 1 <= hello.slots <= MAX_SLOTS:
            raise InvalidArgument(
                "FIELD_INVALID",
                f"slots must be from 1 to {MAX_SLOTS}, not {hello.slots}",
                field="hello.slots",
            )
        if len(hello.held) > MAX_SLOTS:
            raise InvalidArgument(
                "FIELD_INVALID", f"at most {MAX_SLOTS} held leases", field="hello.held"
            )
        return info

    # --- Frames of the worker -----------------------------------------------------------------

    async def _read(self, session: Session, frames: AsyncIterator[Any]) -> None:
        async for frame in frames:
            was_suspended = session.suspended
            session.heard(worker_time(frame), self._clock.monotonic())
            if was_suspended:
                self._dispatcher.credit_changed(session)
            await self._take(session, frame)
            while len(self._under_way) >= MAX_FRAMES_UNDER_WAY:
                await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            await session.writable()

    async def _take(self, session: Session, frame: Any) -> None:
        kind = frame.WhichOneof("frame")
        if kind in ITEMS:
            check_count(getattr(getattr(frame, kind), ITEMS[kind]), kind, self._limits)
        if kind == "results":
            self._results(session, frame.results.results)
        elif kind == "ack":
            unknown = session.acknowledge(lease_refs(frame.ack.leases, "ack.leases"))
            if unknown:
                late = [Beat(ref.task_id, ref.token, self._leases.lease_ms) for ref in unknown]
                self._start(self._beat(session, late))
        elif kind == "heartbeat":
            found = beats(frame.heartbeat.leases, self._leases.lease_ms, self._limits)
            if found:
                self._start(self._beat(session, found))
            else:
                session.send(ReplyFrame(echo=session.echo(self._clock.monotonic())))
        elif kind == "credits":
            session.credits = max(0, min(frame.credits.max_leases, MAX_SLOTS))
            self._dispatcher.credit_changed(session)
        elif kind == "hand_back":
            self._start(self._hand_back(session, lease_refs(frame.hand_back.leases, "hand_back")))
        elif kind == "drain":
            session.draining = True
        elif kind == "hello":
            raise FailedPrecondition("SESSION_NOT_STARTED", "hello was said before on this stream")
        else:
            raise InvalidArgument("FIELD_REQUIRED", "a frame must have content", field="frame")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """One coroutine a frame, so that a slow write never delays reading the next beat."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _results(self, session: Session, items: Any) -> None:
        good: list[WorkerResult] = []
        bad: list[tuple[LeaseRef, ResultState | Exception]] = []
        for n, item in enumerate(items):
            try:
                good.append(result(item, f"results[{n}]", self._limits))
            except InvalidArgument as error:
                ref = _ref_of(item)
                if ref is not None:
                    bad.append((ref, error))
        session.release([LeaseRef(found.task_id, found.token) for found in good])
        session.release([ref for ref, _ in bad])
        self._dispatcher.credit_changed(session)
        self._start(self._complete(session, good, bad))

    async def _complete(
        self,
        session: Session,
        good: list[WorkerResult],
        bad: list[tuple[LeaseRef, ResultState | Exception]],
    ) -> None:
        if bad:
            session.send(ReplyFrame(results=bad))
        left = good
        while left:
            states = await self._engine.complete(left)
            told = list(zip(left, states, strict=True))
            # Of these nothing is said: a worker forgets a result once it is answered.
            left = [found for found, state in told if isinstance(state, Unavailable)]
            replies = [
                (LeaseRef(found.task_id, found.token), state)
                for found, state in told
                if not isinstance(state, Unavailable)
            ]
            if replies:
                session.send(ReplyFrame(results=replies))
            if left and await self._paused(session):
                return

    async def _paused(self, session: Session) -> bool:
        """Wait before another try; True if the stream ended meanwhile."""
        return await self._clock.wait(session.ended, self._clock.now() + AGAIN_MS)

    async def _beat(self, session: Session, found: list[Beat]) -> None:
        while found:
            echo = session.echo(self._clock.monotonic())
            answers = await self._engine.heartbeat(found)
            replies: list[tuple[LeaseRef, BeatAnswer | Exception]] = []
            again: list[Beat] = []
            for beat, answer in zip(found, answers, strict=True):
                ref = LeaseRef(beat.task_id, beat.token)
                if isinstance(answer, Unavailable):
                    again.append(beat)
                    continue
                if not isinstance(answer, Exception):
                    self._note(session, ref, answer)
                replies.append((ref, answer))
            if replies:
                session.send(ReplyFrame(beats=replies, echo=echo))
                self._dispatcher.credit_changed(session)
            found = again
            if found and await self._paused(session):
                return

    def _note(self, session: Session, ref: LeaseRef, answer: BeatAnswer) -> None:
        """What a stored beat says of a lease."""
        if answer.state is BeatState.EXTENDED:
            session.fresh.pop(ref.task_id, None)
            session.extended(ref, self._clock.now() + answer.remaining_ms)
        else:
            session.release([ref])

    async def _hand_back(self, session: Session, leases: list[LeaseRef]) -> None:
        session.release(leases)
        taken: set[LeaseRef] | None = None
        while taken is None:
            try:
                taken = await self._engine.hand_back(leases)
            except Unavailable:
                if await self._paused(session):
                    return
        replies: list[tuple[LeaseRef, ResultState | Exception]] = [
            (ref, ResultState.APPLIED if ref in taken else ResultState.STALE) for ref in leases
        ]
        session.send(ReplyFrame(results=replies))

    # --- Frames of the server -----------------------------------------------------------------

    async def _write(self, session: Session, context: Any) -> None:
        while (frame := await session.next_frame()) is not None:
            await context.write(frame_message(frame, self._leases.first_lease_ms))


def check_count(items: Sized, field: str, limits: Limits) -> None:
    """Not more items in one message than are handled without holding up everybody else."""
    if len(items) > limits.batch_requests:
        raise InvalidArgument(
            "BATCH_TOO_LARGE",
            f"at most {limits.batch_requests} {field} in one message, not {len(items)}",
            field=field,
        )


def check_worker(namespace: str, asked: Any) -> WorkerInfo:
    """Who asks and for which queues (Hello or PollRequest); at least one queue or task type."""
    check_text(asked.worker_id, "worker_id", 128, required=True)
    for field in ("queues", "task_types"):
        names = getattr(asked, field)
        if len(names) > MAX_NAMES:
            raise InvalidArgument(
                "FIELD_INVALID", f"at most {MAX_NAMES} {field}, not {len(names)}", field=field
            )
        for n, name in enumerate(names):
            check_name(name, f"{field}[{n}]")
    if not asked.queues and not asked.task_types:
        raise InvalidArgument(
            "FIELD_REQUIRED", "name at least one of task_types or queues", field="task_types"
        )
    sdk = hostname = ""
    if isinstance(asked, lease_stream_pb2.Hello):
        hostname = check_text(asked.hostname, "hello.hostname", 256)
        name = check_text(asked.sdk_name, "hello.sdk_name", 128)
        sdk = f"{name} {check_text(asked.sdk_version, 'hello.sdk_version', 64)}".strip()
    return WorkerInfo(
        asked.worker_id, namespace, tuple(asked.queues), tuple(asked.task_types), hostname, sdk
    )


def _ref_of(item: lease_pb2.TaskResult) -> LeaseRef | None:
    refs = []
    try:
        refs = lease_refs(
            [lease_pb2.LeaseRef(task_id=item.task_id, lease_token=item.lease_token)], ""
        )
    except InvalidArgument:
        return None
    return refs[0]
