"""Between the dataclasses of this package and the messages of the protos.

A dataclass has the names of its message's fields, so that one walk over them serves every pair.
Timestamps are aware datetimes in UTC, durations are timedeltas (or seconds, on the way in),
enums are the text enums of `enums`, repeated fields are tuples, a message or optional field that
is not set is None. How to read a field is found out once for each class.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar, get_args, get_type_hints

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

Seconds = float | timedelta
"""A length of time: a timedelta, or a number of seconds."""

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)
_E = TypeVar("_E", bound=StrEnum)
_Reader = Callable[[Any], Any]

_TIMESTAMP = Timestamp.DESCRIPTOR.full_name
_DURATION = Duration.DESCRIPTOR.full_name


def timestamp(value: datetime) -> Timestamp:
    """Convert an aware datetime.

    Raises:
        ValueError: It is naive: nobody could say which instant it means.
    """
    if value.utcoffset() is None:
        raise ValueError(f"{value!r} has no time zone: pass an aware datetime, such as in UTC")
    message = Timestamp()
    message.FromDatetime(value.astimezone(UTC))
    return message


def duration(value: Seconds) -> Duration:
    """Convert a timedelta or a number of seconds; a bound of the server is its own to refuse."""
    message = Duration()
    if isinstance(value, timedelta):
        message.FromTimedelta(value)
    elif math.isfinite(value):
        message.FromNanoseconds(round(value * 1_000_000_000))
    else:
        raise ValueError(f"{value!r} is no length of time: pass seconds or a timedelta")
    return message


def enum_number(descriptor: EnumDescriptor, member: StrEnum | str) -> int:
    """The number of a member; its proto name is the enum's prefix and the member's name."""
    name = _prefix(descriptor) + str(member)
    if name not in descriptor.values_by_name:
        known = ", ".join(v.name.removeprefix(_prefix(descriptor)) for v in descriptor.values)
        raise ValueError(f"{str(member)!r} is no {descriptor.name}: pass one of {known}")
    return descriptor.values_by_name[name].number


def enum_member(cls: type[_E], descriptor: EnumDescriptor, number: int) -> _E:
    """The member for a number; UNSPECIFIED for one that a newer server made up."""
    value = descriptor.values_by_number.get(number, descriptor.values[0])
    name = value.name.removeprefix(_prefix(descriptor))
    return cls(name if name in cls.__members__ else "UNSPECIFIED")


@functools.cache
def _prefix(descriptor: EnumDescriptor) -> str:
    return descriptor.values[0].name.removesuffix("UNSPECIFIED")


def decode(cls: type[_T], message: Message) -> _T:
    """Make a dataclass from a message; every field of the class is one of the message."""
    key: Any = cls  # mypy takes a class with a metaclass for something that cannot be hashed
    return cls(**{name: read(message) for name, read in _readers(key, message.DESCRIPTOR)})


@functools.cache
def _readers(cls: type[Any], descriptor: Descriptor) -> tuple[tuple[str, _Reader], ...]:
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    return tuple((n, _reader(descriptor.fields_by_name[n], hints[n])) for n in names)


def _reader(field: FieldDescriptor, hint: Any) -> _Reader:
    name = field.name
    if _is_map(field):
        return lambda message: dict(getattr(message, name))
    convert = _value_reader(field, hint)
    if field.is_repeated:
        return lambda message: tuple(convert(value) for value in getattr(message, name))
    if field.has_presence:
        return lambda m: convert(getattr(m, name)) if m.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _value_reader(field: FieldDescriptor, hint: Any) -> _Reader:
    if field.enum_type is not None:
        member_cls = next(c for c in _classes(hint) if issubclass(c, StrEnum))
        return functools.partial(enum_member, member_cls, field.enum_type)
    if field.message_type is None:
        return lambda value: value
    if field.message_type.full_name == _TIMESTAMP:
        return lambda value: value.ToDatetime(tzinfo=UTC)
    if field.message_type.full_name == _DURATION:
        return lambda value: value.ToTimedelta()
    inner = next(c for c in _classes(hint) if dataclasses.is_dataclass(c))
    return functools.partial(decode, inner)


def _classes(hint: Any) -> Iterator[type[Any]]:
    """The plain classes that a hint is built of: `tuple[Gate, ...] | None` has Gate among them."""
    if isinstance(hint, type) and not get_args(hint):
        yield hint
    for argument in get_args(hint):
        yield from _classes(argument)


def encode(source: Any, message: _M) -> _M:
    """Write the fields of a dataclass that are not None into a message, and return it."""
    for name in [field.name for field in dataclasses.fields(source)]:
        value = getattr(source, name)
        if value is not None:
            write_field(message, name, value)
    return message


def write_field(message: Message, name: str, value: Any) -> None:
    """Write one field of a message from what the dataclasses hold for it."""
    # Typed as either the pure or the compiled kind, which are alike.
    field: Any = message.DESCRIPTOR.fields_by_name[name]
    if _is_map(field):
        getattr(message, name).update(value)
    elif field.is_repeated:
        if isinstance(value, str):
            raise TypeError(f"{name} is a list of texts, not one text: {value!r}")
        getattr(message, name).extend(value)
    elif field.enum_type is not None:
        setattr(message, name, enum_number(field.enum_type, value))
    elif field.message_type is None:
        setattr(message, name, value)
    else:
        _write_message(getattr(message, name), value)


def _write_message(target: Message, value: Any) -> None:
    if isinstance(target, Timestamp):
        target.CopyFrom(timestamp(value))
    elif isinstance(target, Duration):
        target.CopyFrom(duration(value))
    else:
        # Set even if every field of it is a default: presence may carry the meaning.
        target.SetInParent()
        encode(value, target)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
