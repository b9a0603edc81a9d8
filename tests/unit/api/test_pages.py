"""Page tokens are bound to the call that made them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainspring_server.api.pages import page_key, page_token
from mainspring_server.domain.errors import InvalidArgument

SCOPE = ("List", "default", "status = FAILED", "create_time")
KEYS = st.tuples(st.integers(-(2**62), 2**62), st.text(max_size=40))


@given(KEYS)
def test_there_and_back(key: tuple[int, str]) -> None:
    assert page_key(page_token(SCOPE, key), SCOPE) == key


def test_no_token_is_the_first_page() -> None:
    assert page_key("", SCOPE) is None


@given(st.text(min_size=1, max_size=2_000))
def test_any_text_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        page_key(token, SCOPE)
    assert (caught.value.reason, caught.value.field) == ("PAGE_TOKEN_INVALID", "page_token")


@pytest.mark.parametrize("place", range(len(SCOPE)))
def test_a_token_of_another_question_is_refused(place: int) -> None:
    other = list(SCOPE)
    other[place] += "x"
    with pytest.raises(InvalidArgument):
        page_key(page_token(SCOPE, (1, "a")), other)


@example(0, 208)  # base64's other spelling of the same bits
@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_token_is_refused(at: int, change: int) -> None:
    token = page_token(SCOPE, (1_700_000_000_000, "0190f3c47e1a7c3e9b603f1d2a9c5b77"))
    at %= len(token)
    changed = token[:at] + chr((ord(token[at]) + change) % 256) + token[at + 1 :]
    if changed != token:
        with pytest.raises(InvalidArgument):
            page_key(changed, SCOPE)
