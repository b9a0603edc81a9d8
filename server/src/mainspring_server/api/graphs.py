"""Graphs: one atomic batch in, all or nothing; a whole graph read and cancelled."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mainspring.v1 import task_requests_pb2

from ..admission.limits import MIB
from ..domain.errors import InvalidArgument, MainspringError
from ..domain.task import IdempotencyKey, NewTask
from ..engine import Engine
from ..ids import mint, parse, text_of
from ..store.port import Field, ListQuery, Store
from .convert import check_text, invalid
from .dependencies import refuse_cycle, wait_for, waits_of
from .submit import SubmitReader, key_digest

SLICE_BYTES = MIB
"""After so many bytes of one batch the loop is given to others, whose leases may need it."""

PAGE = 1_000

Requests = Sequence[task_requests_pb2.SubmitRequest]


def placed(error: MainspringError, position: int) -> MainspringError:
    """The error of one request, its field as seen from the batch."""
    place = f"requests[{position}]"
    if isinstance(error, InvalidArgument) and error.field:
        error.message = f"{place}.{error.message}"
    else:
        error.message = f"{place}: {error.message}"
    error.field = f"{place}.{error.field}" if error.field else place
    if "field" in error.metadata:
        error.metadata["field"] = error.field
    return error


@contextmanager
def _at(position: int) -> Iterator[None]:
    try:
        yield
    except MainspringError as error:
        raise placed(error, position)


async def read_graph(
    reader: SubmitReader, requests: Requests, namespace: str, now: int, trace: str | None
) -> list[NewTask]:
    """The tasks of an atomic batch, or the error of the first request at fault.

    Ids grow in the order of the requests, so what a task is handed by its predecessors comes in
    that order too.
    """
    graph_id = mint(now, 1)[0]
    ids = sorted(mint(now, len(requests)))
    names: dict[str, bytes] = {}
    for n, request in enumerate(requests):
        if request.local_ref:
            with _at(n):
                _name(reader, request.local_ref, names)
                names[request.local_ref] = ids[n]
    tasks = []
    size, pause_at = 0, SLICE_BYTES
    for n, (request, task_id) in enumerate(zip(requests, ids, strict=True)):
        with _at(n):
            task = reader.read_node(request, namespace, now, task_id, trace)
            if request.HasField("dependencies") and request.dependencies.ByteSize():
                wait_for(task, waits_of(request.dependencies, reader.limits, names))
        task.graph_id = graph_id
        task.local_ref = request.local_ref or None
        tasks.append(task)
        size += request.ByteSize()
        if size > pause_at:
            pause_at = size + SLICE_BYTES
            await asyncio.sleep(0)
    refuse_cycle(tasks)
    _share_key(tasks, requests)
    return tasks


def _name(reader: SubmitReader, name: str, taken: dict[str, bytes]) -> None:
    check_text(name, "local_ref", reader.limits.name_chars)
    if name in taken:
        raise invalid(
            "local_ref",
            f"{name[:64]!r} is that of an earlier request too; names are unique in a batch",
            "LOCAL_REF_INVALID",
            local_ref=name,
        )


def _share_key(tasks: Sequence[NewTask], requests: Requests) -> None:
    """One key makes the whole graph harmless to repeat: those without get one made from it."""
    first = next((task.idempotency for task in tasks if task.idempotency), None)
    if first is None:
        return
    for n, (task, request) in enumerate(zip(tasks, requests, strict=True)):
        if task.idempotency is None:
            task.idempotency = IdempotencyKey(
                key_digest(task.namespace, "", f"graph\0{first.digest.hex()}\0{n}"),
                hashlib.sha256(request.SerializeToString(deterministic=True)).digest(),
                first.expires_at,
            )


def place_unknown(error: MainspringError, tasks: Sequence[NewTask]) -> MainspringError:
    """The error of the store about a predecessor, put down to the request that names it."""
    text = error.metadata.get("task_id")
    if not text or error.field:
        return error
    task_id = parse(text, "task_id")
    for n, task in enumerate(tasks):
        if task.waits and task_id in task.waits.predecessors:
            error.field = "dependencies.task_ids"
            return placed(error, n)
    return error


async def graph_status(
    store: Store, graph_id: bytes, namespace: str
) -> task_requests_pb2.StatusResponse | None:
    """How many tasks of a graph are in each status; None if there is no such graph."""
    found = await store.count_tasks(namespace, Field("graph_id", "=", graph_id), "status")
    counts = sorted((int(value), count) for value, count in found if value is not None and count)
    if not counts:
        return None
    graph = task_requests_pb2.GraphState(
        graph_id=text_of(graph_id), tasks=sum(count for _, count in counts)
    )
    for status, count in counts:
        graph.counts.add(status=status, count=count)
    return task_requests_pb2.StatusResponse(graph=graph)


async def cancel_graph(
    engine: Engine, store: Store, graph_id: bytes, reason: str, namespace: str
) -> int | None:
    """Cancel what lives of a graph; how many that was, or None if there is no such graph."""
    live: list[bytes] = []
    known = False
    after: tuple[int, bytes] | None = None
    where = Field("graph_id", "=", graph_id)
    while True:
        query = ListQuery(namespace, where, "create_time", False, after, PAGE)
        rows = await store.list_tasks(query)
        known = known or bool(rows)
        live += [row.task_id for row in rows if not row.terminal]
        if len(rows) < PAGE:
            break
        after = rows[-1].created_at, rows[-1].task_id
    if not known:
        return None
    cancelled = 0
    # The last first: whoever waits is gone before the end of a predecessor could release it.
    live.reverse()
    for start in range(0, len(live), PAGE):
        part = live[start : start + PAGE]
        cancelled += len(await engine.cancel(part, reason, namespace))
    return cancelled
