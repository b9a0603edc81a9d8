"""What one watching stream holds: at most the newest transition of each task."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace

from mainspring_server.api.watch import (
    PART,
    PART_MS,
    POLL_MS,
    REASON_BYTES,
    Subscription,
    Watcher,
    transition,
)
from mainspring_server.clock import VirtualClock
from mainspring_server.domain.retry import RetryPolicy
from mainspring_server.domain.task import NO_TIMEOUTS, Status, Task
from mainspring_server.ids import mint, text_of

NOW = 1_700_000_000_000
ONE, TWO = mint(NOW, 2)


def row(task_id: bytes, version: int, status: Status = Status.READY, **changes: object) -> Task:
    return Task(
        task_id=task_id,
        namespace="default",
        task_type="resize",
        queue="resize",
        priority=5,
        status=status,
        version=version,
        due_at=NOW,
        created_at=NOW,
        retry=RetryPolicy(),
        timeouts=NO_TIMEOUTS,
        **changes,  # type: ignore[arg-type]
    )


async def test_only_the_newest_change_waits_for_a_slow_reader() -> None:
    stream = Subscription([ONE, TWO])
    for version in range(1, 1_001):
        stream.offer(row(ONE, version), NOW)
    stream.offer(row(TWO, 1), NOW)
    stream.offer(row(ONE, 1_001), NOW)
    news = await stream.next()
    assert [(t.task_id, t.version) for t in news] == [(text_of(TWO), 1), (text_of(ONE), 1_001)]


async def test_what_was_told_is_not_told_again() -> None:
    stream = Subscription([ONE])
    stream.offer(row(ONE, 2), NOW)
    assert len(await stream.next()) == 1
    stream.offer(row(ONE, 2), NOW)
    stream.offer(row(ONE, 1), NOW)
    waiting = asyncio.ensure_future(stream.next())
    stream.offer(row(ONE, 3), NOW)
    assert [t.version for t in await waiting] == [3]


async def test_the_end_of_the_last_task() -> None:
    stream = Subscription([ONE, TWO, ONE])
    stream.offer(row(ONE, 2, Status.SUCCEEDED, completed_at=NOW + 5), NOW)
    assert stream.open == {TWO}
    stream.gone(TWO)
    assert not stream.open
    (last,) = await stream.next()
    assert last.transition_time.ToMilliseconds() == NOW + 5


def test_a_transition_is_small() -> None:
    huge = transition(row(ONE, 2, Status.PENDING, error_message="😀" * 60_000), NOW)
    assert len(huge.status_reason.encode()) <= REASON_BYTES
    assert huge.transition_time.ToMilliseconds() == NOW
    assert not transition(row(ONE, 2, Status.PENDING), None).HasField("transition_time")


class Store:
    """Counts the rows that are read; some of its tasks have ended."""

    def __init__(self, ended: set[bytes]) -> None:
        self.ended = ended
        self.reads: list[Sequence[bytes]] = []

    async def load(self, ids: Sequence[bytes], **_: object) -> list[Task | None]:
        self.reads.append(ids)
        return [
            row(i, 5, Status.SUCCEEDED, completed_at=NOW) if i in self.ended else row(i, 1)
            for i in ids
        ]


def watcher(store: Store, clock: VirtualClock) -> Watcher:
    effects = SimpleNamespace(changed=[])
    return Watcher(SimpleNamespace(effects=effects), store, clock)  # type: ignore[arg-type]


async def test_a_poll_of_many_tasks_goes_in_parts() -> None:
    clock = VirtualClock(NOW)
    ids = mint(NOW, PART + 1)
    store = Store(set())
    service = watcher(store, clock)
    streams = [service.watch(ids[n::3], "default", until_terminal=True) for n in range(3)]
    for stream in streams:
        await anext(stream)
    store.reads.clear()
    assert await service.run_once() == NOW + PART_MS
    assert sum(map(len, store.reads)) == PART
    await service.run_once()  # a hint comes sooner than the next part
    assert sum(map(len, store.reads)) == PART
    clock.advance(PART_MS)
    assert await service.run_once() == NOW + POLL_MS
    assert sum(map(len, store.reads)) == PART + 1
    for stream in streams:
        await stream.aclose()


async def test_what_has_ended_is_not_polled() -> None:
    clock = VirtualClock(NOW)
    store = Store({ONE})
    service = watcher(store, clock)
    stream = service.watch([ONE, TWO], "default", until_terminal=False)
    await anext(stream)
    store.reads.clear()
    await service.run_once()
    assert store.reads == [[TWO]]
    await stream.aclose()
