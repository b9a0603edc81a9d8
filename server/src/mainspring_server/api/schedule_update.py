"""Update: other times, policies or tasks for a schedule, or only what they would change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from mainspring.v1 import schedule_pb2, schedule_requests_pb2, task_pb2, task_requests_pb2

from ..domain import schedule_changes
from ..domain.calendar import Calendar, parse, tzdata_version
from ..domain.errors import Aborted, InvalidArgument, MainspringError
from ..domain.instances import Mint
from ..domain.schedule import Plan, Schedule, View
from ..ids import text_of
from .convert import duration, invalid, payload_message, required, timeouts_message, timestamp
from .schedule_calls import ROUNDS, Stage, has_ended, schedule_id_of
from .schedule_convert import cron_message, first_time, read_calendar, read_policy
from .schedule_messages import etag_of, state_message
from .schedule_preview import DEFAULT_COUNT, check_count
from .schedule_submit import read_template
from .submit import SubmitReader

FIELDS = ("payload", "priority", "queue", "retry", "timeouts", "labels")
CRON = "schedule.cron"
PLACE = "submission"
MOST_PATHS = 100

Submission = task_requests_pb2.SubmitRequest


class _Moved(Aborted):
    """Another change came first; nobody asked for a version, so it is tried again on the new one."""

    def __init__(self) -> None:
        super().__init__("VERSION_MISMATCH", "the schedule is being changed by others; try again")


class UpdateCalls:
    """Update."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._reader = SubmitReader(stage.limits)

    async def update(
        self, request: schedule_requests_pb2.UpdateRequest, namespace: str
    ) -> schedule_requests_pb2.UpdateResponse:
        """Change the schedule; answers it, and the difference of its next times."""
        schedule_id = schedule_id_of(request.task_id)
        count = DEFAULT_COUNT
        if request.HasField("compare_count"):
            count = check_count(request.compare_count, "compare_count")
        paths = _paths(request)
        for _ in range(ROUNDS):
            schedule = await self._stage.load(schedule_id, namespace)
            if not schedule.live:
                raise has_ended(schedule)
            _check_etag(schedule, request.etag)
            changed = self._changed(schedule, request.submission, paths, namespace)
            if request.validate_only:
                return await self._would_be(schedule, changed, count)

            def apply(
                view: View, mint: Mint, before: Schedule = schedule, after: Schedule = changed
            ) -> Plan:
                _check_etag(view.schedule, request.etag)
                if view.schedule.version != before.version:
                    raise _Moved
                return schedule_changes.update(view, mint, after)

            try:
                await self._stage.change(schedule_id, namespace, apply)
            except _Moved:
                continue
            response = schedule_requests_pb2.UpdateResponse(
                schedule=await self._stage.state(schedule_id, namespace)
            )
            self._compare(response, schedule, changed, count)
            return response
        raise _Moved

    def _changed(
        self, schedule: Schedule, submission: Submission, paths: list[str], namespace: str
    ) -> Schedule:
        """The schedule as it would be; checked as Submit checks it."""
        now = self._stage.engine.clock.now()
        graph = len(schedule.template) > 1 or schedule.template[0].local_ref is not None
        if graph and any(not _is_cron(path) for path in paths):
            raise invalid(
                "update_mask", f"may name {CRON} and its fields only: this is a recurring graph"
            )
        wanted = _as_submission(schedule)
        for path in paths:
            _copy_path(submission, wanted, path.split("."))
        try:
            spec, calendar = read_calendar(
                wanted.schedule.cron, schedule.schedule_id, schedule.created_at, CRON,
                self._stage.limits,
            )  # fmt: skip
            first_time(calendar, now, CRON)
            policy = read_policy(wanted.schedule.cron, CRON, self._stage.limits)
            template, labels = schedule.template, schedule.labels
            if not graph:
                trace = schedule.template[0].trace_context
                first, labels = read_template(self._reader, wanted, namespace, now, trace)
                template = (first,)
        except InvalidArgument as error:
            raise _placed(error)
        return replace(
            schedule,
            spec=spec,
            policy=policy,
            template=template,
            labels=labels,
            tz_version=tzdata_version(),
        )

    async def _would_be(
        self, schedule: Schedule, changed: Schedule, count: int
    ) -> schedule_requests_pb2.UpdateResponse:
        now = self._stage.engine.clock.now()
        after = replace(changed, next_nominal_at=None)
        state = state_message(View(after, now, (), (), False))
        state.next_task_id = ""
        response = schedule_requests_pb2.UpdateResponse(schedule=state)
        self._compare(response, schedule, changed, count)
        return response

    def _compare(
        self,
        response: schedule_requests_pb2.UpdateResponse,
        schedule: Schedule,
        changed: Schedule,
        count: int,
    ) -> None:
        """Which of the next times of either are no times of the other."""
        now = self._stage.engine.clock.now()
        old, new = parse(schedule.spec), parse(changed.spec)
        response.removed_times.extend(map(timestamp, _lacking(old, new, now, count)))
        response.added_times.extend(map(timestamp, _lacking(new, old, now, count)))


