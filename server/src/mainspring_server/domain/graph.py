"""When a task that waits for others may run, when it never can, and what is no graph at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from .task import Rule, Status

PUBLISHED = tuple(rule for rule in Rule if rule is not Rule.ALL_DONE_IN_TIME)
"""The rules that a caller can choose, in the order of the published truth table."""


class Fate(Enum):
    """What a rule says now. RUN and NEVER are final: no later outcome changes them."""

    WAIT = "wait"
    RUN = "run"
    NEVER = "never"


class Outcomes(NamedTuple):
    """How the predecessors of one task stand; `waiting` are not terminal yet."""

    waiting: int
    succeeded: int
    failed: int
    cancelled: int

    @classmethod
    def of(cls, statuses: Iterable[Status | None]) -> Outcomes:
        """Counted from statuses; None or any live state waits."""
        counts = {Status.SUCCEEDED: 0, Status.FAILED: 0, Status.CANCELLED: 0}
        waiting = 0
        for status in statuses:
            if status in counts:
                counts[status] += 1
            else:
                waiting += 1
        return cls(waiting, *counts.values())


def evaluate(rule: Rule, outcomes: Outcomes) -> Fate:
    """The published truth table."""
    waiting, succeeded, failed, cancelled = outcomes
    if rule is Rule.ALL_SUCCEEDED:
        return _fate(never=failed + cancelled > 0, run=waiting == 0)
    if rule in (Rule.ALL_DONE, Rule.ALL_DONE_IN_TIME):
        return _fate(never=False, run=waiting == 0)
    if rule is Rule.ANY_SUCCEEDED:
        return _fate(never=succeeded == 0 and waiting == 0, run=succeeded > 0)
    if rule is Rule.ANY_FAILED:
        return _fate(never=failed == 0 and waiting == 0, run=failed > 0)
    return _fate(never=failed > 0, run=waiting == 0)


def _fate(*, never: bool, run: bool) -> Fate:
    if never:
        return Fate.NEVER
    return Fate.RUN if run else Fate.WAIT


def find_cycle(predecessors: Mapping[str, Sequence[str]]) -> list[str] | None:
    """A cycle as a path that ends where it began, or None. Names that are no key are leaves.

    Iterative: a chain may be as long as a batch.
    """
    state: dict[str, int] = {}  # 1 on the path, 2 done
    for root in predecessors:
        if root in state:
            continue
        path, stack = [root], [iter(predecessors[root])]
        state[root] = 1
        while stack:
            following = next(stack[-1], None)
            if following is None:
                state[path.pop()] = 2
                stack.pop()
            elif state.get(following) == 1:
                return [*path[path.index(following) :], following]
            elif following not in state and following in predecessors:
                state[following] = 1
                path.append(following)
                stack.append(iter(predecessors[following]))
    return None
