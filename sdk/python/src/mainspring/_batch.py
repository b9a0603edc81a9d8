"""A batch of any size as calls that the server takes, and their answers as one list."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ._calls import Call
from ._task_calls import BatchResult, BatchResults, submit_batch, submit_request
from .errors import InvalidArgument, MainspringError
from .submission import NewTask
from .v1 import task_requests_pb2

MAX_REQUESTS: Final = 1_000
"""Requests of one SubmitBatch call."""
MAX_BYTES: Final = 15 * 1024 * 1024
"""Bytes of one SubmitBatch call."""
_ITEM_OVERHEAD = 6
"""Bytes that an item takes beside its own: the field's tag, and its length in at most five."""


@dataclass(frozen=True, slots=True)
class Part:
    """As many items as one call takes."""

    indices: tuple[int, ...]
    """Their places in the batch."""
    call: Call[BatchResults]
    """The call."""


class Batch:
    """One `submit_batch` that need not be atomic; whoever runs it makes the calls in order."""

    def __init__(self, tasks: Sequence[NewTask], *, dedupe: bool) -> None:
        """Encode the tasks."""
        self._requests = [submit_request(task, dedupe=dedupe) for task in tasks]
        self._results: dict[int, BatchResult] = {}
        self._answered = False
        for index, request in enumerate(self._requests):
            if request.ByteSize() + _ITEM_OVERHEAD > MAX_BYTES:
                self._results[index] = _too_large(index, request)

    def parts(self) -> Iterator[Part]:
        """The calls to make, in order; a failed one is the last."""
        indices, size = list[int](), 0
        for index, request in enumerate(self._requests):
            if index in self._results:
                continue
            item = request.ByteSize() + _ITEM_OVERHEAD
            if len(indices) == MAX_REQUESTS or size + item > MAX_BYTES:
                yield self._part(indices)
                indices, size = [], 0
            indices.append(index)
            size += item
        if indices:
            yield self._part(indices)

    def _part(self, indices: list[int]) -> Part:
        requests = [self._requests[index] for index in indices]
        return Part(tuple(indices), submit_batch(requests, atomic=False))

    def accept(self, part: Part, results: BatchResults) -> None:
        """Keep the answers to one part."""
        self._answered = True
        self._results.update(zip(part.indices, results, strict=True))

    def fail(self, error: MainspringError) -> None:
        """Give all that has no answer this error; raise it if nothing has one.

        What was accepted before must not be hidden behind an exception.
        """
        if not self._answered:
            raise error
        for index in range(len(self._requests)):
            self._results.setdefault(index, error)

    def results(self) -> BatchResults:
        """What came of each task, in order."""
        return [self._results[index] for index in range(len(self._requests))]


def _too_large(index: int, request: task_requests_pb2.SubmitRequest) -> InvalidArgument:
    size = request.ByteSize()
    return InvalidArgument(
        f"task {index} has {size} bytes, and a call takes {MAX_BYTES}: "
        "put the data elsewhere and send a reference",
        reason="PAYLOAD_TOO_LARGE",
        metadata={"limit": str(MAX_BYTES), "actual": str(size)},
    )
