"""Dependencies as they are asked for: predecessors by id or, inside a graph, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainspring.v1 import task_pb2

from ..admission.limits import Limits
from ..domain.checks import first_check
from ..domain.errors import InvalidArgument
from ..domain.graph import find_cycle
from ..domain.task import NewTask, Rule, Status, Waits
from ..ids import parse
from .convert import duration_ms, invalid, required

Names = Mapping[str, bytes]
"""The ids behind the local references of one graph."""


def waits_of(message: task_pb2.Dependencies, limits: Limits, names: Names | None) -> Waits:
    """What a request waits for; `names` is None outside an atomic batch."""
    count = len(message.task_ids) + len(message.local_refs)
    if not count:
        raise required("dependencies.task_ids", "must name at least one predecessor")
    if count > limits.predecessors:
        raise invalid(
            "dependencies",
            f"names {count} predecessors, at most {limits.predecessors} are allowed; wait for a "
            "task in between that waits for them",
            limit=str(limits.predecessors),
            actual=str(count),
        )
    if message.rule not in task_pb2.DependencyRule.values():
        raise invalid("dependencies.rule", f"has no value {message.rule}", actual=str(message.rule))
    found = [parse(text, f"dependencies.task_ids[{n}]") for n, text in enumerate(message.task_ids)]
    found += [_named(names, name, n) for n, name in enumerate(message.local_refs)]
    delay = duration_ms(
        message.delay,
        "dependencies.delay",
        maximum=limits.delay_ms,
        reason="DUE_TIME_OUT_OF_RANGE",
    )
    return Waits(tuple(dict.fromkeys(found)), Rule(message.rule or Rule.ALL_SUCCEEDED), delay)


def _named(names: Names | None, name: str, position: int) -> bytes:
    field = f"dependencies.local_refs[{position}]"
    if names is None:
        raise invalid(field, "is allowed in an atomic batch only", "LOCAL_REF_INVALID")
    if name not in names:
        raise invalid(
            field,
            f"names {name[:64]!r}, which no request of this batch has as its local_ref",
            "LOCAL_REF_INVALID",
            local_ref=name,
        )
    return names[name]


def wait_for(task: NewTask, waits: Waits) -> None:
    """Make a new task wait; its deadline is counted from its release."""
    task.waits = waits
    task.status = Status.CREATED
    task.deadline_at = None
    task.next_check_at = first_check(Status.CREATED, task.due_at, task.created_at, None, None)


def refuse_cycle(tasks: Sequence[NewTask]) -> None:
    """Raise if the tasks of a graph wait for each other in a circle.

    Only names can close one: an id of an existing task is older than every task that waits for it,
    and the edges of a task never change. So no cycle leads through an existing task.
    """
    names = {task.task_id: task.local_ref or "" for task in tasks}
    edges = {
        names[task.task_id]: [names[p] for p in task.waits.predecessors if p in names]
        for task in tasks
        if task.waits and task.local_ref
    }
    cycle = find_cycle(edges)
    if cycle is not None:
        path = " -> ".join(cycle)
        raise InvalidArgument(
            "DEPENDENCY_CYCLE",
            f"requests wait for each other in a cycle: {path}; remove one of these dependencies",
            field="requests",
            metadata={"path": path, "length": str(len(cycle) - 1)},
        )
