"""The asyncio client's calls about schedules."""

from datetime import datetime
from typing import Unpack

from . import _schedule_calls, _task_calls
from ._async import AsyncConnection
from .enums import OverlapPolicy
from .schedules import (
    Backfill,
    BackfillOptions,
    CronSchedule,
    Preview,
    ScheduleChanges,
    ScheduleState,
    Triggered,
    Updated,
)


class AsyncScheduleMethods:
    """Calls about schedules; `task_id` is the id that submitting the schedule answered."""

    _connection: AsyncConnection

    async def get_schedule(self, task_id: str, *, timeout: float | None = None) -> ScheduleState:
        """Read a schedule: its cron, whether it is paused, its next and its live instances."""
        return await self._connection.run(_task_calls.get_schedule(task_id), timeout)

    async def pause(
        self, task_id: str, note: str = "", *, timeout: float | None = None
    ) -> ScheduleState:
        """Stop a schedule from making instances; the one that is not yet due is cancelled."""
        return await self._connection.run(_schedule_calls.pause(task_id, note), timeout)

    async def resume(
        self,
        task_id: str,
        note: str = "",
        *,
        resume_from: datetime | None = None,
        timeout: float | None = None,
    ) -> ScheduleState:
        """Let a paused schedule go on; nominal times from `resume_from` on, default now, are kept."""
        return await self._connection.run(
            _schedule_calls.resume(task_id, note, resume_from), timeout
        )

    async def trigger(
        self,
        task_id: str,
        *,
        idempotency_key: str = "",
        overlap_policy: OverlapPolicy = OverlapPolicy.UNSPECIFIED,
        dedupe: bool = True,
        timeout: float | None = None,
    ) -> Triggered:
        """Make an instance now, also while the schedule is paused; or let a PENDING task run now.

        With `dedupe` a trigger without a key gets a random one, so that repeating a call whose
        answer was lost makes no second instance.
        """
        call = _schedule_calls.trigger(task_id, idempotency_key, overlap_policy, dedupe=dedupe)
        return await self._connection.run(call, timeout)

    async def backfill(
        self,
        task_id: str,
        start_time: datetime,
        end_time: datetime,
        *,
        timeout: float | None = None,
        **options: Unpack[BackfillOptions],
    ) -> Backfill:
        """Make the instances of the nominal times from `start_time` to before `end_time`.

        Those that already fired are left out. Options: see `BackfillOptions`.
        """
        call = _schedule_calls.backfill(task_id, start_time, end_time, **options)
        return await self._connection.run(call, timeout)

    async def update(
        self,
        task_id: str,
        *,
        etag: str = "",
        validate_only: bool = False,
        compare_count: int | None = None,
        timeout: float | None = None,
        **changes: Unpack[ScheduleChanges],
    ) -> Updated:
        """Change a schedule, or with `validate_only` say which of its next times would change.

        What is changed: see `ScheduleChanges`; the rest stays. With the `etag` of a state that
        is no longer the current one it raises `Aborted`.
        """
        call = _schedule_calls.update(
            task_id, changes, etag=etag, validate_only=validate_only, compare_count=compare_count
        )
        return await self._connection.run(call, timeout)

    async def preview(
        self,
        cron: CronSchedule | str | None = None,
        *,
        task_id: str | None = None,
        from_time: datetime | None = None,
        count: int | None = None,
        include_load: bool = False,
        timeout: float | None = None,
    ) -> Preview:
        """Compute the next times of an expression, or of a schedule by its id; changes nothing."""
        call = _schedule_calls.preview(
            cron, task_id, from_time, count=count, include_load=include_load
        )
        return await self._connection.run(call, timeout)
