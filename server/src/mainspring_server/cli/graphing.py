"""`mainspring graph`: a graph as a tree, each task once, below the predecessor it waits longest for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .exits import CliError, ExitCode
from .options import JsonOption, ServerOption, shared
from .output import clean, message_document, print_json, print_tree, style_of

if TYPE_CHECKING:
    from rich.text import Text

    from mainspring.v1.task_pb2 import Task

    from .connection import Connection

PAGE = 1_000
DEEPEST = 12
"""What lies deeper is drawn beside its predecessor, which its line names: a chain stays readable."""
SHOWN = 10
"""So many tasks without dependents of one parent and one status; the rest is a number."""
_USUAL = ("UNSPECIFIED", "ALL_SUCCEEDED")
LINE_CHARS = 160
"""The most of an error or a reason."""


@dataclass(slots=True)
class Node:
    """A task of a graph with its place in the drawing; `depth` is its longest way from a root."""

    task: Task
    depth: int = 0
    level: int = 0
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    waited_for: bool = False

    @property
    def name(self) -> str:
        """Its name in the graph, else its type."""
        return self.task.local_ref or self.task.task_type


def graph(
    context: typer.Context,
    graph_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a graph, or of one of its tasks.")
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="Draw every task, however many are alike.")
    ] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a graph: who waits for whom, and how each task stands."""
    from .connection import connect

    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        tasks = _tasks(connection, graph_id)
    if options.json:
        print_json(_document(tasks))
    else:
        _draw(tasks, limit=len(tasks) if everything else SHOWN)


# --- Reading ----------------------------------------------------------------------------------


def _tasks(connection: Connection, graph_id: str) -> list[Task]:
    """The tasks of a graph, or of the graph that a task belongs to, in the order of their ids."""
    from mainspring.v1.task_requests_pb2 import StatusRequest

    found = _members(connection, graph_id)
    if found:
        return found
    reply = connection.call("Status", StatusRequest(task_id=graph_id))
    if reply.task.graph_id:
        return _members(connection, reply.task.graph_id)
    if reply.HasField("schedule"):
        raise CliError(
            f"{graph_id} is a schedule, and no graph",
            ExitCode.CONFLICT,
            hint=f"`mainspring history {graph_id}` has the tasks of its instances; give one of them.",
        )
    raise CliError(
        f"task {graph_id} belongs to no graph",
        ExitCode.CONFLICT,
        hint=f"`mainspring explain {graph_id}` says what it waits for.",
    )


def _members(connection: Connection, graph_id: str) -> list[Task]:
    from mainspring.v1.query_requests_pb2 import ListRequest
    from mainspring.v1.task_pb2 import TASK_VIEW_FULL

    request = ListRequest(
        filter=f'graph_id="{graph_id}"',
        order_by="create_time",
        view=TASK_VIEW_FULL,
        page_size=PAGE,
    )
    found: list[Task] = []
    while True:
        page = connection.call("List", request)
        found += page.tasks
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return sorted(found, key=lambda task: task.task_id)


def _counts(tasks: Iterable[Task]) -> dict[int, int]:
    """How many there are in each status, in the order of a task's life."""
    return dict(sorted(Counter(int(task.status) for task in tasks).items()))


def _document(tasks: Sequence[Task]) -> dict[str, Any]:
    documents = [message_document(task) for task in tasks]
    for document in documents:
        document.pop("payload", None)
    counts = Counter(document["status"] for document in documents)
    return {"graph_id": tasks[0].graph_id, "counts": dict(counts), "tasks": documents}


# --- Placing ----------------------------------------------------------------------------------


def arrange(tasks: Sequence[Task]) -> list[Node]:
    """The roots of the drawing. A task stands below the predecessor of the longest way to it."""
    nodes = {task.task_id: Node(task) for task in tasks}
    roots = []
    for node in _in_order(nodes):
        before = [nodes[i] for i in node.task.dependencies.task_ids if i in nodes]
        if not before:
            roots.append(node)
            continue
        for other in before:
            other.waited_for = True
        above = max(reversed(before), key=lambda other: other.depth)
        node.depth = above.depth + 1
        place = above if above.level < DEEPEST else above.parent
        assert place is not None  # DEEPEST is not 0
        node.parent, node.level = place, place.level + 1
        place.children.append(node)
    return roots


