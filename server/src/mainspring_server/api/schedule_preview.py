"""Preview: the next times of an expression or a schedule, and what else is due in those seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mainspring.v1 import schedule_requests_pb2

from ..domain.calendar import (
    NO_ID,
    DstEffect,
    PreviewFire,
    parse,
    preview,
    tzdata_version,
)
from ..domain.task import SHARDS
from .convert import duration, invalid, required, timestamp, timestamp_ms
from .schedule_calls import Stage, schedule_id_of
from .schedule_convert import read_calendar

DEFAULT_COUNT = 10
MOST_COUNT = 1_000

NEAR_S = 3_600
"""Seconds of load that are read in one go, gaps included."""

_EFFECTS = {effect: number for number, effect in enumerate(DstEffect, 1)}


def check_count(value: int, field: str) -> int:
    """How many times are asked for."""
    if not 1 <= value <= MOST_COUNT:
        raise invalid(field, f"must be 1 to {MOST_COUNT}, it is {value}", limit=str(MOST_COUNT))
    return value


class PreviewCalls:
    """Preview; it changes nothing."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def preview(
        self, request: schedule_requests_pb2.PreviewRequest, namespace: str
    ) -> schedule_requests_pb2.PreviewResponse:
        """The next times strictly after an instant."""
        count = DEFAULT_COUNT
        if request.HasField("count"):
            count = check_count(request.count, "count")
        after = self._stage.engine.clock.now()
        if request.HasField("from_time"):
            after = timestamp_ms(request.from_time, "from_time")
        fired, own = 0, None
        kind = request.WhichOneof("source")
        if kind == "cron":
            # An interval has to begin somewhere: at the instant that is asked about.
            spec, _ = read_calendar(request.cron, NO_ID, after, "cron", self._stage.limits)
            calendar = parse(replace(spec, exact=True))  # the shift depends on the id
        elif kind == "task_id":
            schedule = await self._stage.load(schedule_id_of(request.task_id), namespace)
            calendar = parse(schedule.spec)
            fired = schedule.runs
            if not schedule.live:  # it has no next times
                count = 0
            if schedule.next_nominal_at is not None:
                own = calendar.due_at(schedule.next_nominal_at)
        else:
            raise required("source", "is required: set cron or task_id")
        fires = preview(calendar, after, count, fired)
        loads = await self._loads(fires, own) if request.include_load else {}
        return schedule_requests_pb2.PreviewResponse(
            fires=[_fire_message(fire, loads) for fire in fires],
            tzdata_version=tzdata_version(),
        )

    async def _loads(self, fires: Sequence[PreviewFire], own: int | None) -> dict[int, int]:
        """Other tasks due, by second."""
        seconds = sorted({_second(fire) for fire in fires if fire.effect is not DstEffect.SKIPPED})
        found = dict.fromkeys(seconds, 0)
        for first, last in _stretches(seconds):
            digests = await self._stage.store.due_digest(
                range(SHARDS), first * 1_000, last * 1_000 + 999
            )
            for digest in digests:
                if digest.second in found:
                    found[digest.second] += digest.count
        if own is not None and found.get(own // 1_000):
            found[own // 1_000] -= 1
        return found


def _second(fire: PreviewFire) -> int:
    return (fire.nominal_at + fire.jitter_ms) // 1_000


def _stretches(seconds: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of stretches of seconds that lie close together."""
    found: list[tuple[int, int]] = []
    for second in seconds:
        if found and second - found[-1][0] <= NEAR_S:
            found[-1] = (found[-1][0], second)
        else:
            found.append((second, second))
    return found


def _fire_message(fire: PreviewFire, loads: dict[int, int]) -> schedule_requests_pb2.PreviewFire:
    skipped = fire.effect is DstEffect.SKIPPED
    return schedule_requests_pb2.PreviewFire(
        nominal_time=timestamp(fire.nominal_at),
        local_time=fire.local_time,
        dst_effect=schedule_requests_pb2.DstEffect.ValueType(_EFFECTS[fire.effect]),
        jitter=duration(fire.jitter_ms),
        load=0 if skipped else loads.get(_second(fire), 0),
    )
