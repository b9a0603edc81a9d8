"""What callers pass as a payload, as the proto's Payload."""

import dataclasses
import json
from collections.abc import Mapping
from datetime import date, datetime, time
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from .v1 import task_pb2


def payload(value: object, metadata: Mapping[str, str] | None = None) -> task_pb2.Payload | None:
    """Encode a payload: bytes as they are, None as an empty one, anything else as JSON.

    Raises:
        TypeError: The value, or something in it, has no JSON form.
        ValueError: NaN or infinity, which JSON lacks.
    """
    if value is None and not metadata:
        return None
    message = task_pb2.Payload(metadata=dict(metadata or {}))
    if isinstance(value, bytes | bytearray | memoryview):
        message.data = bytes(value)
    elif value is not None:
        message.json = json_text(value)
    return message


def json_text(value: object) -> str:
    """JSON for a payload: dataclasses and models are objects; times, paths and ids are texts.

    Raises:
        TypeError: The value, or something in it, has no JSON form.
        ValueError: NaN or infinity, which JSON lacks.
    """
    text = _dump(value, ascii_only=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, as in a file name that is not UTF-8: only an escape carries it.
        return _dump(value, ascii_only=True)
    return text


def _dump(value: object, *, ascii_only: bool) -> str:
    return json.dumps(
        value,
        ensure_ascii=ascii_only,
        allow_nan=False,
        separators=(",", ":"),
        default=_plain,
    )


def _plain(value: Any) -> Any:
    """One step towards JSON for a value that `json` does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, type):
        raise TypeError(f"the class {value.__name__} is no payload: pass an instance of it")
    if callable(getattr(value, "model_dump", None)):
        return value.model_dump(mode="json")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | PurePath):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(
        f"{type(value).__name__} has no JSON form: pass a dataclass, a model with model_dump(), "
        "a dict, a list, text, a number, or bytes"
    )
