"""Page tokens: opaque to the caller, bound to the call that made them.

A token holds the key of the last item and a digest over that key, the RPC, the namespace and the
arguments that must not change from page to page. The digest keeps a token from being used for
another question; it is no secret, since a token gives no right that its caller lacks.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence

from ..domain.errors import InvalidArgument

DIGEST_BYTES = 12
MAX_TOKEN_CHARS = 1_024
INT64_MAX = 2**63 - 1

PAGE_BYTES = 3 * 1_024 * 1_024
"""A page ends early beyond this, so that it fits the 4 MiB that gRPC clients take by default."""

Key = tuple[int, str]
"""What the last item of a page is found again by."""


def _digest(scope: Sequence[str], key: bytes) -> bytes:
    text = json.dumps(list(scope), ensure_ascii=True).encode() + b"\0" + key
    return hashlib.sha256(text).digest()[:DIGEST_BYTES]


def page_token(scope: Sequence[str], key: Key) -> str:
    """The token for the page after `key`; `scope` is the RPC and all that must stay the same."""
    raw = json.dumps(list(key), separators=(",", ":")).encode()
    return _text(_digest(scope, raw) + raw)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def page_key(token: str, scope: Sequence[str]) -> Key | None:
    """The key in a token; None for the first page. Raises where the token is not of this scope."""
    if not token:
        return None
    key = _read(token, scope) if len(token) <= MAX_TOKEN_CHARS else None
    if key is None:
        raise foreign_token()
    return key


def foreign_token() -> InvalidArgument:
    """A page token that this call did not make."""
    return InvalidArgument(
        "PAGE_TOKEN_INVALID",
        "page_token was not made by this call with the same other arguments: start again "
        "without a token",
        field="page_token",
    )


def _read(token: str, scope: Sequence[str]) -> Key | None:
    """The key, or None where the token is malformed or made for another scope."""
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        digest, raw = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
        # The decoder knows more than one spelling of the same bytes; only ours was ever given out.
        made_here = _text(data) == token and digest == _digest(scope, raw)
        key = json.loads(raw) if made_here else None
    except ValueError:
        return None
    match key:
        case [int(number), str(text)] if abs(number) <= INT64_MAX:
            return number, text
    return None
