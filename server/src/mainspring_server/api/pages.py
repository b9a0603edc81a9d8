"""Page tokens: opaque to the caller, bound to the call that made them.

A token holds the key of the last item and a digest over that key, the RPC, the namespace and the
arguments that must not change from page to page. The digest keeps a token from being used for
another question; it is no secret, since a token gives no right that its caller lacks.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence

from ..domain.errors import InvalidArgument

DIGEST_BYTES = 12
MAX_TOKEN_CHARS = 1_024

PAGE_BYTES = 3 * 1_024 * 1_024
"""A page ends early beyond this, so that it fits the 4 MiB that gRPC clients take by default."""

Key = Sequence[int | str]


def _digest(scope: Sequence[str], key: bytes) -> bytes:
    text = json.dumps(list(scope), ensure_ascii=True).encode() + b"\0" + key
    return hashlib.sha256(text).digest()[:DIGEST_BYTES]


def page_token(scope: Sequence[str], key: Key) -> str:
    """The token for the page after `key`; `scope` is the RPC and all that must stay the same."""
    raw = json.dumps(list(key), separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_digest(scope, raw) + raw).rstrip(b"=").decode()


def page_key(token: str, scope: Sequence[str]) -> list[int | str] | None:
    """The key in a token; None for the first page. Raises where the token is not of this scope."""
    if not token:
        return None
    try:
        if len(token) > MAX_TOKEN_CHARS:
            raise ValueError("too long")
        padding = "=" * (-len(token) % 4)
        data = base64.b64decode(token + padding, altchars=b"-_", validate=True)
        digest, raw = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
        if digest != _digest(scope, raw):
            raise ValueError("another scope")
        key: list[int | str] = json.loads(raw)
    except (ValueError, binascii.Error):
        raise InvalidArgument(
            "PAGE_TOKEN_INVALID",
            "page_token was not made by this call with the same other arguments: start again "
            "without a token",
            field="page_token",
        ) from None
    return key
