"""Task ids: UUIDv7, minted in batches."""

from __future__ import annotations

import os
import uuid

from .domain.errors import InvalidArgument

_VARIANT = 0x80


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
    if len(text) == 36 and text[8] == text[13] == text[18] == text[23] == "-":
        digits = text.replace("-", "")
        if len(digits) == 32 and digits[12] == "7" and digits == digits.lower():
            try:
                parsed = uuid.UUID(digits).bytes
            except ValueError:
                parsed = b""
            if parsed and parsed[8] >> 6 == 2:
                return parsed
    shown = text if len(text) <= 64 else text[:64] + "…"
    raise InvalidArgument(
        "TASK_ID_INVALID",
        f"{field} must be a lower-case UUIDv7 such as 0190f3c4-7e1a-7c3e-9b60-3f1d2a9c5b77, not {shown!r}",
        field=field,
    )
