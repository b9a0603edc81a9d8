"""A filter as a SQL condition; every value is a parameter."""

from __future__ import annotations

from ..port import All, Any, Field, Filter, Not

_COLUMNS = {
    "status": ("t.status", "bigint"),
    "priority": ("t.priority", "bigint"),
    "attempts": ("t.attempts", "bigint"),
    "create_time": ("t.created_at", "bigint"),
    "due_time": ("t.due_at", "bigint"),
    "complete_time": ("t.completed_at", "bigint"),
    "task_type": ("t.task_type", "text"),
    "queue": ("t.queue", "text"),
    "worker_id": ("t.worker_id", "text"),
    "schedule_id": ("t.schedule_id", "uuid"),
    "retry_of": ("t.retry_of", "uuid"),
    "graph_id": ("t.graph_id", "uuid"),
}
_OPERATORS = frozenset({"=", "!=", "<", "<=", ">", ">="})


class Condition:
    """Collects parameters while it writes SQL; `parameters` may begin with others."""

    def __init__(self, *parameters: object) -> None:
        self.parameters = list(parameters)

    def bind(self, value: object) -> str:
        """Add a parameter, answer its placeholder."""
        self.parameters.append(value)
        return f"${len(self.parameters)}"

    def sql(self, item: Filter) -> str:
        """The condition; a comparison with NULL is false, so that Not of it is true."""
        if isinstance(item, Not):
            return f"NOT {self.sql(item.item)}"
        if isinstance(item, All):
            return f"({' AND '.join(map(self.sql, item.items))})" if item.items else "true"
        if isinstance(item, Any):
            return f"({' OR '.join(map(self.sql, item.items))})" if item.items else "false"
        return self._comparison(item)

    def _comparison(self, field: Field) -> str:
        if field.op not in _OPERATORS:
            raise ValueError(f"unknown operator {field.op!r}")
        if field.name.startswith("labels."):
            key = self.bind(field.name.removeprefix("labels."))
            column, kind = f'(t.labels::json ->> {key}::text) COLLATE "C"', "text"
        else:
            column, kind = _COLUMNS[field.name]
        return f"coalesce({column} {field.op} {self.bind(field.value)}::{kind}, false)"
