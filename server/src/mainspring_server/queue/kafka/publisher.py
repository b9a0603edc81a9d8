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

    A chunk that was refused is tried again, elsewhere, until the delivery timeout has passed: then
    publish raises, and the sweeper publishes what is still READY. One lane that cannot be written
    holds up no other.
    """

    def __init__(self, topics: Topics, producer: Producer, clock: Clock, delivery_ms: int) -> None:
        self._topics = topics
        self._producer = producer
        self._clock = clock
        self._delivery_ms = delivery_ms
        self._turns: dict[str, int] = {}

    async def publish(self, refs: Sequence[ReadyRef]) -> None:
        """Write the tasks; raises what went wrong once the rest is written."""
        left: dict[LaneBand, list[ReadyRef]] = {}
        for ref in refs:
            left.setdefault((ref.lane, band_of(ref.priority)), []).append(ref)
        until = self._clock.monotonic() + self._delivery_ms
        refused: list[Exception] = []
        while left:
            left, errors = await self._round(left)
            refused += [error for error in errors if not isinstance(error, Unavailable)]
            if left and self._clock.monotonic() + _PAUSE_MS >= until:
                raise errors[-1]
            if left:
                await self._clock.sleep_until(self._clock.now() + _PAUSE_MS)
        if refused:
            raise refused[0]

    async def _round(
        self, wanted: dict[LaneBand, list[ReadyRef]]
    ) -> tuple[dict[LaneBand, list[ReadyRef]], list[Exception]]:
        """Write each task once; answers those worth another try, and what went wrong."""
        try:
            topics = await self._topics.ensure(wanted)
        except Unavailable as error:
            return wanted, [error]
        left: dict[LaneBand, list[ReadyRef]] = {}
        errors: list[Exception] = []
        by_node: dict[int, list[tuple[LaneBand, int, Entry]]] = {}
        for pair, refs in wanted.items():
            topic = topics[pair]
            if isinstance(topic, MainspringError):
                errors.append(topic)
                if isinstance(topic, Unavailable):
                    left[pair] = refs
                continue
            start = 0
            for value, published_at, tasks in chunks(refs):
                number = self._partition(topic)
                node = topic.leaders[number] if number >= 0 else NO_LEADER
                entry = Entry(topic, number, value, published_at, tasks)
                by_node.setdefault(node, []).append((pair, start, entry))
                start += tasks
        answers = await asyncio.gather(
            *(self._producer.send(n, [row[-1] for row in rows]) for n, rows in by_node.items())
        )
        for rows, results in zip(by_node.values(), answers, strict=True):
            for (pair, start, entry), result in zip(rows, results, strict=True):
                if result is not None:
                    errors.append(result)
                    if isinstance(result, Unavailable):
                        left.setdefault(pair, []).extend(wanted[pair][start : start + entry.tasks])
        self._topics.forget({self._topics.name(*pair) for pair in left})
        return left, errors

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
