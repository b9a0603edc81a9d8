"""Beats per task, the watchdog, lease loss; and the drain."""

import asyncio
import queue
import threading
import time
from typing import Any

import pytest

from mainspring_worker import Context, StopReason, Worker
from mainspring_worker.heartbeat import LoopWatch


class Holds(Worker):
    """Blocks its event loop when told to, waits otherwise."""

    task_type = "work"

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.release = threading.Event()

    async def handle(self, context: Context, how: str) -> str:
        self.begun.put(context.task_id)
        if how == "block":
            await asyncio.create_task(self.block())
        elif how == "wait":
            await asyncio.get_running_loop().run_in_executor(None, self.release.wait, 20)
        return how

    async def block(self) -> None:
        # What this test is about: it holds the loop.
        self.release.wait(20)


def beats_until(stream: Any, done: Any) -> list[set[str]]:
    """Answer beats until `done` says so of all that came."""
    beats: list[set[str]] = []
    while not done(beats):
        leases = stream.expect("heartbeat").leases
        beats.append({beat.task_id for beat in leases})
        stream.extend(leases)
    return beats


def test_a_blocked_loop_stops_the_beats_of_the_one_that_blocks_it(
    server: Any, start: Any, lease: Any
) -> None:
    worker = Holds()
    start(worker, slots=3)
    stream = server.accept()
    stream.welcome(lease=30, beat=0.1, first=30)
    stream.grant(lease("neighbour", 1, json='"wait"'), first=30)
    assert worker.begun.get(timeout=10) == "neighbour"
    stream.grant(lease("blocker", 2, json='"block"'), first=30)
    assert worker.begun.get(timeout=10) == "blocker"

    # Blamed: five beats in a row of the neighbour alone.
    beats_until(
        stream, lambda beats: len(beats) >= 5 and all(b == {"neighbour"} for b in beats[-5:])
    )
    # A loop that does not answer gets no more work.
    assert any(frame.credits.max_leases == 0 for frame in stream.log if frame.HasField("credits"))
    worker.release.set()
    finished: set[str] = set()
    while finished != {"neighbour", "blocker"}:
        finished |= {result.task_id for result in stream.expect("results").results}


def test_a_sync_handler_that_is_silent_too_long_gets_no_beats(
    server: Any, start: Any, lease: Any
) -> None:
    begun: queue.SimpleQueue[Context] = queue.SimpleQueue()
    stopped: queue.SimpleQueue[StopReason | None] = queue.SimpleQueue()

    class Silent(Worker):
        task_type = "silent"
        stall_timeout = 0.2

        def handle(self, context: Context, payload: None) -> None:
            begun.put(context)
            context.wait_cancelled(20)
            stopped.put(context.stop_reason)

    class Patient(Silent):
        task_type = "patient"
        stall_timeout = None

    running = start(Silent(), Patient())
    stream = server.accept()
    stream.welcome(lease=1.0, beat=0.1, first=1.0)
    stream.grant(lease("silent", 1, "silent"), lease("patient", 2, "patient"), first=1.0)

    def answer() -> None:
        """Extend each lease by one second from each beat, as a server would."""
        while (frame := stream.frames.get(timeout=20)) is not None:
            if frame.HasField("heartbeat"):
                stream.extend(frame.heartbeat.leases, remaining=1.0)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    # Its lease lapses, and the handler is stopped before it does; the neighbour goes on.
    assert stopped.get(timeout=10) is StopReason.EXPIRED
    assert running.runner.stats.stopped == 1
    assert stopped.empty()
    stream.end()
    thread.join(10)


def test_progress_keeps_a_sync_handler_alive(server: Any, start: Any, lease: Any) -> None:
    release = threading.Event()

    class Tells(Worker):
        task_type = "work"
        stall_timeout = 0.3

        def handle(self, context: Context, payload: None) -> None:
            while not release.wait(0.05):
                context.progress(0.5, "still there")

    start(Tells())
    stream = server.accept()
    stream.welcome(lease=30, beat=0.1, first=30)
    stream.grant(lease("t", 1), first=30)
    beats_until(stream, lambda beats: len(beats) >= 8)
    release.set()
    stream.expect("results")


