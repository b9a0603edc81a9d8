"""The blocking client's calls for those who run the servers."""

from collections.abc import Iterator
from datetime import datetime

from . import _admin_calls
from ._convert import Seconds
from ._sync import Connection
from .admin import ConnectedWorker, Forecast, Queue, ServerInfo


class AdminMethods:
    """Calls about queues, workers and the server itself."""

    _connection: Connection

    def queues(self, *, page_size: int = 0, timeout: float | None = None) -> Iterator[Queue]:
        """Go through the queues that hold tasks, have workers or are paused, by name."""
        return self._connection.pages(_admin_calls.queues(page_size), timeout)

    def pause_queue(self, queue: str, reason: str = "", *, timeout: float | None = None) -> Queue:
        """Stop a queue from giving tasks to workers; tasks are accepted all the same."""
        return self._connection.run(_admin_calls.pause_queue(queue, reason), timeout)

    def resume_queue(self, queue: str, *, timeout: float | None = None) -> Queue:
        """Let a paused queue go on."""
        return self._connection.run(_admin_calls.resume_queue(queue), timeout)

    def workers(
        self, queue: str = "", *, page_size: int = 0, timeout: float | None = None
    ) -> Iterator[ConnectedWorker]:
        """Go through the connected workers, or those that take from one queue."""
        return self._connection.pages(_admin_calls.workers(queue, page_size), timeout)

    def forecast(
        self,
        *,
        from_time: datetime | None = None,
        window: Seconds | None = None,
        step: Seconds | None = None,
        queue: str = "",
        timeout: float | None = None,
    ) -> Forecast:
        """Tell the load to come: what is due, step by step; default the next hour by seconds."""
        return self._connection.run(_admin_calls.forecast(from_time, window, step, queue), timeout)

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Ask the server for its version, roles, rungs, shards and limits."""
        return self._connection.run(_admin_calls.server_info(), timeout)
