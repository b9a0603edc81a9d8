"""croniter as a second opinion on the naive times alone: no zone, and each expression in its dialect."""

from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import merge
from random import Random

import pytest
from croniter import croniter

from mainspring_server.domain.calendar import CalendarSpec, parse

from .comparison import expression_of
from .expressions import WEEKDAYS

PARTS = 5
COUNT = 500


def in_croniters_dialect(expression: str) -> list[str]:
    """The expressions whose times together are those of this one; none where croniter lacks a word.

    The differences, each a rule:

    * it reads no LW;
    * it writes 5L as L5;
    * its Sunday is 0 alone, so that a range or a step over 0-7 means something else there;
    * beside a restricted day of month, n#k narrows the days down instead of adding to them: such
      an expression is the union of two.
    """
    *clock, month_day, month, week_day = expression.upper().split()
    if "LW" in month_day:
        return []
    week_day = ",".join(_weekdays(week_day))
    pairs = [(month_day, week_day)]
    counted = "#" in week_day or "L" in week_day
    if counted and not month_day.startswith("*") and not week_day.startswith("*"):
        pairs = [(month_day, "*"), ("*", week_day)]
    return [" ".join((*clock, day, month, weekday)) for day, weekday in pairs]


def _weekdays(text: str) -> Iterator[str]:
    for name in WEEKDAYS:
        text = text.replace(name, str(WEEKDAYS.index(name)))
    for term in text.split(","):
        if "#" in term:
            yield f"{int(term[0]) % 7}{term[1:]}"
        elif term.endswith("L"):
            yield f"L{int(term[0]) % 7}"
        elif term.startswith("*"):
            yield term
        else:
            base, _, step = term.partition("/")
            first, _, last = base.partition("-")
            end = int(last) if last else 7 if step else int(first)
            yield from (str(day % 7) for day in range(int(first), end + 1, int(step or 1)))


def naive_times(expression: str, start: datetime) -> Iterator[int]:
    """croniter's times in milliseconds, each once, in order."""
    # Its name for Debian's rule: a day field that begins with `*` narrows the other down.
    options = {"second_at_beginning": True, "implement_cron_bug": True}
    sources = [croniter(text, start, **options) for text in in_croniters_dialect(expression)]
    last = None
    for second in merge(*(source.all_next(float) for source in sources)):
        if second != last:
            yield int(second) * 1_000
            last = second


@pytest.mark.parametrize("part", range(PARTS))
def test_same_naive_times_as_croniter(part: int) -> None:
    compared = 0
    for index in range(part, COUNT, PARTS):
        expression = expression_of(7, index)
        if not in_croniters_dialect(expression):
            continue
        random = Random(index)
        start = datetime(random.randint(1975, 2095), random.randint(1, 12), 1, tzinfo=UTC)
        theirs = naive_times(expression, start)
        expected = [next(theirs) for _ in range(5)]
        calendar = parse(CalendarSpec(expression))
        after = int(start.timestamp()) * 1_000
        assert calendar.between(after, expected[-1], 6) == expected, expression
        compared += 1
    assert compared > COUNT / PARTS * 0.9
