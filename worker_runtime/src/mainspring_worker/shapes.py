"""From an annotation to a converter of decoded JSON, compiled once per handler."""

import base64
import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, Final, TypeAlias
from uuid import UUID

Convert: TypeAlias = Callable[[Any, str], Any]
"""Takes a decoded JSON value and where it stands; raises `ShapeError`."""


class ShapeError(ValueError):
    """A value does not fit its annotation."""


_PARSED: Final[dict[Any, tuple[Callable[[str], Any], str]]] = {
    datetime: (datetime.fromisoformat, "an ISO 8601 date and time"),
    date: (date.fromisoformat, "an ISO 8601 date"),
    time: (time.fromisoformat, "an ISO 8601 time"),
    UUID: (UUID, "a UUID"),
    Path: (Path, "a path"),
    PurePath: (PurePath, "a path"),
    bytes: (lambda text: base64.b64decode(text, validate=True), "base64 text"),
}


def compile_shape(annotation: Any) -> Convert:
    """Make the converter of an annotation; TypeError if JSON cannot give that type."""
    return _compile(annotation, {})


def _compile(annotation: Any, seen: dict[Any, Convert]) -> Convert:
    annotation = _unwrap(annotation)
    origin = typing.get_origin(annotation)
    if origin is not None:
        return _compile_generic(annotation, origin, seen)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if annotation in _PARSED:
        return _parsed(*_PARSED[annotation])
    if annotation in (list, set, frozenset, tuple, Sequence, Iterable):
        return _items(annotation if isinstance(annotation, type) else list, _anything)
    if annotation in (dict, Mapping, MutableMapping):
        return _mapping(_anything)
    if isinstance(annotation, type):
        return _compile_class(annotation, seen)
    raise TypeError(
        f"JSON cannot be read as {annotation!r}; use a dataclass, a pydantic model or a dict"
    )


def _unwrap(annotation: Any) -> Any:
    """See through Annotated, NewType, aliases and type variables."""
    while True:
        if typing.get_origin(annotation) in (typing.Annotated, typing.Required, typing.NotRequired):
            annotation = typing.get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif isinstance(annotation, typing.TypeVar):
            return Any
        else:
            return annotation


def _compile_generic(annotation: Any, origin: Any, seen: dict[Any, Convert]) -> Convert:
    args = typing.get_args(annotation)
    if origin is typing.Literal:
        return _literal(args)
    if origin in (typing.Union, types.UnionType):
        return _union([(_name(arg), _compile(arg, seen)) for arg in args])
    if origin in (dict, Mapping, MutableMapping):
        if _unwrap(args[0]) not in (str, Any):
            raise TypeError(f"the keys of a JSON object are text, not {args[0]!r}")
        return _mapping(_compile(args[1], seen))
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        return _fixed_tuple([_compile(arg, seen) for arg in args])
    if origin in (list, set, frozenset, tuple):
        return _items(origin, _compile(args[0], seen))
    if origin in (Sequence, Iterable):
        return _items(list, _compile(args[0], seen))
    if isinstance(origin, type):
        return _compile_class(origin, seen)
    raise TypeError(f"JSON cannot be read as {annotation!r}")


def _compile_class(cls: type, seen: dict[Any, Convert]) -> Convert:
    if cls in seen:
        # A type that holds itself: looked up when a value comes, by then it is there.
        return lambda value, where: seen[cls](value, where)  # noqa: PLW0108 - see above
    seen[cls] = _anything
    if typing.is_typeddict(cls):
        seen[cls] = _typed_dict(cls, seen)
    elif hasattr(cls, "model_validate"):
        seen[cls] = _validated(cls)
    elif dataclasses.is_dataclass(cls):
        seen[cls] = _dataclass(cls, seen)
    elif issubclass(cls, Enum):
        seen[cls] = _enum(cls)
    else:
        raise TypeError(
            f"JSON cannot be read as {cls!r}; use a dataclass, a pydantic model or a dict"
        )
    return seen[cls]


def _anything(value: Any, where: str) -> Any:
    del where
    return value


def _expected(what: str, value: Any, where: str) -> ShapeError:
    names = {dict: "an object", list: "a list", str: "text", type(None): "null", bool: "a boolean"}
    got = names.get(type(value), "a number")
    return ShapeError(f"{where}: expected {what}, got {got}")