def _lacking(has: Calendar, lacks: Calendar, now: int, count: int) -> list[int]:
    return [
        nominal
        for nominal in has.fires(now + 1, has.end_at, count)
        if lacks.next_after(nominal - 1) != nominal
    ]


def _check_etag(schedule: Schedule, etag: str) -> None:
    if etag and etag != etag_of(schedule):
        name = text_of(schedule.schedule_id)
        raise Aborted(
            "VERSION_MISMATCH",
            f"schedule {name} has the etag {etag_of(schedule)} now: read it again, decide again",
            field="etag",
            metadata={"task_id": name, "etag": etag_of(schedule)},
        )


# --- Paths ------------------------------------------------------------------------------------


def _is_cron(path: str) -> bool:
    return path == CRON or path.startswith(f"{CRON}.")


def _paths(request: schedule_requests_pb2.UpdateRequest) -> list[str]:
    """The paths of the mask, each one that may be changed."""
    if not request.HasField("submission"):
        raise required("submission")
    paths = list(request.update_mask.paths)
    if not paths:
        raise required("update_mask")
    if len(paths) > MOST_PATHS:
        raise invalid("update_mask", f"has {len(paths)} paths, at most {MOST_PATHS} are allowed")
    for path in paths:
        head, *rest = path.split(".")
        known = _is_cron(path) or (head in FIELDS and (not rest or head in ("retry", "timeouts")))
        if not known or not _exists(path):
            allowed = ", ".join((CRON, *FIELDS))
            raise invalid(
                "update_mask",
                f"has the path {path[:64]!r}, which is none of {allowed} or their fields",
                allowed=allowed,
            )
    return paths


def _exists(path: str) -> bool:
    descriptor: Any = Submission.DESCRIPTOR
    for name in path.split("."):
        if descriptor is None or name not in descriptor.fields_by_name:
            return False
        field = descriptor.fields_by_name[name]
        repeated = field.message_type is not None and field.message_type.GetOptions().map_entry
        descriptor = None if repeated else field.message_type
    return True


def _copy_path(source: Message, target: Message, path: list[str]) -> None:
    """Make one field of the target what it is in the source, not set included."""
    name, *rest = path
    if rest:
        _copy_path(getattr(source, name), getattr(target, name), rest)
        return
    field = source.DESCRIPTOR.fields_by_name[name]
    target.ClearField(name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(target, name).update(getattr(source, name))
    elif isinstance(getattr(source, name), Message):
        if source.HasField(name):
            getattr(target, name).CopyFrom(getattr(source, name))
    elif field.has_presence:
        if source.HasField(name):
            setattr(target, name, getattr(source, name))
    elif hasattr(getattr(source, name), "extend"):
        getattr(target, name).extend(getattr(source, name))
    else:
        setattr(target, name, getattr(source, name))


def _as_submission(schedule: Schedule) -> Submission:
    """The request that would make this schedule."""
    first = schedule.template[0]
    return Submission(
        task_type=first.task_type,
        queue=first.queue,
        priority=first.priority,
        payload=payload_message(first.payload),
        labels=json.loads(schedule.labels) if schedule.labels else None,
        retry=task_pb2.RetryPolicy(
            max_attempts=first.retry.max_attempts,
            initial_delay=duration(first.retry.initial_delay_ms),
            multiplier=first.retry.multiplier,
            max_delay=duration(first.retry.max_delay_ms),
        ),
        timeouts=timeouts_message(first.timeouts),
        schedule=schedule_pb2.Schedule(cron=cron_message(schedule.spec, schedule.policy)),
    )


def _placed(error: MainspringError) -> MainspringError:
    """An error of Submit, its field as seen from Update."""
    if error.field:
        error.message = f"{PLACE}.{error.message}"
        error.field = f"{PLACE}.{error.field}"
        error.metadata["field"] = error.field
    return error
