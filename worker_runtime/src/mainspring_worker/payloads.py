"""Payload to input, return value to outcome; JSON, or bytes as they are."""

import base64
import dataclasses
import json
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, TypeAlias
from uuid import UUID

from mainspring.v1 import task_pb2

from .outcomes import InputInvalid, OutcomeInvalid
from .shapes import ShapeError, compile_shape

MAX_OUTCOME_BYTES: Final = 64 * 1024
MAX_CHECKPOINT_BYTES: Final = 64 * 1024

Decode: TypeAlias = Callable[[task_pb2.Payload], Any]
"""Makes a handler's input; raises `InputInvalid`."""


def input_decoder(annotation: Any) -> Decode:
    """Compile the decoder of an annotation; TypeError if no payload can give that type.

    Without an annotation JSON is decoded, bytes are handed on, and no body is None.
    """
    inner, optional = _without_none(annotation)
    decode = _special(inner) or _json_decoder(inner)
    if not optional:
        return decode
    return lambda payload: None if _is_null(payload) else decode(payload)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Split `X | None`, so that X may be something that is not JSON."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, False
    rest = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
    if len(rest) == len(typing.get_args(annotation)):
        return annotation, False
    return typing.Union[tuple(rest)], True  # noqa: UP007 - made at run time


def _is_null(payload: task_pb2.Payload) -> bool:
    body = payload.WhichOneof("body")
    return body is None or (body == "json" and payload.json.strip() == "null")


def _special(annotation: Any) -> Decode | None:
    if annotation in (Any, object):
        return _decode_any
    if annotation is bytes:
        return _decode_bytes
    if annotation is str:
        return _decode_text
    if annotation in (None, type(None)):
        return _decode_nothing
    if isinstance(annotation, type) and hasattr(annotation, "model_validate_json"):
        return _model_decoder(annotation)
    return None


def _decode_any(payload: task_pb2.Payload) -> Any:
    body = payload.WhichOneof("body")
    if body is None:
        return None
    return payload.data if body == "data" else _loads(payload.json)


def _decode_bytes(payload: task_pb2.Payload) -> bytes:
    return payload.json.encode() if payload.WhichOneof("body") == "json" else payload.data


def _decode_text(payload: task_pb2.Payload) -> str:
    if payload.WhichOneof("body") == "json":
        value = _loads(payload.json)
        if not isinstance(value, str):
            raise InputInvalid("input: expected text, got other JSON")
        return value
    try:
        return payload.data.decode()
    except UnicodeDecodeError as error:
        raise InputInvalid(f"input: expected UTF-8 text: {error}") from None


def _decode_nothing(payload: task_pb2.Payload) -> None:
    if not _is_null(payload):
        raise InputInvalid("input: this handler takes none, the task has a payload")


def _model_decoder(model: Any) -> Decode:
    def decode(payload: task_pb2.Payload) -> Any:
        body = payload.WhichOneof("body")
        try:
            return model.model_validate_json(
                payload.json if body == "json" else payload.data or b"null"
            )
        except ValueError as error:
            raise InputInvalid(f"input: {error}") from None

    return decode


def _json_decoder(annotation: Any) -> Decode:
    convert = compile_shape(annotation)

    def decode(payload: task_pb2.Payload) -> Any:
        body = payload.WhichOneof("body")
        if body is None:
            raise InputInvalid("input: the task has no payload")
        value = _loads(payload.json if body == "json" else payload.data)
        try:
            return convert(value, "input")
        except ShapeError as error:
            raise InputInvalid(str(error)) from None

    return decode


def _loads(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputInvalid(f"input: not valid JSON: {error}") from None


def encode_outcome(value: Any) -> bytes:
    """Make an outcome's bytes of what a handler returned; raises `OutcomeInvalid`."""
    if value is None:
        return b""
    try:
        data = encode_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise OutcomeInvalid(f"the handler's result is no JSON: {error}") from None
    if len(data) > MAX_OUTCOME_BYTES:
        raise OutcomeInvalid(
            f"the handler's result is {len(data)} bytes, an outcome at most {MAX_OUTCOME_BYTES}: "
            "store it elsewhere and return where it is"
        )
    return data


def encode_json(value: Any) -> bytes:
    """Encode bytes as they are, a pydantic model by itself, anything else as JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json()).encode()
    return _ENCODER.encode(value).encode()


def encode_checkpoint(value: Any) -> bytes:
    """Make a checkpoint's bytes; ValueError if it is too large, TypeError if it is no JSON."""
    data = encode_json(value)
    if len(data) > MAX_CHECKPOINT_BYTES:
        raise ValueError(f"a checkpoint is at most {MAX_CHECKPOINT_BYTES} bytes, not {len(data)}")
    return data


def _plain(value: Any) -> Any:
    """Spell what JSON lacks as `shapes` reads it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    match value:
        case Enum():
            return value.value
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID() | Decimal() | PurePath():
            return str(value)
        case set() | frozenset():
            return list(value)
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__qualname__} cannot be written as JSON")


_ENCODER: Final = json.JSONEncoder(
    default=_plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)
