"""Payload to input, return value to outcome."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from mainspring.v1 import task_pb2
from mainspring_worker.outcomes import InputInvalid, OutcomeInvalid
from mainspring_worker.payloads import encode_checkpoint, encode_outcome, input_decoder


class Format(Enum):
    PNG = "png"
    JPEG = "jpeg"


@dataclass
class Size:
    width: int
    height: int = 100


@dataclass
class Image:
    path: Path
    size: Size
    format: Format = Format.PNG
    tags: list[str] = field(default_factory=list)
    parent: "Image | None" = None
    taken: datetime | None = None
    scale: float = 1.0


class Crop(TypedDict):
    left: int
    right: NotRequired[int]


class Model(BaseModel):
    count: int
    name: str = "x"


def read(annotation: Any, value: Any = None, data: bytes | None = None) -> Any:
    payload = task_pb2.Payload()
    if data is not None:
        payload.data = data
    elif value is not None:
        payload.json = json.dumps(value)
    return input_decoder(annotation)(payload)


def test_dataclass_with_everything() -> None:
    image = read(
        Image,
        {
            "path": "a/b.png",
            "size": {"width": 3},
            "format": "jpeg",
            "tags": ["x"],
            "parent": {"path": "p", "size": {"width": 1, "height": 2}},
            "taken": "2026-01-02T03:04:05Z",
            "scale": 2,
            "unknown": "is ignored: a newer submitter may send more",
        },
    )
    parent = Image(Path("p"), Size(1, 2))
    taken = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert image == Image(Path("a/b.png"), Size(3), Format.JPEG, ["x"], parent, taken, 2.0)
    assert isinstance(image.scale, float)


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (Size, {}, "input: missing width"),
        (Size, {"width": "3"}, "input.width: expected a whole number, got text"),
        (Size, {"width": True}, "input.width: expected a whole number, got a boolean"),
        (Size, [1], "input: expected an object, got a list"),
        (
            Image,
            {"path": "p", "size": {"width": None}},
            "input.size.width: expected a whole number, got null",
        ),
        (
            Image,
            {"path": "p", "size": {"width": 1}, "tags": ["a", 1]},
            "input.tags[1]: expected text",
        ),
        (
            Image,
            {"path": "p", "size": {"width": 1}, "format": "gif"},
            "expected one of 'png', 'jpeg'",
        ),
        (
            Image,
            {"path": "p", "size": {"width": 1}, "taken": "now"},
            "input.taken: expected an ISO 8601",
        ),
        (Crop, {"right": 1}, "input: missing left"),
        (dict[str, int], {"a": "b"}, "input.a: expected a whole number"),
        (tuple[int, str], [1], "expected a list of 2"),
        (Literal["a", 1], True, "expected one of 'a', 1"),
        (int | str, [1], "expected a whole number, got a list; or input: expected text"),
        (Decimal, "x", "expected a decimal number"),
        (UUID, "x", "expected a UUID"),
        (Model, {"count": "many"}, "count"),
        (list[Model], [{"count": "many"}], "input[0]"),
        (str, {"a": 1}, "input: expected text"),
        (None, {"a": 1}, "this handler takes none"),
        (Size, None, "the task has no payload"),
        (Model, None, "input"),
    ],
)
def test_what_does_not_fit_is_named(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        read(annotation, value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "value", "data", "expected"),
    [
        (Any, {"a": [1]}, None, {"a": [1]}),
        (Any, None, None, None),
        (Any, None, b"\x00\xff", b"\x00\xff"),
        (dict, {"a": 1}, None, {"a": 1}),
        (dict[str, Any] | None, None, None, None),
        (Crop, {"left": 1, "more": 2}, None, {"left": 1}),
        (bytes, None, b"\xff", b"\xff"),
        (bytes, {"a": 1}, None, b'{"a": 1}'),
        (bytes | None, None, b"\xff", b"\xff"),
        (str, "ä", None, "ä"),
        (str, None, "ä".encode(), "ä"),
        (None, None, None, None),
        (Size, None, b'{"width": 1}', Size(1)),
        (Size | None, None, None, None),
        (Model, {"count": 1}, None, Model(count=1)),
        (Model, None, b'{"count": 1}', Model(count=1)),
        (tuple[int, ...], [1, 2], None, (1, 2)),
        (set[int], [1, 1], None, {1}),
        (tuple[int, str], [1, "a"], None, (1, "a")),
        (int | str, "a", None, "a"),
        (Decimal, "1.50", None, Decimal("1.50")),
        (timedelta, 1.5, None, timedelta(seconds=1.5)),
    ],
)
def test_what_fits(annotation: Any, value: Any, data: bytes | None, expected: Any) -> None:
    assert read(annotation, value, data) == expected


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[" * 100_000])
def test_no_json(data: bytes) -> None:
    with pytest.raises(InputInvalid, match="not valid JSON"):
        read(Size, data=data)


@pytest.mark.parametrize(
    "annotation", [socket_like := type("Socket", (), {}), dict[int, str], list[object] | complex]
)
def test_annotation_that_json_cannot_give(annotation: Any) -> None:
    with pytest.raises(TypeError):
        input_decoder(annotation)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, b""),
        (b"\x00raw", b"\x00raw"),
        ("text", b'"text"'),
        ({"a": 1.5}, b'{"a":1.5}'),
        (Size(1, 2), b'{"width":1,"height":2}'),
        (Model(count=1), b'{"count":1,"name":"x"}'),
        ([Model(count=1)], b'[{"count":1,"name":"x"}]'),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, b'{"at":"2026-01-01T00:00:00+00:00"}'),
        ([Format.PNG, Decimal("1.5"), Path("a"), b"x"], b'["png","1.5","a","eA=="]'),
    ],
)
def test_outcomes(value: Any, expected: bytes) -> None:
    assert encode_outcome(value) == expected


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": object()}, "\ud800"])
def test_outcome_that_is_no_json(value: Any) -> None:
    with pytest.raises(OutcomeInvalid, match="no JSON"):
        encode_outcome(value)


def test_limits_at_the_bound_and_one_past() -> None:
    assert len(encode_outcome(b"x" * 65_536)) == 65_536
    with pytest.raises(OutcomeInvalid, match="65537 bytes"):
        encode_outcome(b"x" * 65_537)
    assert len(encode_checkpoint(b"x" * 65_536)) == 65_536
    with pytest.raises(ValueError, match="at most 65536"):
        encode_checkpoint(b"x" * 65_537)


@given(
    st.builds(
        Image,
        path=st.just(Path("p")),
        size=st.builds(Size, st.integers(), st.integers()),
        format=st.sampled_from(Format),
        tags=st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
        taken=st.none() | st.datetimes(timezones=st.just(UTC)),
        scale=st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_what_is_returned_can_be_an_input(image: Image) -> None:
    assert read(Image, data=encode_outcome(image)) == image
