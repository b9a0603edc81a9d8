"""Topic names: one topic per lane and priority band.

Kafka allows `[A-Za-z0-9._-]` and 249 characters, and treats `.` and `_` as the same character in
places, so names that differ only there must not both exist. Here everything but letters, digits
and `-` becomes `_` and two hex digits: no dot ever appears, and every `_` starts an escape, so two
lanes never share or nearly share a name. A part that would be too long is replaced by its digest,
marked `_h`, which no escape begins with.
"""

from __future__ import annotations

import hashlib
import string

BANDS = 3
PREFIX = "mainspring"

_PLAIN = frozenset(string.ascii_letters + string.digits + "-")
_NAMESPACE_MAX = 60
_QUEUE_MAX = 150
_SLASH = "_2f"


def _escape(text: str, limit: int) -> str:
    parts = [
        letter if letter in _PLAIN else "".join(f"_{byte:02x}" for byte in letter.encode())
        for letter in text
    ]
    escaped = "".join(parts)
    if len(escaped) <= limit:
        return escaped
    return "_h" + hashlib.sha256(text.encode()).hexdigest()[:40]


def namespace_prefix(namespace: str, prefix: str = PREFIX) -> str:
    """What the names of all topics of a namespace begin with, and no other's."""
    return f"{prefix}-{_escape(namespace, _NAMESPACE_MAX)}{_SLASH}"


def lane_key(lane: str) -> str:
    """The lane in the alphabet of topic names; lanes and keys are one to one."""
    namespace, _, queue = lane.partition("/")
    return f"{_escape(namespace, _NAMESPACE_MAX)}{_SLASH}{_escape(queue, _QUEUE_MAX)}"


def topic_name(lane: str, band: int, prefix: str = PREFIX) -> str:
    """The topic of a lane and band."""
    return f"{prefix}-{lane_key(lane)}-{band}"
