"""Backfill: the instances of a range of nominal times that have passed, at a rate."""

from __future__ import annotations

import math

from mainspring.v1 import schedule_requests_pb2

from ..domain import schedule_changes
from ..domain.calendar import parse
from ..domain.errors import FailedPrecondition, ResourceExhausted
from ..domain.instances import Mint
from ..domain.schedule import Outcome, Overlap, Plan, Schedule, Source, View
from ..ids import mint as mint_ids
from ..ids import text_of
from .convert import invalid, required, timestamp, timestamp_ms
from .schedule_calls import Stage, has_ended, schedule_id_of
from .schedule_convert import OVERLAPS, choice

DEFAULT_RATE = 10.0
HIGHEST_RATE = 1_000.0

MOST_COUNTED = 10_000
"""Nominal times of a range at most."""

MOST_INSTANCES = 2_000
"""Instances of a schedule's backfills that may wait at a time."""

MOST_TASKS = 5_000
"""Their tasks in all, where an instance is a graph: they are made in one transaction."""

MOST_BYTES = 64 * 1_024 * 1_024
"""Their payloads in all."""

PAGE = 500
ROUNDS = 5


class _Moved(FailedPrecondition):
    """Somebody visited the schedule since its ledger was read; it is read again."""

    def __init__(self) -> None:
        super().__init__("SCHEDULE_MOVED", "the schedule was visited meanwhile")


class BackfillCalls:
    """Backfill. What is left of one is cancelled through Cancel with its id."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def backfill(
        self, request: schedule_requests_pb2.BackfillRequest, namespace: str
    ) -> schedule_requests_pb2.BackfillResponse:
        """Make the instances, or count them."""
        schedule_id = schedule_id_of(request.task_id)
        now = await self._stage.store.now()
        start, end = _range(request, now)
        gap_ms = _gap(request)
        overlap = _overlap(request)
        for round_number in range(ROUNDS):
            schedule = await self._stage.load(schedule_id, namespace)
            if not schedule.live:
                raise has_ended(schedule)
            chosen = overlap or schedule.policy.overlap
            nominals = await self._missing(schedule, start, end)
            if request.dry_run or not nominals:
                return _answer(nominals, b"")
            _check_span(nominals, gap_ms, self._stage.limits.delay_ms)
            group = mint_ids(now, 1)[0]
            last = round_number == ROUNDS - 1
            seen = None if last else schedule.settled_at

            def make(
                view: View,
                mint: Mint,
                seen: int | None = seen,
                nominals: list[int] = nominals,
                chosen: Overlap = chosen,
                group: bytes = group,
            ) -> Plan:
                if seen is not None and view.schedule.settled_at != seen:
                    raise _Moved
                left = _not_open(view, nominals)
                _check_room(view, len(left))
                plan = schedule_changes.backfill(view, mint, left, gap_ms, group, chosen)
                plan.answer = left
                return plan

            try:
                visited = await self._stage.change(schedule_id, namespace, make)
            except _Moved:
                continue
            made: list[int] = visited.plan.answer
            return _answer(made, group if made else b"")
        raise AssertionError("the last round answers")

    async def _missing(self, schedule: Schedule, start: int, end: int) -> list[int]:
        """The nominal times of the range that neither fired nor are about to."""
        calendar = parse(schedule.spec)
        wanted = list(calendar.fires(start, end, MOST_COUNTED + 1))
        if len(wanted) > MOST_COUNTED:
            raise invalid(
                "end_time",
                f"makes a range of more than {MOST_COUNTED} nominal times; split it",
                limit=str(MOST_COUNTED),
            )
        fired: set[int] = set()
        before: tuple[int, int, int] | None = (end, 0, 0)
        while before is not None:
            rows = await self._stage.schedules.history(schedule.schedule_id, before, PAGE)
            fired.update(
                row.nominal_at
                for row in rows
                if row.source is not Source.TRIGGER and row.outcome in (Outcome.FIRED, Outcome.OPEN)
            )
            more = len(rows) == PAGE and rows[-1].nominal_at >= start
            last = rows[-1] if rows else None
            before = (last.nominal_at, int(last.source), last.sequence) if more and last else None
        return [nominal for nominal in wanted if nominal not in fired]


def _range(request: schedule_requests_pb2.BackfillRequest, now: int) -> tuple[int, int]:
    for name in ("start_time", "end_time"):
        if not request.HasField(name):
            raise required(name)
    start = timestamp_ms(request.start_time, "start_time")
    end = timestamp_ms(request.end_time, "end_time")
    if end <= start:
        raise invalid("end_time", "must be after start_time")
    if end > now:
        raise invalid("end_time", "must not be in the future")
    return start, end


def _gap(request: schedule_requests_pb2.BackfillRequest) -> int:
    rate = request.max_rate if request.HasField("max_rate") else DEFAULT_RATE
    if not 0 < rate <= HIGHEST_RATE:  # NaN fails it as well
        raise invalid(
            "max_rate",
            f"must be above 0 and at most {HIGHEST_RATE:g} a second, it is {rate:g}",
            limit=f"{HIGHEST_RATE:g}",
        )
    return math.ceil(1_000 / max(rate, 1e-12))


def _overlap(request: schedule_requests_pb2.BackfillRequest) -> Overlap | None:
    if not request.overlap_policy:
        return None
    overlap = choice(request.overlap_policy, OVERLAPS, "overlap_policy")
    if overlap is Overlap.CANCEL_OTHER:
        raise invalid(
            "overlap_policy", "must not be CANCEL_OTHER: of the range only the last would be left"
        )
    return overlap


def _check_span(nominals: list[int], gap_ms: int, limit_ms: int) -> None:
    if len(nominals) * gap_ms > limit_ms:
        raise invalid("max_rate", f"would make {len(nominals)} instances take more than ten years")


def _not_open(view: View, nominals: list[int]) -> list[int]:
    opened = {row.nominal_at for row, _ in view.open if row.source is not Source.TRIGGER}
    return [nominal for nominal in nominals if nominal not in opened]


def _check_room(view: View, count: int) -> None:
    waiting = sum(row.source is Source.BACKFILL for row, _ in view.open)
    size = sum(len(task.payload.body) for task in view.schedule.template)
    most = min(
        MOST_INSTANCES, MOST_TASKS // len(view.schedule.template), MOST_BYTES // max(size, 1)
    )
    room = most - waiting
    if count > room:
        raise ResourceExhausted(
            "QUOTA_EXCEEDED",
            f"{count} instances are to be made, and there is room for {max(room, 0)}: ask for a "
            "shorter range, and for the rest when these have fired",
            metadata={"limit": str(most), "actual": str(waiting + count)},
        )


def _answer(nominals: list[int], group: bytes) -> schedule_requests_pb2.BackfillResponse:
    response = schedule_requests_pb2.BackfillResponse(
        backfill_id=text_of(group) if group else "", instances=len(nominals)
    )
    if nominals:
        response.first_nominal_time.CopyFrom(timestamp(nominals[0]))
        response.last_nominal_time.CopyFrom(timestamp(nominals[-1]))
    return response
