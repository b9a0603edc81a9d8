"""The command that makes a recurring task: schedule."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, ServerOption, shared
from .output import message_document, print_json, print_line, print_note
from .parsing import check_json, parse_duration, parse_instant, parse_labels, read_payload
from .previewing import Gap, Overlap

if TYPE_CHECKING:
    from mainspring.v1.schedule_pb2 import CronSchedule

_TIMES = "Times"
_RULES = "When a time cannot be kept"


class OverlapChoice(Enum):
    """What becomes of an instance that falls due while an older one is live."""

    SKIP = "skip"
    BUFFER_ONE = "buffer-one"
    BUFFER_ALL = "buffer-all"
    CANCEL_OTHER = "cancel-other"
    ALLOW_ALL = "allow-all"


class CatchUpChoice(Enum):
    """Which of the times that passed while nothing could fire still run."""

    LATEST = "latest"
    NONE = "none"
    ALL = "all"


Zone = Annotated[
    str,
    typer.Option("--tz", metavar="ZONE", help="IANA name. Default UTC.", rich_help_panel=_TIMES),
]
Jitter = Annotated[
    str | None,
    typer.Option(
        "--jitter",
        metavar="DURATION",
        help="Spread schedules by up to this. Default 30s if clock-aligned.",
        rich_help_panel=_TIMES,
    ),
]
Exact = Annotated[bool, typer.Option("--exact", help="No jitter.", rich_help_panel=_TIMES)]
Start = Annotated[
    str | None,
    typer.Option("--start", metavar="TIME", help="No time before it.", rich_help_panel=_TIMES),
]
End = Annotated[
    str | None,
    typer.Option("--end", metavar="TIME", help="No time from it on.", rich_help_panel=_TIMES),
]
MaxRuns = Annotated[
    int | None,
    typer.Option("--max-runs", metavar="N", help="End after so many.", rich_help_panel=_TIMES),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="EXPR|DATE", help="Leave times out; repeat it.", rich_help_panel=_TIMES
    ),
]
OverlapOption = Annotated[
    OverlapChoice | None,
    typer.Option(
        "--overlap", help="While an older one is live. Default skip.", rich_help_panel=_RULES
    ),
]
CatchUpOption = Annotated[
    CatchUpChoice | None,
    typer.Option("--catch-up", help="After a standstill. Default latest.", rich_help_panel=_RULES),
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--catch-up-window",
        metavar="DURATION",
        help="What is older is missed. Default 1h.",
        rich_help_panel=_RULES,
    ),
]
CatchUpRuns = Annotated[
    int | None,
    typer.Option(
        "--catch-up-runs", metavar="N", help="The most for all. Default 10.", rich_help_panel=_RULES
    ),
]
GapOption = Annotated[
    Gap | None,
    typer.Option("--dst-gap", help="A local time that does not exist.", rich_help_panel=_RULES),
]
TwiceOption = Annotated[
    Overlap | None,
    typer.Option("--dst-overlap", help="A local time that occurs twice.", rich_help_panel=_RULES),
]
PauseOnFailure = Annotated[
    bool,
    typer.Option(
        "--pause-on-failure", help="Pause it when an instance fails.", rich_help_panel=_RULES
    ),
]


def schedule(
    context: typer.Context,
    task_type: Annotated[
        str, typer.Argument(metavar="TYPE", help="What kind of work; chooses the worker.")
    ],
    expression: Annotated[
        str, typer.Argument(metavar="EXPR", help="Quoted: '0 9 * * MON-FRI', @daily, '@every 90s'.")
    ],
    payload: Annotated[
        str | None,
        typer.Argument(
            metavar="[JSON|@FILE|-]", help="What each run gets; - reads standard input."
        ),
    ] = None,
    tz: Zone = "",
    jitter: Jitter = None,
    exact: Exact = False,
    start: Start = None,
    end: End = None,
    max_runs: MaxRuns = None,
    exclude: Exclude = None,
    overlap: OverlapOption = None,
    catch_up: CatchUpOption = None,
    catch_up_window: WindowOption = None,
    catch_up_runs: CatchUpRuns = None,
    dst_gap: GapOption = None,
    dst_overlap: TwiceOption = None,
    pause_on_failure: PauseOnFailure = False,
    queue: Annotated[
        str, typer.Option("--queue", metavar="NAME", help="Where it waits. Default: the type.")
    ] = "",
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="0-9", help="Lower is sooner. Default 5.")
    ] = None,
    key: Annotated[
        str,
        typer.Option("--key", metavar="TEXT", help="The same within 24 h is the same schedule."),
    ] = "",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="For filters; repeat it for more."),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a task that recurs; it prints the schedule's id.

    Example: mainspring schedule report '0 7 * * MON-FRI' '{"team": "a"}' --tz Europe/Paris
    """
    from mainspring.v1.task_requests_pb2 import SubmitRequest

    from .connection import connect
    from .views import instant

    request = SubmitRequest(
        task_type=task_type,
        queue=queue,
        priority=priority,
        idempotency_key=key,
        labels=parse_labels(label or []),
    )
    content = read_payload(payload)
    if content is not None:
        request.payload.json = check_json(content)
    cron = request.schedule.cron
    cron.expression = expression
    cron.pause_on_failure = pause_on_failure
    _set_times(cron, tz, jitter, exact, start, end, max_runs, exclude)
    _set_rules(cron, overlap, catch_up, catch_up_window, catch_up_runs)
    _set_clock_changes(cron, dst_gap, dst_overlap)
    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("Submit", request)
    if options.json:
        print_json(message_document(reply))
        return
    print_line(reply.task_id)
    known = " (the key was used before: this is the first schedule)" if reply.existing else ""
    print_note(f"first due {instant(reply.due_time)}{known}")


def _set_times(
    cron: CronSchedule,
    tz: str,
    jitter: str | None,
    exact: bool,
    start: str | None,
    end: str | None,
    max_runs: int | None,
    exclude: list[str] | None,
) -> None:
    cron.time_zone = tz
    cron.exact = exact
    if jitter is not None:
        cron.jitter.FromMilliseconds(parse_duration(jitter, "--jitter"))
    if start is not None:
        cron.start_time.FromDatetime(parse_instant(start, "--start"))
    if end is not None:
        cron.end_time.FromDatetime(parse_instant(end, "--end"))
    if max_runs is not None:
        cron.max_runs = max_runs
    cron.exclusions.extend(exclude or ())


def _set_rules(
    cron: CronSchedule,
    overlap: OverlapChoice | None,
    catch_up: CatchUpChoice | None,
    window: str | None,
    runs: int | None,
) -> None:
    from mainspring.v1.schedule_pb2 import CatchUpPolicy, OverlapPolicy

    if overlap is not None:
        cron.overlap_policy = OverlapPolicy.Value(f"OVERLAP_POLICY_{overlap.name}")
    if catch_up is not None:
        cron.catch_up.policy = CatchUpPolicy.Value(f"CATCH_UP_POLICY_{catch_up.name}")
    if window is not None:
        cron.catch_up.window.FromMilliseconds(parse_duration(window, "--catch-up-window"))
    if runs is not None:
        cron.catch_up.max_runs = runs


def _set_clock_changes(cron: CronSchedule, gap: Gap | None, twice: Overlap | None) -> None:
    from mainspring.v1.schedule_pb2 import DstGapPolicy, DstOverlapPolicy

    if gap is not None:
        cron.dst_gap = DstGapPolicy.Value(f"DST_GAP_POLICY_{gap.name}")
    if twice is not None:
        cron.dst_overlap = DstOverlapPolicy.Value(f"DST_OVERLAP_POLICY_{twice.name}")
