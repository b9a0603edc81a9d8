"""From READY tasks to acknowledged records: chunks by lane and band, spread over partitions."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

from ...clock import Clock
from ...domain.errors import MainspringError, Unavailable
from ...domain.task import ReadyRef, band_of
from .producer import Entry, Producer
from .protocol import NO_LEADER, Topic
from .records import chunks
from .topics import LaneBand, Topics

log = logging.getLogger(__name__)

_PAUSE_MS = 100


class Publisher:
    """Publishes batches; each chunk goes to the next partition of its topic that has a leader.

    A refused chunk is tried again, elsewhere, until the delivery timeout has passed: then publish
    raises and the sweeper publishes what is still READY. One lane that cannot be written holds up
    no other.
    """

    def __init__(self, topics: Topics, producer: Producer, clock: Clock, delivery_ms: int) -> None:
        self._topics = topics
        self._producer = producer
        self._clock = clock
        self._delivery_ms = delivery_ms
        self._turns: dict[str, int] = {}

    async def publish(self, refs: Sequence[ReadyRef]) -> None:
        """Write the tasks; raises the first error once the rest is written."""
        left: dict[LaneBand, list[ReadyRef]] = {}
        for ref in refs:
            left.setdefault((ref.lane, band_of(ref.priority)), []).append(ref)
        until = self._clock.monotonic() + self._delivery_ms
        errors: dict[LaneBand, Exception] = {}
        while left:
            errors = await self._round(left)
            left = {pair: left[pair] for pair, error in errors.items() if _passing(error)}
            if not left or self._clock.monotonic() + _PAUSE_MS >= until:
                break
            await self._clock.sleep_until(self._clock.now() + _PAUSE_MS)
        for error in errors.values():
            raise error

    async def _round(self, left: dict[LaneBand, list[ReadyRef]]) -> dict[LaneBand, Exception]:
        """Write each lane and band once; answers those that failed."""
        try:
            topics = await self._topics.ensure(left)
        except Unavailable as error:
            return dict.fromkeys(left, error)
        errors: dict[LaneBand, Exception] = {}
        by_node: dict[int, list[tuple[LaneBand, Entry]]] = {}
        for pair, refs in left.items():
            topic = topics[pair]
            if isinstance(topic, MainspringError):
                errors[pair] = topic
                continue
            for value, published_at, tasks in chunks(refs):
                number = self._partition(topic)
                entry = Entry(topic, number, value, published_at, tasks)
                node = topic.leaders[number] if number >= 0 else NO_LEADER
                by_node.setdefault(node, []).append((pair, entry))
        answers = await asyncio.gather(
            *(self._producer.send(n, [entry for _, entry in rows]) for n, rows in by_node.items())
        )
        for rows, results in zip(by_node.values(), answers, strict=True):
            for (pair, _), result in zip(rows, results, strict=True):
                if result is not None:
                    errors[pair] = result
        self._topics.forget({self._topics.name(*pair) for pair in errors})
        return errors

    def _partition(self, topic: Topic) -> int:
        """The next partition in turn that can be written; -1 if none can."""
        count = len(topic.leaders)
        turn = self._turns.get(topic.name)
        if turn is None:
            # processes that start together do not write to the same partitions together
            turn = random.randrange(count)
        for step in range(count):
            number = (turn + step) % count
            if topic.leaders[number] != NO_LEADER:
                self._turns[topic.name] = (number + 1) % count
                return number
        return -1


def _passing(error: Exception) -> bool:
    """True where trying again at once may help: not for a limit."""
    return isinstance(error, Unavailable) or not isinstance(error, MainspringError)
