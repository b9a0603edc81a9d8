"""Runs one expression over the clock changes of every zone and says how the two calendars differ."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random

from cronsim import CronSim, CronSimError

from mainspring_server.domain.calendar import CalendarSpec, DstGap, DstOverlap, parse
from mainspring_server.domain.errors import InvalidArgument

from .expressions import generate
from .referee import ZONES, Rules, boundaries, cronsim_ticks, zone

TICKS = 12
LEAD = timedelta(hours=3)


@dataclass
class Report:
    """What a run found: windows compared, strayings of cronsim by kind, and true differences."""

    expressions: int = 0
    windows: int = 0
    ticks: int = 0
    strayed: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        self.expressions += other.expressions
        self.windows += other.windows
        self.ticks += other.ticks
        self.strayed.update(other.strayed)
        for kind, example in other.examples.items():
            self.examples.setdefault(kind, example)
        self.differences += other.differences


def expression_of(seed: int, index: int) -> str:
    """The index-th expression of a seed that cronsim reads and that matches now and then."""
    random = Random(f"{seed}/{index}")
    while True:
        expression = generate(random)
        try:
            next(CronSim(expression, datetime(2017, 1, 1, tzinfo=UTC)))
        except (CronSimError, StopIteration):
            refused(expression)
        else:
            return expression


def refused(expression: str) -> None:
    """What cronsim refuses, or never finds, must be refused here too."""
    try:
        parse(CalendarSpec(expression))
    except InvalidArgument:
        return
    raise AssertionError(f"{expression!r} is accepted, cronsim refuses it or never fires")


def compare(expression: str, report: Report, *, choose: Random | None = None) -> None:
    """Compare in every zone at every clock change, or at one that `choose` draws."""
    report.expressions += 1
    for name in ZONES:
        changes = boundaries(name)
        picked = changes if choose is None else (choose.choice(changes),)
        known: tuple[datetime, list[int]] | None = None
        for change in picked:
            after = change.at - LEAD
            # A sparse expression: the ticks found before are still the next ones.
            if known is None or known[0].timestamp() * 1_000 >= known[1][0] - 1_000:
                pass
            if known is not None and after.timestamp() * 1_000 < known[1][0]:
                expected = known[1]
            else:
                expected = list(islice(cronsim_ticks(expression, zone(name), after), TICKS))
            known = (after, expected)
            _window(expression, name, after, expected, report)


def _window(
    expression: str, name: str, after: datetime, expected: list[int], report: Report
) -> None:
    report.windows += 1
    report.ticks += len(expected)
    fields = expression.split()
    star = fields[-5].startswith("*") or fields[-4].startswith("*")
    # cronsim runs every expression with seconds through real time; here that is a policy.
    seconds = len(fields) == 6
    spec = CalendarSpec(
        expression,
        name,
        dst_gap=DstGap.SKIP if seconds else DstGap.RUN_AFTER_GAP,
        dst_overlap=DstOverlap.BOTH if seconds else DstOverlap.FIRST,
    )
    calendar = parse(spec)
    start = int(after.timestamp()) * 1_000
    if calendar.between(start, expected[-1], TICKS + 1) == expected:
        return
    found = calendar.between(start, expected[-1], 10_000)
    until = datetime.fromtimestamp(expected[-1] / 1_000, UTC)
    truth = Rules.of(expression, zone(name)).ticks(after, until, real_time=star or seconds)
    where = f"{expression!r} in {name} after {after.isoformat()}"
    if found != truth:
        report.differences.append(f"{where}: {found} instead of {truth}, cronsim {expected}")
        return
    kind = _kind(truth, expected)
    report.strayed[kind] += 1
    report.examples.setdefault(kind, where)


def _kind(truth: list[int], expected: list[int]) -> str:
    missing, extra = set(truth) - set(expected), set(expected) - set(truth)
    if missing and extra:
        return "cronsim shifts a time"
    return "cronsim misses a time" if missing else "cronsim adds a time"
