"""What the bench's workers do: nothing, or noting when they began."""

from __future__ import annotations

from mainspring_worker import Context, Worker

from .board import Board

NOOP = "bench.noop"
STAMP = "bench.stamp"


class NoOp(Worker):
    """Ends at once."""

    task_type = NOOP

    async def handle(self, context: Context, payload: None) -> None:
        """Do nothing."""


class Stamp(Worker):
    """Notes when its handler starts; the payload is the task's number."""

    task_type = STAMP

    def __init__(self, board: Board) -> None:
        self._board = board

    async def handle(self, context: Context, number: int) -> None:  # noqa: ARG002
        """Note the time."""
        self._board.stamp(number)