def _in_order(nodes: Mapping[str, Node]) -> Iterator[Node]:
    """Predecessors before their dependents, else as they were given."""
    waits = {
        task_id: sum(i in nodes for i in node.task.dependencies.task_ids)
        for task_id, node in nodes.items()
    }
    dependents: dict[str, list[str]] = {}
    for task_id, node in nodes.items():
        for predecessor in node.task.dependencies.task_ids:
            dependents.setdefault(predecessor, []).append(task_id)
    ready = [task_id for task_id, count in waits.items() if not count]
    for task_id in ready:  # grows
        yield nodes[task_id]
        for dependent in dependents.get(task_id, ()):
            waits[dependent] -= 1
            if not waits[dependent]:
                ready.append(dependent)


# --- Drawing ----------------------------------------------------------------------------------


def _draw(tasks: Sequence[Task], limit: int) -> None:
    from rich.text import Text
    from rich.tree import Tree

    names = {task.task_id: task.local_ref or task.task_type for task in tasks}
    tree = Tree(_title(tasks))
    level = [(tree, arrange(tasks))]
    for branch, nodes in level:  # grows
        shown, left_out = _choose(nodes, limit)
        level += [(branch.add(_line(node, names)), node.children) for node in shown]
        for status, count in left_out.items():
            branch.add(Text.assemble(f"… and {count} more ", _coloured(status)))
    print_tree(tree)


def _choose(nodes: Sequence[Node], limit: int) -> tuple[list[Node], dict[int, int]]:
    """Those to be drawn; and how many are not, by status, of tasks that nobody waits for."""
    shown: list[Node] = []
    alike: Counter[int] = Counter()
    for node in nodes:
        if not node.waited_for:
            alike[node.task.status] += 1
            if alike[node.task.status] > limit:
                continue
        shown.append(node)
    return shown, {status: n - limit for status, n in sorted(alike.items()) if n > limit}


def _title(tasks: Sequence[Task]) -> Text:
    from rich.text import Text

    text = Text.assemble(("graph ", "bold"), (tasks[0].graph_id, "bold"), f": {len(tasks)} tasks")
    for status, count in _counts(tasks).items():
        text.append(f", {count} ").append_text(_coloured(status))
    return text


def _coloured(status: int) -> Text:
    from rich.text import Text

    from .views import status_name

    name = status_name(status)
    return Text(name, style=style_of(name))


def _line(node: Node, names: Mapping[str, str]) -> Text:
    """Name, status, id, and what the drawing does not show by itself."""
    from rich.text import Text

    task = node.task
    text = Text.assemble((clean(node.name), "bold"), "  ", _coloured(task.status))
    text.append(f"  {task.task_id}", style="bright_black")
    for words in (_waits(node, names), _trouble(task, names)):
        if words:
            text.append(f"  {clean(words)}")
    return text


def _waits(node: Node, names: Mapping[str, str]) -> str:
    """Its rule, if it is not the usual one, and the predecessors that it is not drawn below."""
    from mainspring.v1.task_pb2 import DependencyRule

    waits = node.task.dependencies
    drawn = node.parent.task.task_id if node.parent else ""
    others = [names.get(i, i) for i in waits.task_ids if i != drawn]
    parts = []
    known = waits.rule in DependencyRule.values()
    rule = DependencyRule.Name(waits.rule) if known else str(waits.rule)
    rule = rule.removeprefix("DEPENDENCY_RULE_")
    if rule not in _USUAL:
        parts.append(rule)
    if others:
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        word = "also after" if len(others) < len(waits.task_ids) else "after"
        parts.append(f"{word} {', '.join(others[:SHOWN])}{more}")
    return " ".join(parts)


def _trouble(task: Task, names: Mapping[str, str]) -> str:
    """Why it ended badly, with names instead of ids."""
    from mainspring.v1.task_pb2 import TASK_STATUS_CANCELLED, TASK_STATUS_FAILED

    if task.status == TASK_STATUS_FAILED:
        said = task.last_error or task.status_reason
    elif task.status == TASK_STATUS_CANCELLED:
        said = task.status_reason
    else:
        return ""
    for task_id in task.dependencies.task_ids:
        said = said.replace(task_id, names.get(task_id, task_id))
    line = said.strip().partition("\n")[0]
    return f"({line[:LINE_CHARS]}{'…' if len(line) > LINE_CHARS else ''})" if line else ""
