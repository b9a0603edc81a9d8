"""Runs one expression over the clock changes of every zone and says how the two calendars differ."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from typing import NamedTuple

from cronsim import CronSim, CronSimError

from mainspring_server.domain.calendar import CalendarSpec, DstGap, DstOverlap, parse
from mainspring_server.domain.errors import InvalidArgument

from .expressions import generate
from .reasons import ADDS, MISSES, SHIFTS, STUCK, reason_for
from .referee import ZONES, Boundary, Rules, Stuck, boundaries, cronsim_ticks, zone

TICKS = 12
LEAD = timedelta(hours=3)
NEVER = 1 << 60
NEIGHBOURHOOD = timedelta(days=3)


@dataclass
class Report:
    """What a run found: windows compared, strayings of cronsim by reason, and true differences."""

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
        search: Search | None = None
        for change in changes if choose is None else (choose.choice(changes),):
            after = change.at - LEAD
            # The first tick after an earlier change may lie beyond this one too.
            if search is None or milliseconds(after) >= search.ticks[0] or search.ticks[0] == NEVER:
                search = _first_ticks(expression, name, after)
            _window(expression, name, after, search, report)


def milliseconds(instant: datetime) -> int:
    return int(instant.timestamp()) * 1_000


class Search(NamedTuple):
    """What cronsim found from a place on; NEVER is last where it never came back."""

    after: datetime
    ticks: list[int]


def _first_ticks(expression: str, name: str, after: datetime) -> Search:
    """cronsim's next ticks: at most TICKS, of those beyond the neighbourhood only the first."""
    horizon = milliseconds(after + NEIGHBOURHOOD)
    found: list[int] = []
    try:
        for tick in islice(cronsim_ticks(expression, zone(name), after), TICKS):
            found.append(tick)
            if tick > horizon:
                break
    except Stuck:
        found.append(NEVER)
    return Search(after, found)


def _window(expression: str, name: str, after: datetime, search: Search, report: Report) -> None:
    report.windows += 1
    expected = search.ticks
    report.ticks += len(expected)
    fields = expression.split()
    # cronsim runs every expression with seconds through real time; here that is a policy.
    seconds = len(fields) == 6
    real_time = seconds or fields[-5].startswith("*") or fields[-4].startswith("*")
    spec = CalendarSpec(
        expression,
        name,
        dst_gap=DstGap.SKIP if seconds else DstGap.RUN_AFTER_GAP,
        dst_overlap=DstOverlap.BOTH if seconds else DstOverlap.FIRST,
    )
    found = parse(spec).between(milliseconds(after), expected[-1], TICKS + 1)
    if found == expected:
        return
    # Both word for word, from a little before the first tick that only one of them has.
    first = min(set(found) ^ set(expected))
    start = datetime.fromtimestamp(first / 1_000, UTC) - LEAD
    until = start + NEIGHBOURHOOD
    truth = Rules.of(expression, zone(name)).ticks(start, until, real_time=real_time)
    ours = parse(spec).between(milliseconds(start), milliseconds(until), 1_000_000)
    where = f"{expression!r} in {name} after {start.isoformat()}"
    if ours != truth:
        report.differences.append(f"{where}: {ours} instead of {truth}, cronsim {expected}")
        return
    effect = _effect(
        [tick for tick in truth if tick <= expected[-1]], expected, milliseconds(start)
    )
    # cronsim was right until its last common tick, and went astray on the way from there.
    common = [tick for tick in expected if tick < first]
    change = _last_change(name, max([milliseconds(search.after), *common]), first)
    reason = reason_for(change, effect, real_time=real_time)
    if reason is None:
        report.differences.append(f"{where}: cronsim {effect} for no known reason: {expected}")
        return
    report.strayed[f"cronsim {effect}: {reason}"] += 1
    report.examples.setdefault(f"cronsim {effect}: {reason}", where)


def _last_change(name: str, after: int, until: int) -> Boundary | None:
    passed = [change for change in boundaries(name) if after < milliseconds(change.at) <= until]
    return passed[-1] if passed else None


def _effect(truth: list[int], expected: list[int], start: int) -> str:
    expected = [tick for tick in expected if tick > start]
    if NEVER in expected:
        return STUCK
    missing, extra = set(truth) - set(expected), set(expected) - set(truth)
    if missing and extra:
        return SHIFTS
    return MISSES if missing else ADDS
