"""What a ready queue must do: bring READY tasks to dispatchers that have credit for them.

A ready queue carries hints: the store decides at the claim. It may lose, repeat and reorder;
within a lane and band it should keep the order of publishing, and bands are strict (lower first)
with a starvation guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..domain.leases import Grant, Want
from ..domain.task import ReadyRef


class ReadyQueue(Protocol):
    """Publish on one side, claim on the other."""

    @property
    def rung(self) -> str:
        """`claimed` or `kafka`, as GetServerInfo shows it."""

    async def open(self) -> None:
        """Connect."""

    async def close(self) -> None:
        """Finish what runs, commit positions, let go."""

    def notify(self, listener: Callable[[str], None]) -> None:
        """Call `listener(lane)` whenever there may be something to claim in a lane."""

    def serve(self, lanes: Mapping[str, int]) -> None:
        """The lanes that workers of this process serve now, with their connected credits.

        Called whenever that changes and about once a second. A queue that is read in parts brings
        this process what it has credits for; a lane that is left out is served no longer.
        """

    async def publish(self, refs: Sequence[ReadyRef]) -> None:
        """Make READY tasks known to dispatchers; raises if it could not (rows stay READY)."""

    async def claim(self, wants: Sequence[Want]) -> list[Grant]:
        """Claim in the store what fits the wants, at most their credit. Empty: nothing there now."""

    async def lost(self, refs: Sequence[ReadyRef]) -> list[bool]:
        """Per READY row: true if its record can no longer arrive and it must be published again."""

    async def backlog(self, lanes: Sequence[str]) -> dict[str, int]:
        """Records (tasks) not yet claimed per lane, as far as is known; 0 or missing if unknown."""