def _scalar(kinds: tuple[type, ...], what: str) -> Convert:
    def convert(value: Any, where: str) -> Any:
        # A bool is an int in Python, and is none in JSON.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise _expected(what, value, where)
        return value

    return convert


def _float(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _expected("a number", value, where)
    return float(value)


def _decimal(value: Any, where: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _expected("a decimal number", value, where)
    try:
        return Decimal(str(value))
    except ArithmeticError:
        raise ShapeError(f"{where}: expected a decimal number, got {value!r:.80}") from None


def _timedelta(value: Any, where: str) -> timedelta:
    return timedelta(seconds=_float(value, where))


_SCALARS: Final[dict[Any, Convert]] = {
    Any: _anything,
    object: _anything,
    None: _scalar((type(None),), "null"),
    type(None): _scalar((type(None),), "null"),
    bool: _scalar((bool,), "a boolean"),
    int: _scalar((int,), "a whole number"),
    float: _float,
    str: _scalar((str,), "text"),
    Decimal: _decimal,
    timedelta: _timedelta,
}


def _parsed(parse: Callable[[str], Any], what: str) -> Convert:
    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, str):
            raise _expected(what, value, where)
        try:
            return parse(value)
        except ValueError:
            raise ShapeError(f"{where}: expected {what}, got {value!r:.80}") from None

    return convert


def _enum(cls: type[Enum]) -> Convert:
    def convert(value: Any, where: str) -> Enum:
        try:
            return cls(value)
        except ValueError:
            allowed = ", ".join(repr(member.value) for member in cls)
            raise ShapeError(f"{where}: expected one of {allowed}, got {value!r:.80}") from None

    return convert


def _literal(allowed: tuple[Any, ...]) -> Convert:
    def convert(value: Any, where: str) -> Any:
        for choice in allowed:
            if value == choice and type(value) is type(choice):
                return choice
        choices = ", ".join(map(repr, allowed))
        raise ShapeError(f"{where}: expected one of {choices}, got {value!r:.80}")

    return convert


def _union(options: list[tuple[str, Convert]]) -> Convert:
    def convert(value: Any, where: str) -> Any:
        errors = []
        for _, option in options:
            try:
                return option(value, where)
            except ShapeError as error:
                errors.append(str(error))
        raise ShapeError("; or ".join(errors))

    return convert


def _items(kind: type, item: Convert) -> Convert:
    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise _expected("a list", value, where)
        found = [item(element, f"{where}[{index}]") for index, element in enumerate(value)]
        return found if kind is list else kind(found)

    return convert


def _fixed_tuple(items: list[Convert]) -> Convert:
    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, list) or len(value) != len(items):
            raise _expected(f"a list of {len(items)}", value, where)
        pairs = zip(items, value, strict=True)
        return tuple(
            item(element, f"{where}[{index}]") for index, (item, element) in enumerate(pairs)
        )

    return convert


def _mapping(item: Convert) -> Convert:
    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _expected("an object", value, where)
        if item is _anything:
            return value
        return {key: item(element, f"{where}.{key}") for key, element in value.items()}

    return convert


def _validated(cls: Any) -> Convert:
    """Leave a pydantic model, or whatever validates like one, to itself."""

    def convert(value: Any, where: str) -> Any:
        try:
            return cls.model_validate(value)
        except ValueError as error:
            raise ShapeError(f"{where}: {error}") from None

    return convert


def _typed_dict(cls: Any, seen: dict[Any, Convert]) -> Convert:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {name: _compile(hint, seen) for name, hint in hints.items()}
    return _object(fields, cls.__required_keys__, dict)


def _dataclass(cls: Any, seen: dict[Any, Convert]) -> Convert:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = [field for field in dataclasses.fields(cls) if field.init]
    required = frozenset(
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )
    return _object(
        {field.name: _compile(hints[field.name], seen) for field in fields}, required, cls
    )


def _object(
    fields: dict[str, Convert], required: frozenset[str], make: Callable[..., Any]
) -> Convert:
    """Read an object; names that it does not know are ignored: a newer submitter may send more."""

    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _expected("an object", value, where)
        found = {
            name: item(value[name], f"{where}.{name}")
            for name, item in fields.items()
            if name in value
        }
        missing = required - found.keys()
        if missing:
            raise ShapeError(f"{where}: missing {', '.join(sorted(missing))}")
        try:
            return make(**found)
        except (TypeError, ValueError) as error:
            raise ShapeError(f"{where}: {error}") from None

    return convert


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", str(annotation))
