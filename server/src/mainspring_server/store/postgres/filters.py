"""A filter as a SQL condition; every value is a parameter."""

from __future__ import annotations

from ..port import All, Field, Filter, Not

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

    def sql(self, item: Filter, *, negated: bool = False) -> str:
        """The condition; a comparison with NULL is false, so that Not of it is true.

        Only below a Not that has to be written down; elsewhere it would keep an index from use.
        """
        if isinstance(item, Not):
            return f"NOT {self.sql(item.item, negated=True)}"
        if isinstance(item, Field):
            return self._comparison(item, negated=negated)
        parts = [self.sql(part, negated=negated) for part in item.items]
        if isinstance(item, All):
            return f"({' AND '.join(parts)})" if parts else "true"
        return f"({' OR '.join(parts)})" if parts else "false"

    def _comparison(self, field: Field, *, negated: bool) -> str:
        if field.op not in _OPERATORS:
            raise ValueError(f"unknown operator {field.op!r}")
        if field.name.startswith("labels."):
            key = self.bind(field.name.removeprefix("labels."))
            column, kind = f'(t.labels::json ->> {key}::text) COLLATE "C"', "text"
        else:
            column, kind = _COLUMNS[field.name]
        comparison = f"{column} {field.op} {self.bind(field.value)}::{kind}"
        return f"coalesce({comparison}, false)" if negated else comparison
