"""Task ids: UUIDv7, minted in batches."""

from __future__ import annotations

import os
import re

from .domain.errors import InvalidArgument

_VARIANT = 0x80
_CANONICAL = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_EXAMPLE = "0190f3c4-7e1a-7c3e-9b60-3f1d2a9c5b77"


def mint(now: int, count: int) -> list[bytes]:
    """`count` new ids whose time is `now` ms; the last bytes are random, so they also spread shards."""
    stamp = now.to_bytes(6, "big")
    noise = os.urandom(10 * count)
    ids = []
    for start in range(0, 10 * count, 10):
        part = bytearray(noise[start : start + 10])
        part[0] = 0x70 | (part[0] & 0x0F)
        part[2] = _VARIANT | (part[2] & 0x3F)
        ids.append(stamp + bytes(part))
    return ids


def text_of(task_id: bytes) -> str:
    """The lower-case text form."""
    h = task_id.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def parse(text: str, field: str) -> bytes:
    """The 16 bytes of a canonical lower-case UUIDv7, or InvalidArgument naming the field."""
    if _CANONICAL.fullmatch(text) is not None:
        return bytes.fromhex(text.replace("-", ""))
    shown = text if len(text) <= 64 else text[:64] + "…"
    raise InvalidArgument(
        "TASK_ID_INVALID",
        f"{field} must be a lower-case UUIDv7 such as {_EXAMPLE}, not {shown!r}",
        field=field,
    )
