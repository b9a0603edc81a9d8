"""List, Count and History: pages and figures for people and scripts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mainspring.v1 import query_requests_pb2, task_pb2, task_requests_pb2

from ..admission.limits import Limits
from ..domain.task import Attempt, AttemptOutcome, Status, Task
from ..ids import text_of
from ..store.port import All, Field, Filter, ListQuery, Store
from .convert import (
    attempt_message,
    check_text,
    check_view,
    invalid,
    page_size,
    task_message,
    timestamp,
    unknown_task,
)
from .filter import parse_filter
from .pages import PAGE_BYTES, foreign_token, page_key, page_token

ORDERS = {
    "": ("create_time", True),
    "create_time": ("create_time", False),
    "create_time desc": ("create_time", True),
    "due_time": ("due_time", False),
    "due_time desc": ("due_time", True),
}
GROUPS = {
    query_requests_pb2.COUNT_GROUP_BY_STATUS: "status",
    query_requests_pb2.COUNT_GROUP_BY_TASK_TYPE: "task_type",
    query_requests_pb2.COUNT_GROUP_BY_QUEUE: "queue",
}
PAYLOADS_AT_A_TIME = 20
ATTEMPTS_AT_A_TIME = 100

Groups = list[tuple[dict[str, str | int], int]]


# --- List -------------------------------------------------------------------------------------


async def list_tasks(
    store: Store, request: query_requests_pb2.ListRequest, namespace: str, limits: Limits
) -> query_requests_pb2.ListResponse:
    """One page of the tasks that a filter matches."""
    view = check_view(request.view)
    where = parse_filter(request.filter, limits)
    size = page_size(request.page_size, limits.default_page_size, limits.page_size)
    if request.order_by not in ORDERS:
        allowed = ", ".join(filter(None, ORDERS))
        raise invalid(
            "order_by", f"must be one of {allowed}, not {request.order_by[:64]!r}", allowed=allowed
        )
    order, descending = ORDERS[request.order_by]
    scope = ("List", namespace, request.filter, order, str(descending))
    query = ListQuery(namespace, where, order, descending, _after(request, scope), size + 1)
    rows = await store.list_tasks(query)
    response = query_requests_pb2.ListResponse()
    shown = await _add_tasks(response, store, rows[:size], view)
    if len(rows) > shown:
        last = rows[shown - 1]
        at = last.created_at if order == "create_time" else last.due_at
        response.next_page_token = page_token(scope, (at, last.task_id.hex()))
    return response


def _after(
    request: query_requests_pb2.ListRequest, scope: Sequence[str]
) -> tuple[int, bytes] | None:
    key = page_key(request.page_token, scope)
    if key is None:
        return None
    try:
        return key[0], bytes.fromhex(key[1])
    except ValueError:
        raise foreign_token() from None


async def _add_tasks(
    response: query_requests_pb2.ListResponse,
    store: Store,
    rows: Sequence[Task],
    view: task_pb2.TaskView.ValueType,
) -> int:
    """Add tasks until the page is full in bytes, at least one; answers how many."""
    full = view == task_pb2.TASK_VIEW_FULL
    size = shown = 0
    predecessors: dict[bytes, list[bytes]] = {}
    for start in range(0, len(rows), PAYLOADS_AT_A_TIME):
        part: Sequence[Task | None] = rows[start : start + PAYLOADS_AT_A_TIME]
        if full:
            part = await store.load([row.task_id for row in part if row], payload=True)
            waited = [row.task_id for row in part if row and row.rule is not None]
            for edge in await store.edges(waited) if waited else ():
                predecessors.setdefault(edge.downstream, []).append(edge.predecessor)
        for n, loaded in enumerate(part):
            row = loaded or rows[start + n]
            message = task_message(row, view, predecessors.get(row.task_id, ()))
            size += message.ByteSize()
            if shown and size > PAGE_BYTES:
                return shown
            response.tasks.append(message)
            shown += 1
    return shown


# --- Count ------------------------------------------------------------------------------------


async def count_tasks(
    store: Store, request: query_requests_pb2.CountRequest, namespace: str, limits: Limits
) -> query_requests_pb2.CountResponse:
    """How many tasks a filter matches, in all and by group."""
    names: list[str] = []
    for n, group in enumerate(request.group_by):
        name = GROUPS.get(group)
        if name is None or name in names:
            problem = f"has no value {group}" if name is None else f"names {name} twice"
            raise invalid(f"group_by[{n}]", problem)
        names.append(name)
    where = parse_filter(request.filter, limits)
    total, groups = await _count(store, namespace, where, names, limits.count_groups)
    response = query_requests_pb2.CountResponse(total=total)
    if names:
        groups.sort(key=lambda group: -group[1])
        for values, count in groups[: limits.count_groups]:
            response.groups.append(query_requests_pb2.CountGroup(**values, count=count))  # type: ignore[arg-type]
    return response


async def _count(
    store: Store, namespace: str, where: Filter, names: Sequence[str], most: int
) -> tuple[int, Groups]:
    """Total and groups; further names divide each of the `most` largest groups of the first."""
    if not names:
        found = await store.count_tasks(namespace, where, None)
        return sum(count for _, count in found), []
    first, *rest = names
    found = await store.count_tasks(namespace, where, first)
    total = sum(count for _, count in found)
    groups: Groups = []
    for value, count in sorted(found, key=lambda pair: -pair[1])[:most]:
        if value is None or not count:
            continue
        if not rest:
            groups.append(({first: value}, count))
            continue
        narrower = All((where, Field(first, "=", value)))
        _, parts = await _count(store, namespace, narrower, rest, most)
        groups += [({first: value, **values}, part) for values, part in parts]
    return total, groups


# --- History ----------------------------------------------------------------------------------


async def history(
    store: Store,
    request: task_requests_pb2.HistoryRequest,
    task_id: bytes,
    namespace: str,
    limits: Limits,
) -> task_requests_pb2.HistoryResponse:
    """One page of a task's attempts, newest first."""
    check_text(request.page_token, "page_token", limits.filter_chars)
    size = page_size(request.page_size, limits.default_page_size, limits.page_size)
    scope = ("History", namespace, text_of(task_id))
    key = page_key(request.page_token, scope)
    row = (await store.load([task_id], namespace=namespace))[0]
    if row is None:
        raise unknown_task(task_id)
    before = None if key is None else (key[0], int(key[1]) if key[1].isdecimal() else 0)
    attempts = await _newest(store, task_id, before, size + 1)
    if before is None:
        attempts = [*_current(row), *attempts]
    response = task_requests_pb2.HistoryResponse()
    weight = 0
    for attempt in attempts[:size]:
        message = attempt_message(attempt)
        weight += message.ByteSize()
        if response.attempts and weight > PAGE_BYTES:
            break
        response.attempts.append(message)
    if len(attempts) > len(response.attempts):
        last = attempts[len(response.attempts) - 1]
        response.next_page_token = page_token(scope, (last.attempt, str(last.token)))
    if before is None and row.status is Status.PENDING and response.attempts:
        response.attempts[0].next_due_time.CopyFrom(timestamp(row.due_at))
    return response


async def _newest(
    store: Store, task_id: bytes, before: tuple[int, int] | None, count: int
) -> list[Attempt]:
    """The last `count` stored attempts before a key, newest first."""
    kept: deque[Attempt] = deque(maxlen=count)
    after = 0
    while True:
        rows = await store.attempts(task_id, after, ATTEMPTS_AT_A_TIME)
        kept.extend(row for row in rows if before is None or (row.attempt, row.token) < before)
        after += len(rows)
        if len(rows) < ATTEMPTS_AT_A_TIME:
            return list(reversed(kept))


def _current(row: Task) -> list[Attempt]:
    """The attempt that runs or that succeeded: the task's own row is its record."""
    if row.status is Status.RUNNING:
        outcome, token = AttemptOutcome.RUNNING, row.version
    elif row.status is Status.SUCCEEDED:
        outcome, token = AttemptOutcome.SUCCEEDED, row.outcome_token or row.version - 1
    else:
        return []
    return [
        Attempt(
            row.task_id,
            row.attempts,
            token,
            row.worker_id or "",
            outcome,
            row.started_at or row.created_at,
            row.completed_at,
        )
    ]
