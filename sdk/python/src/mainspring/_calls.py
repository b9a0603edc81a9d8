"""A call as a value: what is asked, and how the answer is read. Sync and async clients run it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One unary call."""

    rpc: str
    """ "Service/Method", a key of `retry.RULES`."""
    request: Message
    """What is sent."""
    decode: Callable[[Any], T]
    """Reads the reply."""


@dataclass(frozen=True, slots=True)
class Pages(Generic[T]):
    """A list that comes in pages."""

    rpc: str
    """ "Service/Method", a key of `retry.RULES`."""
    request: Any
    """What is sent for the first page; it has a `page_token`."""
    items: Callable[[Any], Iterable[T]]
    """Reads the items of a page."""

    def call(self, page_token: str) -> "Call[tuple[list[T], str]]":
        """The call for one page; it answers the items and the token of the next page, or ""."""
        request = type(self.request)()
        request.CopyFrom(self.request)
        request.page_token = page_token
        return Call(self.rpc, request, self._page)

    def _page(self, response: Any) -> tuple[list[T], str]:
        return list(self.items(response)), response.next_page_token
