"""Payloads: what becomes JSON, what stays bytes, what is refused."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from mainspring._payload import json_text, payload


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    name: str
    at: datetime


@dataclass
class Part:
    size: int


@dataclass
class Whole:
    name: str
    parts: list[Part]
    where: Path
    colour: Colour


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"path": "cat.png"}, {"path": "cat.png"}),
        ([1, 2.5, None, True], [1, 2.5, None, True]),
        ("text", "text"),
        (0, 0),
        (False, False),
        (
            Whole("w", [Part(1), Part(2)], Path("a/b"), Colour.RED),
            {"name": "w", "parts": [{"size": 1}, {"size": 2}], "where": "a/b", "colour": "red"},
        ),
        (Model(name="m", at=NOON), {"name": "m", "at": "2026-03-01T12:00:00Z"}),
        (
            {"model": Model(name="m", at=NOON)},
            {"model": {"name": "m", "at": "2026-03-01T12:00:00Z"}},
        ),
        (
            {"at": NOON, "day": date(2026, 3, 1)},
            {"at": "2026-03-01T12:00:00+00:00", "day": "2026-03-01"},
        ),
        ({"id": UUID(int=1), "tags": {"b", "a"}}, {"id": str(UUID(int=1)), "tags": ["a", "b"]}),
    ],
)
def test_json(value: Any, expected: Any) -> None:
    message = payload(value)
    assert message is not None
    assert message.WhichOneof("body") == "json"
    assert json.loads(message.json) == expected


@pytest.mark.parametrize("value", [b"\0\xff", bytearray(b"\0\xff"), memoryview(b"\0\xff")])
def test_bytes(value: Any) -> None:
    message = payload(value)
    assert message is not None
    assert message.data == b"\0\xff"


def test_nothing() -> None:
    assert payload(None) is None
    message = payload(None, {"key": "id"})
    assert message is not None
    assert message.WhichOneof("body") is None
    assert message.metadata == {"key": "id"}


def test_text_stays_readable() -> None:
    assert json_text({"näme": "日本"}) == '{"näme":"日本"}'


def test_half_a_surrogate_pair_is_escaped() -> None:
    name = b"caf\xe9.png".decode(errors="surrogateescape")
    message = payload({"path": name, "ä": "ä"})
    assert message is not None
    assert json.loads(message.json) == {"path": name, "ä": "ä"}


@pytest.mark.parametrize("value", [float("nan"), {"x": float("inf")}])
def test_what_json_lacks(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        payload(value)


@pytest.mark.parametrize("value", [object(), {"x": 1 + 2j}, Part, [Model]])
def test_what_has_no_json_form(value: Any) -> None:
    with pytest.raises(TypeError, match=r"no JSON form|no payload"):
        payload(value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


@settings(max_examples=50)
@given(JSON)
def test_any_json_comes_back(value: Any) -> None:
    message = payload(value)
    assert message is None if value is None else json.loads(message.json) == value
