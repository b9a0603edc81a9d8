"""The command that shows the next times of a cron expression, without a server: preview."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from .exits import CliError, ExitCode
from .options import JsonOption, shared
from .output import print_json, print_note, print_table
from .parsing import parse_instant

if TYPE_CHECKING:
    from ..domain.calendar import CalendarSpec, PreviewFire

_MOST = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EFFECTS = {
    "NONE": "",
    "AFTER_GAP": "moved: its time does not exist, this is the first one after the gap",
    "SKIPPED": "does not run: its time does not exist",
    "FIRST": "the first of two",
    "LAST": "the second of two",
}


class Gap(Enum):
    """What happens at a local time that does not exist."""

    RUN_AFTER_GAP = "run-after-gap"
    SKIP = "skip"


class Overlap(Enum):
    """What happens at a local time that occurs twice."""

    FIRST = "first"
    LAST = "last"
    BOTH = "both"


def preview(
    context: typer.Context,
    expression: Annotated[
        str, typer.Argument(metavar="EXPR", help="Quoted: '0 9 * * MON-FRI', @daily, '@every 90s'.")
    ],
    tz: Annotated[
        str, typer.Option("--tz", metavar="ZONE", help="An IANA time zone, as Europe/Berlin.")
    ] = "UTC",
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="INSTANT", help="Times strictly after it. Default now."),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", min=1, max=_MOST, metavar="N", help="How many times.")
    ] = 10,
    dst_gap: Annotated[
        Gap, typer.Option("--dst-gap", help="For a local time that does not exist.")
    ] = Gap.RUN_AFTER_GAP,
    dst_overlap: Annotated[
        Overlap, typer.Option("--dst-overlap", help="For a local time that occurs twice.")
    ] = Overlap.FIRST,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="EXPR|DATE", help="Leave times out; may be repeated."),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", metavar="TASK_ID", help="The schedule whose H is meant."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the next times of a cron expression. Needs no server."""
    from ..domain.calendar import NO_ID, CalendarSpec, DstGap, DstOverlap

    after = parse_instant(since, "--from") if since else datetime.now(UTC)
    spec = CalendarSpec(
        expression=expression,
        time_zone=tz,
        schedule_id=_schedule_id(schedule) if schedule else NO_ID,
        dst_gap=DstGap[dst_gap.name],
        dst_overlap=DstOverlap[dst_overlap.name],
        exclusions=tuple(exclude or ()),
        # An interval has to begin somewhere: at the instant that is asked about.
        anchor_at=_milliseconds(after),
    )
    fires = _fires(spec, _milliseconds(after), count)
    if shared(context, None, as_json).json:
        print_json({"fires": [fire.local_time for fire in fires if fire.effect.value != "SKIPPED"]})
        return
    rows = [(fire.local_time, _utc(fire.nominal_at), _EFFECTS[fire.effect.value]) for fire in fires]
    print_table(("Time", "UTC", "Clock change"), rows, empty="No more times.")
    if re.search(r"(?:^|[\s,])H", expression.upper()) and not schedule:
        print_note("H depends on the schedule's id: name one with --schedule to see its times.")


def _fires(spec: CalendarSpec, after: int, count: int) -> list[PreviewFire]:
    from ..domain import calendar
    from ..domain.errors import InvalidArgument

    options = {"expression": "EXPR", "time_zone": "--tz"}
    try:
        return calendar.preview(calendar.parse(spec), after, count)
    except InvalidArgument as error:
        field = error.field or "expression"
        option = "--exclude" if field.startswith("exclusions") else options.get(field, field)
        raise CliError(
            f"{option}: {error.message}", ExitCode.INVALID, reason=error.reason, field=field
        ) from None


def _schedule_id(text: str) -> bytes:
    from uuid import UUID

    try:
        return UUID(text).bytes
    except ValueError:
        raise CliError(
            f"--schedule: {text!r} is no id", ExitCode.INVALID, reason="TASK_ID_INVALID"
        ) from None


def _milliseconds(instant: datetime) -> int:
    """Rounded down: a time within the same millisecond is not after the instant."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def _utc(instant: int) -> str:
    return (_EPOCH + timedelta(milliseconds=instant)).strftime("%Y-%m-%dT%H:%M:%SZ")
