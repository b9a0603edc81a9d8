"""What cronsim says, and what the rules say word for word, minute by minute, where it strays."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib import resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim

MINUTE = timedelta(minutes=1)
# Of cronsim's clock in one search; an honest one takes hundreds.
MOVES = 20_000


class Boundary(NamedTuple):
    """A clock change: the last instant of the old offset's reign is just before `at`.

    `local` is what the clock shows at that instant, after the shift.
    """

    at: datetime
    shift: timedelta
    local: datetime


# Per zone the first of ten years, chosen where its clock changes are interesting.
ZONES = {
    "America/New_York": 2017,
    "Europe/London": 2017,
    "Europe/Helsinki": 2017,
    "Europe/Dublin": 2017,  # winter time is the exception there
    "Australia/Lord_Howe": 2017,  # by half an hour
    "America/Sao_Paulo": 2009,  # at midnight
    "Africa/Casablanca": 2014,  # four times a year, then winter time in Ramadan
    "Pacific/Apia": 2009,  # a day left out
    "America/Havana": 2015,  # repeats the hour after midnight
    "America/Santiago": 2015,  # repeats the hour before midnight
    "Asia/Tehran": 2013,  # offset of half an hour, change at midnight
    "America/St_Johns": 2002,  # a minute past midnight
}
YEARS = 10


@cache
def zone(name: str) -> ZoneInfo:
    """The zone as the tzdata package has it, whatever the machine has."""
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@cache
def boundaries(name: str) -> tuple[Boundary, ...]:
    """The clock changes of the zone's ten years, found with zoneinfo alone."""
    info = zone(name)
    start = datetime(ZONES[name], 1, 1, tzinfo=UTC)
    end = start.replace(year=start.year + YEARS)
    found = []
    while start < end:
        until = start + timedelta(days=1)
        low, high = start, until
        if _offset(info, low) != _offset(info, high):
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) // 2
                middle = middle.replace(microsecond=0)
                if _offset(info, middle) == _offset(info, low):
                    low = middle
                else:
                    high = middle
            local = high.astimezone(info).replace(tzinfo=None)
            found.append(Boundary(high, _offset(info, high) - _offset(info, low), local))
        start = until
    return tuple(found)


def _offset(info: ZoneInfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(info).utcoffset()
    assert offset is not None
    return offset


class Stuck(Exception):
    """cronsim moves its clock again and again and comes to no new time."""


class BoundedCronSim(CronSim):
    """cronsim, with an end to each search: it loops for ever at some clock changes."""

    moves = 0

    def tick(self, seconds: int = 1) -> None:
        self._count()
        super().tick(seconds)

    def advance_day(self) -> bool:
        self._count()
        return super().advance_day()

    def _count(self) -> None:
        self.moves += 1
        if self.moves > MOVES:
            raise Stuck

    def __next__(self) -> datetime:
        self.moves = 0
        return super().__next__()


def cronsim_ticks(expression: str, info: ZoneInfo, after: datetime) -> Iterator[int]:
    """Instants in milliseconds, in order.

    Raises:
        Stuck: cronsim finds no next one, or the same once more and so for ever.
    """
    last = 0
    for tick in BoundedCronSim(expression, after.astimezone(info)):
        instant = int(tick.timestamp()) * 1_000
        if instant <= last:
            raise Stuck
        yield instant
        last = instant


class Rules(NamedTuple):
    """The fields of an expression as cronsim reads them, applied literally."""

    sim: CronSim
    info: ZoneInfo

    @staticmethod
    def of(expression: str, info: ZoneInfo) -> "Rules":
        return Rules(CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC)), info)

    def matches(self, local: datetime) -> bool:
        """Whether the minute of a local time matches."""
        sim = self.sim
        return (
            local.minute in sim.minutes
            and local.hour in sim.hours
            and local.month in sim.months
            and sim.match_day(date(local.year, local.month, local.day))
        )

    def ticks(self, after: datetime, until: datetime, *, real_time: bool) -> list[int]:
        """Every instant in (after, until] that the rules name."""
        found = set()
        minute = after.replace(second=0)
        while minute <= until:
            local = minute.astimezone(self.info)
            if self.matches(local) and (real_time or not local.fold):
                found.update(minute + timedelta(seconds=second) for second in self.sim.seconds)
            shift = _offset(self.info, minute) - _offset(self.info, minute - MINUTE)
            if shift > timedelta(0) and not real_time and self._in_gap(local, shift):
                found.add(minute)
            minute += MINUTE
        return sorted(int(at.timestamp()) * 1_000 for at in found if after < at <= until)

    def _in_gap(self, local: datetime, shift: timedelta) -> bool:
        naive = local.replace(tzinfo=None) - shift
        end = local.replace(tzinfo=None)
        while naive < end:
            if self.matches(naive):
                return True
            naive += MINUTE
        return False
