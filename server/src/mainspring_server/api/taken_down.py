"""Which dependents a failed task took down, and what their copies are to wait for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..admission.limits import Limits
from ..domain.errors import InvalidArgument
from ..domain.graph import Fate, Outcomes, evaluate
from ..domain.task import Edge, Rule, Status, Task
from ..store.port import Any, Field, ListQuery, Store

PART = 100
DEPTH = 100
"""How often a task was retried, at most, for its last copy to be found."""

GRAPHS = 10
"""A Retry copies at most so many times what one batch may hold."""


@dataclass(slots=True)
class Plan:
    """What a Retry copies.

    `rows` begins with `root`, the task itself, unless that is copied already; `predecessors` are
    those of each row. `latest` leads from a predecessor that was retried before to its last copy,
    `existing` has those still stored.
    """

    root: bytes
    rows: list[Task]
    predecessors: dict[bytes, list[bytes]]
    latest: dict[bytes, bytes]
    existing: set[bytes]

    def waits_for(self, row: Task, new: dict[bytes, bytes]) -> list[bytes]:
        """What the copy of a row waits for; `new` are the ids of the copies."""
        # The rule of a task that ran has held: later copies of its predecessors are nothing to it.
        latest = self.latest if never_released(row) else {}
        found = []
        for predecessor in self.predecessors[row.task_id]:
            stands = latest.get(predecessor, predecessor)
            if stands in new:
                found.append(new[stands])
            elif stands in self.existing:
                found.append(stands)
        return found


async def find_copies(store: Store, namespace: str, ids: Sequence[bytes]) -> dict[bytes, Task]:
    """The copies of these tasks, by the id of the original."""
    found: dict[bytes, Task] = {}
    for start in range(0, len(ids), PART):
        part = ids[start : start + PART]
        where = Any(tuple(Field("retry_of", "=", task_id) for task_id in part))
        query = ListQuery(namespace, where, "create_time", False, None, 2 * PART)
        for row in await store.list_tasks(query):
            if row.retry_of is not None:
                found.setdefault(row.retry_of, row)
    return found


async def plan_copies(store: Store, root: Task, limits: Limits, *, copied: bool = False) -> Plan:
    """The task, and all that its end took down and that could run after its copy.

    With `copied` only those: the task has a copy, and they are to wait for that.
    """
    taken, edges = await _taken_down(store, root, GRAPHS * limits.batch_requests)
    if copied:
        del taken[root.task_id]
    named = {edge.predecessor for row in edges.values() for edge in row}
    others = sorted(named - set(taken))
    latest = await _latest(store, root.namespace, others)
    stands = {row.task_id: row.status for row in (*taken.values(), *latest.values())}
    stands |= await _statuses(store, root.namespace, others)
    _prune(taken, edges, latest, stands, root.task_id)
    return Plan(
        root=root.task_id,
        rows=list(taken.values()),
        predecessors={i: [edge.predecessor for edge in edges.get(i, ())] for i in taken},
        latest={origin: row.task_id for origin, row in latest.items()},
        existing=set(stands),
    )


def never_released(row: Task) -> bool:
    """True for a task that was cancelled while it waited for its predecessors."""
    return row.rule is not None and row.status is Status.CANCELLED and row.version == 2


async def _taken_down(
    store: Store, root: Task, most: int
) -> tuple[dict[bytes, Task], dict[bytes, list[Edge]]]:
    """Every task below the root that its rule cancelled and that has no copy, with its edges."""
    taken = {root.task_id: root}
    edges: dict[bytes, list[Edge]] = {}
    own = _by_downstream(await store.edges([root.task_id]) if root.rule is not None else [])
    edges |= own
    level = [root]
    seen = {root.task_id}
    while level:
        above = await _with_origins(store, level)
        reached = await store.dependents(above, 10 * most)
        ids = sorted({edge.downstream for edge in reached} - seen)
        seen.update(ids)
        level = []
        for start in range(0, len(ids), 10 * PART):
            part = ids[start : start + 10 * PART]
            rows = await store.load(part, namespace=root.namespace)
            waited = [row for row in rows if row is not None and never_released(row)]
            theirs = _by_downstream(await store.edges([row.task_id for row in waited]))
            down = [row for row in waited if _fell(row, theirs.get(row.task_id, []))]
            copies = await find_copies(store, root.namespace, [row.task_id for row in down])
            for row in down:
                if row.task_id not in copies:
                    taken[row.task_id] = row
                    edges[row.task_id] = theirs[row.task_id]
                    level.append(row)
        if len(taken) > most:
            raise InvalidArgument(
                "BATCH_TOO_LARGE",
                f"it took down more than {most} dependents, the most that one Retry copies; submit "
                "them again instead",
                metadata={"limit": str(most)},
            )
    return taken, edges


async def _with_origins(store: Store, level: Sequence[Task]) -> list[bytes]:
    """The ids of these tasks and of all that they are copies of: who waited for those waits on."""
    found = {row.task_id for row in level}
    older = {row.retry_of for row in level if row.retry_of}
    while older - found:
        new = sorted(older - found)
        found.update(new)
        rows = await store.load(new)
        older = {row.retry_of for row in rows if row is not None and row.retry_of}
    return sorted(found)


def _by_downstream(edges: Iterable[Edge]) -> dict[bytes, list[Edge]]:
    found: dict[bytes, list[Edge]] = {}
    for edge in edges:
        found.setdefault(edge.downstream, []).append(edge)
    return found


def _fell(row: Task, edges: Sequence[Edge]) -> bool:
    """True if its rule cancelled it, and no caller: at that moment it could no longer hold."""
    outcomes = Outcomes.of(edge.outcome for edge in edges)
    return evaluate(row.rule or Rule.ALL_SUCCEEDED, outcomes) is Fate.NEVER


async def _latest(store: Store, namespace: str, ids: Sequence[bytes]) -> dict[bytes, Task]:
    """The last copy of each that was retried."""
    found: dict[bytes, Task] = {}
    origin = {task_id: task_id for task_id in ids}
    for _ in range(DEPTH):
        if not origin:
            break
        copies = await find_copies(store, namespace, sorted(origin))
        found |= {origin[older]: copy for older, copy in copies.items()}
        origin = {copy.task_id: origin[older] for older, copy in copies.items()}
    return found


def _prune(
    taken: dict[bytes, Task],
    edges: dict[bytes, list[Edge]],
    latest: dict[bytes, Task],
    stands: dict[bytes, Status],
    root: bytes,
) -> None:
    """Leave out whom something else holds down, and then whom that leaves without a chance."""
    while True:
        hopeless = []
        for task_id, row in taken.items():
            statuses = [_status(edge, taken, latest, stands) for edge in edges.get(task_id, ())]
            fate = evaluate(row.rule or Rule.ALL_SUCCEEDED, Outcomes.of(statuses))
            if task_id != root and fate is Fate.NEVER:
                hopeless.append(task_id)
        if not hopeless:
            return
        for task_id in hopeless:
            del taken[task_id]


def _status(
    edge: Edge, taken: dict[bytes, Task], latest: dict[bytes, Task], stands: dict[bytes, Status]
) -> Status | None:
    """How a predecessor will stand after the Retry; None if it is still to run."""
    copy = latest.get(edge.predecessor)
    if edge.predecessor in taken or (copy is not None and copy.task_id in taken):
        return None
    if copy is not None:
        return copy.status
    # What ended after its dependent has left no outcome in the edge.
    return edge.outcome or stands.get(edge.predecessor)


async def _statuses(store: Store, namespace: str, ids: Sequence[bytes]) -> dict[bytes, Status]:
    """Of those that retention has left."""
    found: dict[bytes, Status] = {}
    for start in range(0, len(ids), PART):
        rows = await store.load(ids[start : start + PART], namespace=namespace)
        found |= {row.task_id: row.status for row in rows if row is not None}
    return found
