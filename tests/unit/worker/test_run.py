"""`run` in the main thread, with real signals to this process."""

import os
import queue
import signal
import threading
from typing import Any

from mainspring_worker import Context, Worker


class Waits(Worker):
    task_type = "work"

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[Context] = queue.SimpleQueue()
        self.release = threading.Event()

    def handle(self, context: Context, payload: None) -> str:
        self.begun.put(context)
        while not self.release.is_set():
            if context.wait_cancelled(0.01):
                break
        context.raise_if_cancelled()
        return "done"


def in_background(script: Any) -> list[BaseException]:
    """Run the test's side beside `run`; answers where its errors are kept."""
    errors: list[BaseException] = []

    def body() -> None:
        try:
            script()
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=body, daemon=True).start()
    return errors


def test_sigterm_drains(server: Any, lease: Any) -> None:
    worker = Waits()

    def script() -> None:
        stream = server.accept()
        stream.welcome()
        stream.grant(lease("t", 1))
        worker.begun.get(timeout=10)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stream.expect("drain").reason == "SIGTERM"
        worker.release.set()
        results = stream.expect("results").results
        assert results[0].succeeded.outcome == b'"done"'
        stream.apply(results)
        stream.expect_end()
        stream.end()

    before = signal.getsignal(signal.SIGTERM)
    errors = in_background(script)
    worker.run(server.address, slots=3)
    assert errors == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_ends_the_wait(server: Any, lease: Any) -> None:
    worker = Waits()

    def script() -> None:
        stream = server.accept()
        stream.welcome()
        stream.grant(lease("t", 1))
        worker.begun.get(timeout=10)
        os.kill(os.getpid(), signal.SIGINT)
        stream.expect("drain")
        os.kill(os.getpid(), signal.SIGINT)
        back = stream.expect("hand_back").leases
        assert [ref.task_id for ref in back] == ["t"]
        stream.apply(back)
        stream.expect_end()
        stream.end()

    errors = in_background(script)
    worker.run(server.address)
    assert errors == []
