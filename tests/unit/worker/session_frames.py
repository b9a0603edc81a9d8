"""Frames of a server, and a session to hear them."""

from typing import Any

from mainspring.v1.lease_stream_pb2 import LeaseRequest, LeaseResponse
from mainspring_worker.held import Held
from mainspring_worker.outbox import Identity
from mainspring_worker.session import Session

SLOTS = 4
Key = tuple[str, int]


def set_seconds(target: Any, seconds: float) -> None:
    target.FromNanoseconds(int(seconds * 1e9))


def new_session(slots: int = SLOTS) -> Session:
    return Session(Identity("worker", ("work",), (), slots))


def welcome(echo: float, held: dict[Key, Any] | None = None, first: float = 5.0) -> LeaseResponse:
    frame = LeaseResponse()
    set_seconds(frame.welcome.lease_timeout, 60)
    set_seconds(frame.welcome.first_lease_timeout, first)
    set_seconds(frame.welcome.heartbeat_interval, 15)
    set_seconds(frame.welcome.echo_monotonic_time, echo)
    for (task_id, token), state in (held or {}).items():
        reply = frame.welcome.held.add(task_id=task_id, lease_token=token, state=state)
        set_seconds(reply.remaining, 60)
    return frame


def grant(echo: float, *keys: Key, first: float = 5.0) -> LeaseResponse:
    frame = LeaseResponse()
    set_seconds(frame.leases.echo_monotonic_time, echo)
    set_seconds(frame.leases.first_lease_timeout, first)
    for task_id, token in keys:
        frame.leases.leases.add(task_id=task_id, lease_token=token)
    return frame


def answer(echo: float, refs: Any, state: Any) -> LeaseResponse:
    frame = LeaseResponse()
    set_seconds(frame.replies.echo_monotonic_time, echo)
    for ref in refs:
        reply = frame.replies.leases.add(
            task_id=ref.task_id, lease_token=ref.lease_token, state=state
        )
        set_seconds(reply.remaining, 60)
    return frame


def open_session(now: float = 100.0, slots: int = SLOTS) -> Session:
    session = new_session(slots)
    session.open()
    assert session.next_frame(now) is not None
    session.receive(welcome(now), now)
    return session


def frames(session: Session, now: float) -> list[LeaseRequest]:
    found = []
    while (frame := session.next_frame(now)) is not None:
        found.append(frame)
    return found


def kinds(session: Session, now: float) -> list[str]:
    return [str(frame.WhichOneof("frame")) for frame in frames(session, now)]


def alive(held: Held) -> bool:
    return True
