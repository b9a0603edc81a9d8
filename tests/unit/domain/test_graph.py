"""Dependency rules against their published truth table, and cycles."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring_server.domain.graph import PUBLISHED, Fate, Outcomes, evaluate, find_cycle
from mainspring_server.domain.task import Rule, Status

S, F, C, W = Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.RUNNING
R, N, T = Fate.RUN, Fate.NEVER, Fate.WAIT

# Two predecessors; columns: ALL_SUCCEEDED, ALL_DONE, ANY_SUCCEEDED, ANY_FAILED, NONE_FAILED.
TABLE = {
    (S, S): (R, R, R, N, R),
    (S, F): (N, R, R, R, N),
    (S, C): (N, R, R, N, R),
    (F, F): (N, R, N, R, N),
    (F, C): (N, R, N, R, N),
    (C, C): (N, R, N, N, R),
    (S, W): (T, T, R, T, T),
    (F, W): (N, T, T, R, N),
    (C, W): (N, T, T, T, T),
    (W, W): (T, T, T, T, T),
}


@pytest.mark.parametrize(("statuses", "fates"), TABLE.items())
def test_truth_table(statuses: tuple[Status, Status], fates: tuple[Fate, ...]) -> None:
    for order in (statuses, statuses[::-1]):
        found = tuple(evaluate(rule, Outcomes.of(order)) for rule in PUBLISHED)
        assert found == fates


PAGE = Path(__file__).parents[3] / "docs/reference/dependencies.md"
WORDS = {R: "runs", N: "cancelled", T: "waits"}


@pytest.mark.parametrize(("head", "waiting"), [("Ended as", 0), ("Ended so far", 1)])
def test_the_truth_table_on_the_page_is_complete_and_true(head: str, waiting: int) -> None:
    rules = " | ".join(f"`{rule.name}`" for rule in PUBLISHED)
    _, found, rest = PAGE.read_text("utf-8").partition(f"| {head}")
    assert found
    first, _, *lines = rest.partition("\n\n")[0].splitlines()
    assert first.endswith(f" | {rules} |")
    expected = []
    for count in range(1 - waiting, 4):
        for ends in itertools.combinations((S, F, C), count):
            name = ", ".join(end.name.lower() for end in ends) or "none yet"
            outcomes = Outcomes.of([*ends, *[None] * waiting])
            fates = (WORDS[evaluate(rule, outcomes)] for rule in PUBLISHED)
            expected.append(f"| {name} | {' | '.join(fates)} |")
    assert lines == expected


outcomes = st.lists(st.sampled_from([S, F, C, W, None]), min_size=1, max_size=6)


@given(outcomes, st.sampled_from(Rule), st.data())
def test_a_final_fate_never_changes_and_nothing_waits_for_ever(
    statuses: list[Status | None], rule: Rule, data: st.DataObject
) -> None:
    before = evaluate(rule, Outcomes.of(statuses))
    later = [
        status if status in (S, F, C) else data.draw(st.sampled_from([S, F, C]))
        for status in statuses
    ]
    after = evaluate(rule, Outcomes.of(later))
    assert after is not Fate.WAIT
    if before is not Fate.WAIT:
        assert after is before


def test_cycles_are_found_with_their_path() -> None:
    assert find_cycle({"a": ["a"]}) == ["a", "a"]
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert find_cycle({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}) is None
    assert find_cycle({"a": ["elsewhere"]}) is None


def test_a_long_chain_is_no_problem() -> None:
    chain = {str(n): [str(n + 1)] for n in range(10_000)}
    assert find_cycle(chain) is None
    chain["10000"] = ["0"]
    found = find_cycle(chain)
    assert found is not None
    assert len(found) == 10_002


@given(st.integers(1, 8), st.data())
def test_a_graph_that_only_points_back_has_no_cycle(size: int, data: st.DataObject) -> None:
    edges = {
        str(n): [str(m) for m in data.draw(st.sets(st.integers(0, n - 1)) if n else st.just(set()))]
        for n in range(size)
    }
    assert find_cycle(edges) is None
    for first, second in itertools.combinations(edges, 2):
        if first in edges[second]:
            edges[first] = [second]
            assert find_cycle(edges) is not None
            break
