"""Filters to SQL conditions; values are always bound."""

from __future__ import annotations

import re

from ..port import All, Any, Field, Filter, Not

COLUMNS = {
    "status": "status",
    "task_type": "task_type",
    "queue": "queue",
    "priority": "priority",
    "schedule_id": "schedule_id",
    "retry_of": "retry_of",
    "graph_id": "graph_id",
    "worker_id": "worker_id",
    "attempts": "attempts",
    "create_time": "created_at",
    "due_time": "due_at",
    "complete_time": "completed_at",
}
OPERATORS = frozenset({"=", "!=", "<", "<=", ">", ">="})
LABEL_PREFIX = "labels."

# A path compares a key with the text that JSON has for it, escapes and all, so it finds only keys
# that need none.
_PLAIN_KEY = re.compile(r'[^"\\\x00-\x1f]*')
_LABEL = "json_extract(labels, ?)"
_ODD_LABEL = "(SELECT value FROM json_each(labels) WHERE key = ?)"

Value = str | int | bytes


def to_sql(where: Filter) -> tuple[str, list[Value]]:
    """The condition and its values in order."""
    values: list[Value] = []
    return _condition(where, values, negated=False), values


def _condition(where: Filter, values: list[Value], *, negated: bool) -> str:
    """`negated` is true below a Not, where a comparison with NULL has to be false and not NULL."""
    if isinstance(where, Field):
        comparison = _comparison(where, values)
        return f"({comparison}) IS TRUE" if negated else comparison
    if isinstance(where, Not):
        return f"NOT ({_condition(where.item, values, negated=True)})"
    if isinstance(where, All):
        return _join([_condition(item, values, negated=negated) for item in where.items], "AND")
    return _any(where, values, negated=negated)


def _any(where: Any, values: list[Value], *, negated: bool) -> str:
    if not where.items:
        return "0"
    return _join([_condition(item, values, negated=negated) for item in where.items], "OR")


def _join(conditions: list[str], operator: str) -> str:
    """In halves, so that the depth stays small: SQLite limits that, not the length."""
    if not conditions:
        return "1"
    if len(conditions) == 1:
        return f"({conditions[0]})"
    middle = len(conditions) // 2
    left, right = _join(conditions[:middle], operator), _join(conditions[middle:], operator)
    return f"({left} {operator} {right})"


def _comparison(field: Field, values: list[Value]) -> str:
    if field.op not in OPERATORS:
        raise ValueError(f"no operator of filters: {field.op!r}")
    if field.name.startswith(LABEL_PREFIX):
        key = field.name.removeprefix(LABEL_PREFIX)
        plain = _PLAIN_KEY.fullmatch(key) is not None
        values += (f'$."{key}"' if plain else key, str(field.value))
        return f"{_LABEL if plain else _ODD_LABEL} {field.op} ?"
    values.append(int(field.value) if isinstance(field.value, int) else field.value)
    return f"{COLUMNS[field.name]} {field.op} ?"
