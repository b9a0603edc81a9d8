"""croniter as a second opinion on the naive times alone: no zone, and only where both agree on rules."""

from datetime import UTC, datetime
from random import Random

from croniter import croniter

from mainspring_server.domain.calendar import CalendarSpec, parse

from .comparison import expression_of


def comparable(expression: str) -> bool:
    """Whether croniter means the same: it counts */2 as restricted, and writes 5L and LW otherwise."""
    fields = expression.split()
    day, weekday = fields[-3], fields[-1]
    other_dialect = "L" in day or "L" in weekday
    starred_step = day.startswith("*/") or weekday.startswith("*/")
    # To croniter 0-7 has Sunday once, so a range that steps over 7 lands elsewhere.
    return not (other_dialect or starred_step or "7" in weekday or "/" in weekday)


def test_same_naive_times_as_croniter() -> None:
    compared = 0
    for index in range(500):
        expression = expression_of(7, index)
        if not comparable(expression):
            continue
        random = Random(index)
        start = datetime(random.randint(1975, 2095), random.randint(1, 12), 1, tzinfo=UTC)
        theirs = croniter(expression, start, second_at_beginning=True)
        expected = [int(theirs.get_next(float)) * 1_000 for _ in range(5)]
        calendar = parse(CalendarSpec(expression))
        after = int(start.timestamp()) * 1_000
        assert calendar.between(after, expected[-1], 6) == expected, expression
        compared += 1
    assert compared > 250
