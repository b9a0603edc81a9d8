"""The filter language of List and Count: a subset of AIP-160, read into the store's Filter.

The parser is LALR, and conditions are built while it reads: no text, however nested, takes more
stack or more than linear time. Every refusal says where and what is allowed there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any as Anything
from typing import NoReturn

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken

from ..admission.limits import DEFAULT_LIMITS, Limits
from ..domain.errors import InvalidArgument
from ..domain.task import Status
from ..ids import parse as parse_id
from ..store.port import All, Any, Field, Filter, Not
from .convert import check_text

GRAMMAR = r"""
start: conjunction?

?conjunction: disjunction (_AND? disjunction)*
?disjunction: term (_OR term)*
?term: NOT condition -> negation
     | condition
?condition: FIELD OPERATOR (QUOTED | BARE) -> comparison
     | "(" conjunction ")"

_AND.2: /AND(?![A-Za-z0-9_])/
_OR.2: /OR(?![A-Za-z0-9_])/
NOT.2: /NOT(?![A-Za-z0-9_])/
FIELD: /[A-Za-z_][A-Za-z0-9_]*(\.("([^"\\]|\\.)*"|[A-Za-z0-9._\/-]+))?/
OPERATOR: /!=|<=|>=|=|<|>/
QUOTED: /"([^"\\]|\\.)*"|'([^'\\]|\\.)*'/s
BARE: /[A-Za-z0-9._-]+/
%ignore /[ \t\r\n]+/
"""

EQUALITY = ("=", "!=")
ORDERED = ("=", "!=", "<", "<=", ">", ">=")
INT64_MAX = 2**63 - 1

_WORDS = {
    "FIELD": "a field",
    "OPERATOR": "an operator (= != < <= > >=)",
    "QUOTED": "a quoted value",
    "BARE": "a value",
    "_AND": "AND",
    "_OR": "OR",
    "NOT": "NOT",
    "LPAR": "(",
    "RPAR": ")",
    "$END": "the end",
}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def refused(message: str, position: int, **metadata: str) -> InvalidArgument:
    """An error in the filter; positions count characters from 1."""
    return InvalidArgument(
        "FILTER_INVALID",
        f"filter, character {position}: {message}",
        field="filter",
        metadata={"position": str(position), **metadata},
    )


# --- Values -----------------------------------------------------------------------------------


def _status(text: str, _op: str, position: int) -> int:
    name = text.removeprefix("TASK_STATUS_")
    if name not in Status.__members__:
        allowed = " ".join(Status.__members__)
        raise refused(
            f"{text[:64]!r} is no status; use one of {allowed}", position, allowed=allowed
        )
    return Status[name]


def _text(text: str, _op: str, _position: int) -> str:
    return text


def _identifier(text: str, _op: str, position: int) -> bytes:
    try:
        return parse_id(text, "id")
    except InvalidArgument:
        raise refused(f"{text[:64]!r} is no id (a lower-case UUID)", position) from None


def _number(text: str, _op: str, position: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or abs(int(text)) > INT64_MAX:
        raise refused(f"{text[:64]!r} is no whole number of 64 bits", position)
    return int(text)


def _moment(text: str, op: str, position: int) -> int:
    """A time in milliseconds; between two of them the comparison decides which one is meant."""
    moment = _instant(text)
    if moment is None:
        raise refused(f'{text[:64]!r} is no time; write it like "2026-03-01T08:00:00Z"', position)
    span = moment - datetime(1970, 1, 1, tzinfo=UTC)
    micros = (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds
    return math.ceil(micros / 1_000) if op in (">=", "<") else micros // 1_000


def _instant(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    complete = len(text) >= len("2026-01-01T00:00:00Z") and moment.tzinfo is not None
    return moment if complete else None


Read = Callable[[str, str, int], "str | int | bytes"]

FIELDS: dict[str, tuple[Read, tuple[str, ...]]] = {
    "status": (_status, EQUALITY),
    "task_type": (_text, EQUALITY),
    "queue": (_text, EQUALITY),
    "schedule_id": (_identifier, EQUALITY),
    "graph_id": (_identifier, EQUALITY),
    "worker_id": (_text, EQUALITY),
    "retry_of": (_identifier, EQUALITY),
    "priority": (_number, ORDERED),
    "attempts": (_number, ORDERED),
    "create_time": (_moment, ORDERED),
    "due_time": (_moment, ORDERED),
    "complete_time": (_moment, ORDERED),
}
LABEL: tuple[Read, tuple[str, ...]] = (_text, EQUALITY)
ALLOWED = " ".join([*FIELDS, "labels.KEY"])


# --- Building ---------------------------------------------------------------------------------


class _Builder(Transformer[Token, Filter]):
    """Called by the parser for each rule that it has read; counts nothing, holds nothing."""

    def start(self, items: list[Filter]) -> Filter:
        return items[0] if items else All(())

    def conjunction(self, items: list[Filter]) -> Filter:
        return All(tuple(items))

    def disjunction(self, items: list[Filter]) -> Filter:
        return Any(tuple(items))

    def negation(self, items: list[Anything]) -> Filter:
        return Not(items[1])

    def comparison(self, items: list[Token]) -> Filter:
        field, operator, value = items
        name = _field_name(field)
        read, operators = LABEL if name.startswith("labels.") else FIELDS[name]
        if operator not in operators:
            raise refused(
                f"{name} takes {' and '.join(operators)}, not {operator}",
                _position(operator),
                allowed=" ".join(operators),
            )
        text = _unquoted(value)
        return Field(name, str(operator), read(text, str(operator), _position(value)))


def _position(token: Token) -> int:
    return (token.start_pos or 0) + 1


def _unquoted(token: Token | str) -> str:
    text = str(token)
    if text[:1] in ('"', "'"):
        return _ESCAPE.sub(r"\1", text[1:-1])
    return text


def _field_name(token: Token) -> str:
    name, dot, key = str(token).partition(".")
    if name == "labels" and dot:
        return f"labels.{_unquoted(key)}"
    if str(token) in FIELDS:
        return str(token)
    raise refused(
        f"there is no field {str(token)[:64]!r}; use one of {ALLOWED}",
        _position(token),
        allowed=ALLOWED,
    )


_PARSER = Lark(GRAMMAR, parser="lalr", lexer="contextual", transformer=_Builder())
_LEXICAL = re.compile(
    r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[A-Za-z0-9_.]+|!=|<=|>=|[=<>]""", re.DOTALL
)


