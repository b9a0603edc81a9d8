"""The fixture `services`: real PostgreSQL, Redis and Kafka, each started when first asked for.

A server that runs already can be given by URL: MAINSPRING_TEST_STORE,
MAINSPRING_TEST_WHEEL, MAINSPRING_TEST_QUEUE. A service that cannot be started
fails the test that asked for it: it is never skipped.
"""

import os
import signal
from collections.abc import Iterator

import pytest
from native_services import ServiceError, Services

_GIVEN = {
    "postgresql": "MAINSPRING_TEST_STORE",
    "redis": "MAINSPRING_TEST_WHEEL",
    "kafka": "MAINSPRING_TEST_QUEUE",
}


class RealServices:
    """The servers of this test run; all tests share them, so each uses names of its own."""

    def __init__(self) -> None:
        self._started: Services | None = None
        self._broken: dict[str, str] = {}

    @property
    def store(self) -> str:
        """The address of PostgreSQL, `postgresql://…`."""
        return self.url("postgresql")

    @property
    def wheel(self) -> str:
        """The address of Redis, `redis://…`."""
        return self.url("redis")

    @property
    def queue(self) -> str:
        """The address of Kafka, `kafka://…`."""
        return self.url("kafka")

    def url(self, name: str) -> str:
        """Return the address of `postgresql`, `redis` or `kafka`, after starting it if need be."""
        return os.environ.get(_GIVEN[name]) or self._own(name).url(name)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal a service; see Services.kill."""
        self._ours(name).kill(name, number)

    def restart(self, name: str) -> None:
        """Start a service again on its data and port."""
        self._ours(name).restart(name)

    def stop(self) -> None:
        """Stop whatever was started."""
        if self._started is not None:
            self._started.stop()

    def _ours(self, name: str) -> Services:
        if os.environ.get(_GIVEN[name]):
            pytest.fail(f"{name} was given by {_GIVEN[name]}: a test may not stop it")
        return self._own(name)

    def _own(self, name: str) -> Services:
        if name in self._broken:
            pytest.fail(self._broken[name])
        if self._started is None:
            self._started = Services()
        try:
            self._started.start(name)
        except ServiceError as error:
            self._broken[name] = str(error)
            pytest.fail(self._broken[name])
        return self._started


@pytest.fixture(scope="session")
def services() -> Iterator[RealServices]:
    """Real servers for the whole run, started one by one when first asked for."""
    real = RealServices()
    try:
        yield real
    finally:
        real.stop()
