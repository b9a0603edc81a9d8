"""A worker's handle method, checked and compiled once; which one runs a lease."""

import inspect
import re
import typing
from collections.abc import Sequence
from typing import Any, Final

from mainspring.v1 import lease_pb2

from .outcomes import seconds
from .payloads import input_decoder
from .worker import Worker

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
MAX_SLOTS: Final = 10_000


class Handler:
    """One worker, ready to be called. TypeError or ValueError says what is wrong with its class."""

    __slots__ = (
        "call",
        "decode",
        "is_async",
        "name",
        "queues",
        "slots",
        "stall_timeout",
        "task_types",
    )

    def __init__(self, worker: Worker) -> None:
        cls = type(worker)
        self.name = cls.__qualname__
        self.task_types = _names(self.name, "task_type", cls.task_type, cls.task_types)
        self.queues = _names(self.name, "queue", cls.queue, cls.queues)
        if not self.task_types and not self.queues:
            raise ValueError(f"{self.name}: set task_type or queue, so that it gets any work")
        self.slots = cls.slots
        if self.slots is not None and not 1 <= self.slots <= MAX_SLOTS:
            raise ValueError(f"{self.name}.slots is 1 to {MAX_SLOTS}, not {self.slots}")
        stall = cls.stall_timeout
        self.stall_timeout = None if stall is None else seconds(stall)
        if cls.handle is Worker.handle:
            raise TypeError(f"{self.name} has no handle(self, context, input)")
        self.call = worker.handle
        self.is_async = inspect.iscoroutinefunction(worker.handle)
        try:
            self.decode = input_decoder(_input_annotation(worker.handle))
        except TypeError as error:
            raise TypeError(f"{self.name}.handle: {error}") from None


class Routes:
    """Finds the handler of a lease: by its type, then by its queue."""

    def __init__(self, handlers: Sequence[Handler]) -> None:
        self._by_type: dict[str, Handler] = {}
        self._by_queue: dict[str, Handler] = {}
        for handler in handlers:
            for task_type in handler.task_types:
                _claim(self._by_type, task_type, handler, "task type")
            # With types of its own it takes those in the queue; without, the whole queue.
            for queue in () if handler.task_types else handler.queues:
                _claim(self._by_queue, queue, handler, "queue")

    def find(self, lease: lease_pb2.Lease) -> Handler | None:
        """Look a handler up; None if no class here takes such a task."""
        return self._by_type.get(lease.task_type) or self._by_queue.get(lease.queue)


def _claim(table: dict[str, Handler], name: str, handler: Handler, what: str) -> None:
    other = table.setdefault(name, handler)
    if other is not handler:
        raise ValueError(f"{what} {name!r} is taken by both {other.name} and {handler.name}")


def _names(owner: str, attribute: str, one: str, several: Sequence[str]) -> tuple[str, ...]:
    if isinstance(several, str):
        raise TypeError(
            f"{owner}.{attribute}s is a list of names, use {attribute} for a single one"
        )
    names = tuple(dict.fromkeys([*([one] if one else []), *several]))
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{owner}.{attribute}: 1 to 128 of A-Z a-z 0-9 . _ -, not {name!r}")
    if len(names) > 100:
        raise ValueError(f"{owner}.{attribute}s: at most 100, not {len(names)}")
    return names


def _input_annotation(handle: Any) -> Any:
    parameters = list(inspect.signature(handle).parameters.values())
    if len(parameters) < 2:
        raise TypeError("it takes (self, context, input)")
    hints = typing.get_type_hints(handle, include_extras=True)
    return hints.get(parameters[1].name, Any)