def parse_filter(text: str, limits: Limits = DEFAULT_LIMITS) -> Filter:
    """The filter as the store takes it; an empty one matches all tasks."""
    check_text(text, "filter", limits.filter_chars)
    _count_terms(text, limits.filter_terms)
    try:
        found: Filter = _PARSER.parse(text)  # type: ignore[assignment]
    except UnexpectedInput as error:
        _refuse(error, text)
    return found


def _count_terms(text: str, limit: int) -> None:
    """Comparisons and negations; counted first, because they bound how deep conditions nest."""
    terms = sum(
        word in ORDERED or word == "NOT" for word in (m.group() for m in _LEXICAL.finditer(text))
    )
    if terms > limit:
        raise refused(
            f"{terms} terms, at most {limit} are allowed", 1, limit=str(limit), actual=str(terms)
        )


def _refuse(error: UnexpectedInput, text: str) -> NoReturn:
    position = getattr(error, "pos_in_stream", None)
    names = getattr(error, "accepts", None) or getattr(error, "allowed", None)
    names = names or getattr(error, "expected", None) or set()
    wanted = ", ".join(sorted(_WORDS.get(name, name) for name in names))
    at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    if at_end or position is None:
        position, seen = len(text), "the end"
    else:
        seen = repr(text[position : position + 16])
    raise refused(f"{seen} where {wanted} is expected", position + 1, expected=wanted) from None
