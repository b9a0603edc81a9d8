"""The filter language: what it reads, what it refuses and where, and that nothing else happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring_server.admission.limits import Limits
from mainspring_server.api.filter import parse_filter
from mainspring_server.domain.errors import InvalidArgument
from mainspring_server.domain.task import Status
from mainspring_server.ids import mint, text_of
from mainspring_server.store.port import All, Any, Field, Not

ID = mint(1_700_000_000_000, 1)[0]
FAILED = Field("status", "=", Status.FAILED)
QUEUE = Field("queue", "=", "images")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", All(())),
        (" \t\n ", All(())),
        ("status = FAILED", FAILED),
        ("status=TASK_STATUS_FAILED", FAILED),
        ("((status = FAILED))", FAILED),
        ("status = FAILED queue = images", All((FAILED, QUEUE))),
        ("status = FAILED AND queue = 'images'", All((FAILED, QUEUE))),
        ("status = FAILED OR queue = images", Any((FAILED, QUEUE))),
        (
            "priority < 3 AND status = FAILED OR queue = images",
            All((Field("priority", "<", 3), Any((FAILED, QUEUE)))),
        ),
        ("NOT status = FAILED", Not(FAILED)),
        ("NOT (status = FAILED queue = images)", Not(All((FAILED, QUEUE)))),
        ("labels.team = core", Field("labels.team", "=", "core")),
        ('labels."a b/c" != "x\\"y"', Field("labels.a b/c", "!=", 'x"y')),
        ('labels.note = ""', Field("labels.note", "=", "")),
        ("attempts >= 2", Field("attempts", ">=", 2)),
        ("worker_id = 'OR'", Field("worker_id", "=", "OR")),
        (f"retry_of = {text_of(ID)}", Field("retry_of", "=", ID)),
        (f"schedule_id != {text_of(ID)}", Field("schedule_id", "!=", ID)),
        (f"graph_id = {text_of(ID)}", Field("graph_id", "=", ID)),
        ('due_time < "2026-03-01T08:00:00Z"', Field("due_time", "<", 1_772_352_000_000)),
        ('due_time < "2026-03-01T09:00:00+01:00"', Field("due_time", "<", 1_772_352_000_000)),
        (
            'create_time >= "2026-03-01T08:00:00.0005Z"',
            Field("create_time", ">=", 1_772_352_000_001),
        ),
        ('create_time > "2026-03-01T08:00:00.0005Z"', Field("create_time", ">", 1_772_352_000_000)),
    ],
)
def test_filters(text: str, expected: object) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("size = 3", 1),
        ("queue = a AND payload = 3", 15),
        ("labels = x", 1),
        ("queue.name = x", 1),
        ("status", 7),
        ("status =", 9),
        ("status : FAILED", 8),
        ("status == FAILED", 9),
        ("status = DONE", 10),
        ("status < FAILED", 8),
        ("labels.a > b", 10),
        ("priority = high", 12),
        ("priority = 99999999999999999999", 12),
        ("retry_of = 1", 12),
        ('due_time = "yesterday"', 12),
        ('due_time = "2026-03-01T08:00:00"', 12),
        ("due_time = 2026-03-01", 12),
        ("(status = FAILED", 17),
        ("status = FAILED)", 16),
        ('queue = "open', 9),
        ("AND queue = a", 5),
        ("queue = a OR", 13),
        ("NOT NOT queue = a", 9),
        ("queue = a; queue = b", 10),
        ("FAILED", 7),
    ],
)
def test_refusals_say_where(text: str, position: int) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_filter(text)
    error = caught.value
    assert (error.reason, error.field) == ("FILTER_INVALID", "filter")
    assert error.metadata["position"] == str(position)


def test_an_unknown_field_says_what_is_allowed() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_filter("colour = red")
    assert "task_type" in caught.value.metadata["allowed"]


def test_length_and_terms_at_their_bounds() -> None:
    longest = "queue = a" + " " * (4_096 - 9)
    assert parse_filter(longest) == Field("queue", "=", "a")
    with pytest.raises(InvalidArgument) as caught:
        parse_filter(longest + " ")
    assert (caught.value.reason, caught.value.field) == ("FIELD_INVALID", "filter")
    assert isinstance(parse_filter(" ".join(["queue = a"] * 100)), All)
    with pytest.raises(InvalidArgument) as caught:
        parse_filter(" ".join(["queue = a"] * 101))
    assert caught.value.reason == "FILTER_INVALID"
    with pytest.raises(InvalidArgument):
        parse_filter("queue = a queue = b", Limits(filter_terms=1))


def test_nul_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_filter("queue = 'a\0'")
    assert (caught.value.reason, caught.value.field) == ("FIELD_INVALID", "filter")


def test_depth_costs_no_stack() -> None:
    assert parse_filter("(" * 2_000 + "queue = a" + ")" * 2_000) == Field("queue", "=", "a")
    deep = "NOT (" * 99 + "queue = a" + ")" * 99
    assert isinstance(parse_filter(deep), Not)
    with pytest.raises(InvalidArgument):
        parse_filter("NOT (" + deep + ")")


WORDS = st.sampled_from(
    [
        *("status", "queue", "labels.a", "due_time", "graph_id", "nope", "AND", "OR", "NOT"),
        *("=", "!=", "<", ">=", ":", "(", ")", '"', "'", "\\", "."),
        *("FAILED", "a", '"b c"', "7", "-1", text_of(ID)),
    ]
)


@given(st.lists(WORDS, max_size=40).map(" ".join) | st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    refusal = None
    try:
        parse_filter(text)
    except InvalidArgument as error:
        refusal = error
    if refusal is not None:
        assert refusal.reason in ("FILTER_INVALID", "FIELD_INVALID")
        assert refusal.field == "filter"
