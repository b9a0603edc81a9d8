"""What a schedule is made of as bytes: calendar, policy and template, in one versioned document.

The rest of a schedule changes with every visit and has columns of its own; this part changes when a
caller changes it. JSON, so that a person can read a row; what has its default is left out, so that
a plain schedule is short. Bytes travel in base64.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, NamedTuple

from ..domain.calendar import CalendarSpec, DstGap, DstOverlap
from ..domain.errors import FailedPrecondition
from ..domain.retry import RetryPolicy
from ..domain.schedule import CatchUp, Overlap, Policy, TemplateTask
from ..domain.task import Payload, PayloadKind, Rule, Timeouts

VERSION = 1


class Definition(NamedTuple):
    """The part of a schedule that only callers change."""

    spec: CalendarSpec
    policy: Policy
    template: tuple[TemplateTask, ...]


def encode(definition: Definition, schedule_id: bytes) -> bytes:
    """The document; the schedule's own id is left out of it."""
    spec = _pack(definition.spec)
    if definition.spec.schedule_id == schedule_id:
        spec["schedule_id"] = None
    document = {
        "v": VERSION,
        "spec": spec,
        "policy": _pack(definition.policy),
        "template": [_pack(task) for task in definition.template],
    }
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def decode(document: bytes, schedule_id: bytes) -> Definition:
    """What `encode` wrote.

    Raises:
        FailedPrecondition: a newer release wrote it, or it is damaged.
    """
    try:
        found = _read(document)
        spec = _unpack(CalendarSpec, found["spec"], schedule_id=schedule_id)
        template = tuple(_unpack(TemplateTask, task) for task in found["template"])
        return Definition(spec, _unpack(Policy, found["policy"]), template)
    except (ValueError, KeyError, TypeError) as error:
        raise FailedPrecondition(
            "STORE_UNREADABLE", f"schedule {schedule_id.hex()} cannot be read: {error}"
        )


def _read(document: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document)
    if found["v"] != VERSION:
        raise ValueError(f"its layout is {found['v']}, this release reads {VERSION}")
    return found


_DEFAULTS: dict[type, Mapping[str, Any]] = {
    kind: {field.name: field.default for field in fields(kind)}
    for kind in (CalendarSpec, Policy, TemplateTask, RetryPolicy, Timeouts)
}


def _pack(item: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    packed = {}
    for name, default in _DEFAULTS[type(item)].items():
        value = getattr(item, name)
        if value != default:
            packed[name] = _plain(value)
    return packed


def _plain(value: Any) -> Any:
    if isinstance(value, Payload):
        return [int(value.kind), b64encode(value.body).decode(), value.metadata]
    if isinstance(value, RetryPolicy | Timeouts):
        return _pack(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return list(value) if isinstance(value, tuple) else value


def _unpack(kind: type[Any], packed: dict[str, Any], **absent: object) -> Any:
    """A dataclass from its packed fields; `absent` replaces values that are null."""
    values = dict(packed)
    for name, value in packed.items():
        if value is None and name in absent:
            values[name] = absent[name]
        elif name in _READ and value is not None:
            values[name] = _READ[name](value)
    return kind(**values)


def _payload(value: list[Any]) -> Payload:
    return Payload(PayloadKind(value[0]), b64decode(value[1]), value[2])


_READ: dict[str, Callable[[Any], Any]] = {
    "schedule_id": b64decode,
    "dst_gap": DstGap,
    "dst_overlap": DstOverlap,
    "exclusions": tuple,
    "overlap": Overlap,
    "catch_up": CatchUp,
    "payload": _payload,
    "retry": lambda value: _unpack(RetryPolicy, value),
    "timeouts": lambda value: _unpack(Timeouts, value),
    "predecessors": tuple,
    "rule": Rule,
}
"""By field name: how a packed value is read where JSON has no type for it."""
