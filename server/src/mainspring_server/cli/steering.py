"""The commands that change schedules: pause, resume, trigger, backfill, update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .exits import usage_error
from .options import JsonOption, ServerOption, shared
from .output import message_document, print_fields, print_json, print_line, print_note
from .parsing import check_json, parse_instant, read_payload
from .scheduling import OverlapOption

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from mainspring.v1.schedule_pb2 import ScheduleState
    from mainspring.v1.schedule_requests_pb2 import UpdateResponse

ScheduleArgument = Annotated[
    str, typer.Argument(metavar="SCHEDULE_ID", help="The id that schedule printed.")
]
Note = Annotated[str, typer.Option("--note", help="For whoever looks at the schedule.")]


def pause(
    context: typer.Context,
    schedule_id: ScheduleArgument,
    note: Note = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a schedule from making instances, until resume."""
    from mainspring.v1.schedule_requests_pb2 import PauseRequest

    from .connection import connect

    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("Pause", PauseRequest(task_id=schedule_id, note=note))
    _show_state(reply.schedule, as_json=options.json)


def resume(
    context: typer.Context,
    schedule_id: ScheduleArgument,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="Times from then on count as not paused. Default now."
        ),
    ] = None,
    note: Note = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a paused schedule go on."""
    from mainspring.v1.schedule_requests_pb2 import ResumeRequest

    from .connection import connect

    request = ResumeRequest(task_id=schedule_id, note=note)
    if since is not None:
        request.resume_from_time.FromDatetime(parse_instant(since, "--from"))
    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("Resume", request)
    _show_state(reply.schedule, as_json=options.json)


def trigger(
    context: typer.Context,
    task_id: Annotated[
        str, typer.Argument(metavar="ID", help="A schedule's, or that of a task due later.")
    ],
    key: Annotated[
        str, typer.Option("--key", metavar="TEXT", help="The same within 24 h is the same trigger.")
    ] = "",
    overlap: OverlapOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a schedule once now, beside its times; or a task that is due later. It prints the task's id."""
    from mainspring.v1.schedule_pb2 import OverlapPolicy
    from mainspring.v1.schedule_requests_pb2 import TriggerRequest

    from .connection import connect

    request = TriggerRequest(task_id=task_id, idempotency_key=key)
    if overlap is not None:
        request.overlap_policy = OverlapPolicy.Value(f"OVERLAP_POLICY_{overlap.name}")
    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("Trigger", request)
    if options.json:
        print_json(message_document(reply))
    elif reply.task_id:
        print_line(reply.task_id)
    else:
        print_note("skipped: an older instance is live, and the overlap policy says so")


def backfill(
    context: typer.Context,
    schedule_id: ScheduleArgument,
    start: Annotated[str, typer.Option("--start", metavar="TIME", help="The first time.")],
    end: Annotated[str, typer.Option("--end", metavar="TIME", help="Up to before this one.")],
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="Instances a second. Default 10.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    overlap: OverlapOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a schedule's times of a range that has passed; it prints the backfill's id, for cancel."""
    from mainspring.v1.schedule_pb2 import OverlapPolicy
    from mainspring.v1.schedule_requests_pb2 import BackfillRequest

    from .connection import connect
    from .views import instant

    request = BackfillRequest(task_id=schedule_id, max_rate=rate, dry_run=dry_run)
    request.start_time.FromDatetime(parse_instant(start, "--start"))
    request.end_time.FromDatetime(parse_instant(end, "--end"))
    if overlap is not None:
        request.overlap_policy = OverlapPolicy.Value(f"OVERLAP_POLICY_{overlap.name}")
    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("Backfill", request)
    if options.json:
        print_json(message_document(reply))
        return
    if reply.backfill_id:
        print_line(reply.backfill_id)
    span = ""
    if reply.instances:
        first, last = instant(reply.first_nominal_time), instant(reply.last_nominal_time)
        span = f", {first} to {last}"
    print_note(f"{reply.instances} times{span}{' (dry run)' if dry_run else ''}")


def update(
    context: typer.Context,
    schedule_id: ScheduleArgument,
    expression: Annotated[
        str | None, typer.Option("--cron", metavar="EXPR", help="Another expression.")
    ] = None,
    tz: Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="Another zone.")] = None,
    overlap: OverlapOption = None,
    payload: Annotated[
        str | None,
        typer.Option("--payload", metavar="JSON|@FILE|-", help="What each run gets from now on."),
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="0-9", help="Lower is sooner.")
    ] = None,
    etag: Annotated[
        str, typer.Option("--etag", metavar="TEXT", help="Only if this is still its etag.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a schedule; it says which of the next times come and go."""
    from mainspring.v1.schedule_pb2 import OverlapPolicy
    from mainspring.v1.schedule_requests_pb2 import UpdateRequest

    from .connection import connect

    request = UpdateRequest(task_id=schedule_id, etag=etag, validate_only=dry_run)
    new, paths = request.submission, request.update_mask.paths
    if expression is not None:
        new.schedule.cron.expression = expression
        paths.append("schedule.cron.expression")
    if tz is not None:
        new.schedule.cron.time_zone = tz
        paths.append("schedule.cron.time_zone")
    if overlap is not None:
        new.schedule.cron.overlap_policy = OverlapPolicy.Value(f"OVERLAP_POLICY_{overlap.name}")
        paths.append("schedule.cron.overlap_policy")
    content = read_payload(payload)
    if content is not None:
        new.payload.json = check_json(content)
        paths.append("payload")
    if priority is not None:
        new.priority = priority
        paths.append("priority")
    if not paths:
        raise usage_error(
            "nothing to change", hint="Name one of --cron, --tz, --overlap, --payload, --priority."
        )
    options = shared(context, server, as_json)
    with connect(options.server) as connection:
        reply = connection.call("Update", request)
    if options.json:
        print_json(message_document(reply))
    else:
        _show_difference(reply)


def _show_difference(reply: UpdateResponse) -> None:
    from .views import schedule_fields

    def times(stamps: list[Timestamp]) -> str:
        return "\n".join(stamp.ToJsonString() for stamp in stamps)

    fields = schedule_fields(reply.schedule)
    fields["no longer"] = times(list(reply.removed_times))
    fields["new"] = times(list(reply.added_times))
    print_fields(fields)


def _show_state(state: ScheduleState, *, as_json: bool) -> None:
    from .views import schedule_fields

    if as_json:
        print_json(message_document(state))
    else:
        print_fields(schedule_fields(state))