def test_lease_that_is_not_extended_stops_its_handler(server: Any, start: Any, lease: Any) -> None:
    stopped: queue.SimpleQueue[StopReason | None] = queue.SimpleQueue()

    class Long(Worker):
        task_type = "work"

        async def handle(self, context: Context, payload: None) -> str:
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                stopped.put(context.stop_reason)
            return "too late"

    running = start(Long())
    stream = server.accept()
    stream.welcome(first=0.5)
    stream.expect("credits")
    stream.grant(lease("t", 1), first=0.5)
    stream.expect("ack")
    assert stopped.get(timeout=10) is StopReason.EXPIRED
    # Its result is dropped, not sent: the next stream presents nothing.
    until = time.monotonic() + 10
    while running.runner.stats.dropped_results == 0:
        assert time.monotonic() < until
        time.sleep(0.005)  # nothing is sent that could be waited for
    stream.break_off()
    assert list(server.accept().welcome().held) == []
    assert "results" not in stream.seen


def test_the_watch_blames_only_who_holds_on() -> None:
    watch, first, second = LoopWatch(), object(), object()
    watch.look(0.0, answered=False, current=first)  # type: ignore[arg-type]
    watch.look(1.0, answered=False, current=second)  # type: ignore[arg-type]
    watch.look(2.0, answered=False, current=second)  # type: ignore[arg-type]
    assert watch.silence(2.0) == 2.0
    assert watch.blamed(2.0, 1.5) is None
    assert watch.blamed(2.6, 1.5) is second
    watch.look(3.0, answered=True, current=None)
    assert watch.blamed(9.0, 1.5) is None
    assert watch.silence(9.0) == 0.0


def test_drain_finishes_what_runs_and_hands_back_what_comes(
    server: Any, start: Any, lease: Any
) -> None:
    worker = Holds()
    running = start(worker)
    stream = server.accept()
    stream.welcome()
    stream.grant(lease("runs", 1, json='"wait"'))
    worker.begun.get(timeout=10)
    stopping = running.stop_in_background()
    drain = stream.expect("drain")
    assert drain.reason == "stopped"
    assert drain.grace_timeout.seconds == 10
    # It crossed the drain on its way.
    stream.grant(lease("late", 2, json='"wait"'))
    back = stream.expect("hand_back").leases
    assert [(ref.task_id, ref.lease_token) for ref in back] == [("late", 2)]
    stream.apply(back)
    worker.release.set()
    results = stream.expect("results").results
    assert [result.task_id for result in results] == ["runs"]
    assert stopping.is_alive()
    stream.apply(results)
    stream.expect_end()
    stream.end()
    stopping.join(20)
    assert not stopping.is_alive()


def test_drain_hands_back_what_waits_behind_a_blocked_loop(
    server: Any, start: Any, lease: Any
) -> None:
    worker = Holds()
    running = start(worker)
    stream = server.accept()
    stream.welcome()
    stream.grant(lease("blocker", 1, json='"block"'))
    worker.begun.get(timeout=10)
    stream.grant(lease("behind", 2, json='"wait"'))
    stream.expect("ack")
    stream.expect("ack")
    stopping = running.stop_in_background()
    back = stream.expect("hand_back").leases
    assert [ref.task_id for ref in back] == ["behind"]
    stream.apply(back)
    worker.release.set()
    stream.apply(stream.expect("results").results)
    stream.expect_end()
    stream.end()
    stopping.join(20)


def test_drain_stops_what_runs_past_its_deadline_without_counting_it(
    server: Any, start: Any, lease: Any
) -> None:
    worker = Holds()
    running = start(worker)
    stream = server.accept()
    stream.welcome()
    stream.grant(lease("long", 1, json='"wait"'))
    worker.begun.get(timeout=10)
    stopping = running.stop_in_background(timeout=0.05)
    back = stream.expect("hand_back").leases
    assert [ref.task_id for ref in back] == ["long"]
    stream.apply(back)
    stream.expect_end()
    stream.end()
    stopping.join(20)
    assert "results" not in stream.seen


def test_stop_without_a_server(start: Any) -> None:
    running = start(Holds(), address="127.0.0.1:1")
    assert running.runner.stop(0.0)
    with pytest.raises(RuntimeError, match="starts once"):
        running.runner.start()
