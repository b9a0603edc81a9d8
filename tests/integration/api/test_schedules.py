"""Schedules from Submit to their ledger: a whole server on virtual time, a worker, the client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring import (
    Aborted,
    AlreadyExists,
    CatchUp,
    CatchUpPolicy,
    Client,
    CountGroupBy,
    CronSchedule,
    Dependencies,
    DstEffect,
    FailedPrecondition,
    Instance,
    InstanceOutcome,
    InstanceSource,
    InvalidArgument,
    NewTask,
    NotFound,
    OverlapPolicy,
    ResourceExhausted,
    TaskStatus,
)
from mainspring_server.testing import LocalServer
from mainspring_worker import Context, Fail, Runner, Worker

START = datetime(2026, 3, 2, 10, 0, 30, tzinfo=UTC)
"""A Monday, half a minute past ten."""
EVERY_MINUTE = CronSchedule("* * * * *", exact=True)
FIRED, SKIPPED, MISSED, COALESCED, PAUSED, CANCELLED = (
    InstanceOutcome.FIRED,
    InstanceOutcome.SKIPPED,
    InstanceOutcome.MISSED,
    InstanceOutcome.COALESCED,
    InstanceOutcome.PAUSED,
    InstanceOutcome.CANCELLED,
)
PATIENCE = 20.0


def at(hour: int, minute: int, day: int = 2) -> datetime:
    return datetime(2026, 3, day, hour, minute, tzinfo=UTC)


class Report(Worker):
    """Fails while its class says so, and keeps what it ran."""

    task_types = ("report", "collect")

    def __init__(self) -> None:
        self.fails = False

    def handle(self, context: Context, payload: Any) -> Any:
        if self.fails:
            raise Fail("told to")
        return payload


class Place:
    """A server, its clock, a client and a worker."""

    def __init__(self, server: LocalServer, client: Client, worker: Report) -> None:
        self.server = server
        self.client = client
        self.worker = worker

    def ledger(self, schedule: str) -> list[Instance]:
        """Its instances, oldest first."""
        rows = [row for row in self.client.history(schedule) if isinstance(row, Instance)]
        return rows[::-1]

    def closed(self, schedule: str) -> list[tuple[str, InstanceOutcome]]:
        """(time of day, outcome) of what is settled."""
        return [
            (f"{row.nominal_time:%H:%M}", row.outcome)
            for row in self.ledger(schedule)
            if row.nominal_time and row.outcome is not InstanceOutcome.OPEN
        ]

    def eventually(self, what: Callable[[], Any], wanted: Any = True) -> Any:
        """What it answers, once that is what is wanted: the server works on its own thread."""
        until = time.monotonic() + PATIENCE
        while (found := what()) != wanted:
            assert time.monotonic() < until, f"{found!r}, not {wanted!r}"
            time.sleep(0.01)
        return found

    def minute(self, schedule: str, count: int = 1) -> None:
        """Move to the next minutes, one by one, and wait until each has been settled and run."""
        for _ in range(count):
            self.idle(schedule)
            before = len(self.closed(schedule))
            self.server.advance(60)
            self.eventually(lambda before=before: len(self.closed(schedule)) > before)
        self.idle(schedule)

    def idle(self, schedule: str) -> None:
        """Wait until no instance that is due is under way, and the next one exists."""

        def settled() -> bool:
            state = self.client.get_schedule(schedule)
            return not state.live_task_ids and (state.paused or bool(state.next_task_id))

        self.eventually(settled)

    def counts(self, schedule: str) -> Mapping[InstanceOutcome, int]:
        return {row.outcome: row.count for row in self.client.get_schedule(schedule).counts}


@pytest.fixture
def place() -> Iterator[Place]:
    with LocalServer(START) as server, Client(server.address) as client:
        worker = Report()
        runner = Runner([worker], server=server.address, slots=4)
        runner.start()
        yield Place(server, client, worker)
        runner.stop()


@pytest.fixture
def alone() -> Iterator[Place]:
    """Without a worker: instances stay READY."""
    with LocalServer(START) as server, Client(server.address) as client:
        yield Place(server, client, Report())


# --- Submit, Status, History ------------------------------------------------------------------


def test_instances_run_and_the_ledger_says_so(place: Place) -> None:
    submitted = place.client.submit("report", {"n": 1}, cron=EVERY_MINUTE, labels={"team": "a"})
    assert submitted.due_time == at(10, 1)
    schedule = submitted.task_id
    place.minute(schedule, 3)
    assert place.closed(schedule) == [("10:01", FIRED), ("10:02", FIRED), ("10:03", FIRED)]
    first, *_, last = place.ledger(schedule)
    assert (last.outcome, last.nominal_time) == (InstanceOutcome.OPEN, at(10, 4))
    task = place.client.get(first.task_id)
    assert (task.status, task.schedule_id, task.nominal_time, task.due_time) == (
        TaskStatus.SUCCEEDED,
        schedule,
        at(10, 1),
        at(10, 1),
    )
    assert task.labels == {"team": "a"}
    assert task.result() == {"n": 1}
    assert first.source is InstanceSource.CRON
    state = place.client.get_schedule(schedule)
    assert state.next_nominal_time == at(10, 4)
    assert state.cron is not None
    assert state.cron.time_zone == "UTC"
    assert place.counts(schedule) == {FIRED: 3}
    assert place.client.get(schedule).status is TaskStatus.PENDING
    found = place.client.list(f'schedule_id="{schedule}"')
    assert len([task for task in found if task.status is TaskStatus.SUCCEEDED]) == 3


def test_history_comes_in_pages(place: Place) -> None:
    schedule = place.client.submit("report", cron=EVERY_MINUTE).task_id
    place.minute(schedule, 5)
    rows = place.client.history(schedule, page_size=2)
    assert [row.nominal_time for row in rows if isinstance(row, Instance)] == [
        at(10, n) for n in range(6, 0, -1)
    ]


def test_a_key_makes_one_schedule(place: Place) -> None:
    first = place.client.submit("report", cron=EVERY_MINUTE, idempotency_key="k")
    again = place.client.submit("report", cron=EVERY_MINUTE, idempotency_key="k")
    assert (again.task_id, again.existing) == (first.task_id, True)
    with pytest.raises(AlreadyExists):
        place.client.submit("report", cron="0 * * * *", idempotency_key="k")


def test_a_schedule_ends_after_its_last_run(place: Place) -> None:
    cron = CronSchedule("* * * * *", exact=True, max_runs=2)
    schedule = place.client.submit("report", cron=cron).task_id
    place.minute(schedule)
    place.server.advance(60)
    place.eventually(lambda: place.client.get(schedule).status, TaskStatus.SUCCEEDED)
    place.server.advance(600)
    assert place.closed(schedule) == [("10:01", FIRED), ("10:02", FIRED)]
    with pytest.raises(FailedPrecondition) as refused:
        place.client.pause(schedule)
    assert refused.value.reason == "SCHEDULE_ENDED"


@pytest.mark.parametrize(
    ("cron", "reason", "field"),
    [
        (CronSchedule(""), "FIELD_REQUIRED", "schedule.cron.expression"),
        (CronSchedule("* * *"), "CRON_INVALID", "schedule.cron.expression"),
        (CronSchedule("0 0 30 2 *"), "CRON_NEVER_FIRES", "schedule.cron.expression"),
        (CronSchedule("* " * 200), "CRON_INVALID", "schedule.cron.expression"),
        (
            CronSchedule("@daily", time_zone="Mars/Olympus"),
            "TIME_ZONE_UNKNOWN",
            "schedule.cron.time_zone",
        ),
        (CronSchedule("@daily", max_runs=0), "FIELD_INVALID", "schedule.cron.max_runs"),
        (
            CronSchedule("@daily", start_time=at(9, 0), end_time=at(8, 0)),
            "FIELD_INVALID",
            "schedule.cron.end_time",
        ),
        (
            CronSchedule("@daily", catch_up=CatchUp(max_runs=2_000)),
            "FIELD_INVALID",
            "schedule.cron.catch_up.max_runs",
        ),
    ],
)
def test_what_no_schedule_can_be_made_of(
    alone: Place, cron: CronSchedule, reason: str, field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        alone.client.submit("report", cron=cron)
    assert (refused.value.reason, refused.value.metadata["field"]) == (reason, field)
    assert alone.client.count("").total == 0


def test_calls_on_what_is_no_schedule(alone: Place) -> None:
    task = alone.client.submit("report").task_id
    schedule = alone.client.submit("report", cron=EVERY_MINUTE).task_id
    calls: list[Callable[[str], Any]] = [
        alone.client.pause,
        alone.client.resume,
        lambda name: alone.client.update(name, priority=1),
        lambda name: alone.client.backfill(name, at(8, 0), at(9, 0)),
        lambda name: alone.client.preview(task_id=name),
    ]
    for call in calls:
        with pytest.raises(FailedPrecondition) as refused:
            call(task)
        assert refused.value.reason == "NOT_A_SCHEDULE"
        with pytest.raises(NotFound):
            call("0190b2b4-0000-7000-8000-000000000000")
    with pytest.raises(FailedPrecondition) as refused:
        alone.client.retry(schedule)
    assert refused.value.reason == "NOT_A_TASK"
    with pytest.raises(InvalidArgument) as no_predecessor:
        alone.client.submit("report", dependencies=Dependencies(task_ids=(schedule,)))
    assert no_predecessor.value.reason == "PREDECESSOR_IS_SCHEDULE"


# --- Pause, Resume, Cancel --------------------------------------------------------------------


def test_a_pause_keeps_count_of_what_it_held_back(place: Place) -> None:
    schedule = place.client.submit("report", cron=EVERY_MINUTE).task_id
    place.minute(schedule)
    state = place.client.pause(schedule, "maintenance")
    assert (state.paused, state.pause_note, state.next_nominal_time) == (True, "maintenance", None)
    place.server.advance(180)
    state = place.client.resume(schedule, "done")
    assert (state.paused, state.next_nominal_time) == (False, at(10, 5))
    place.idle(schedule)
    place.minute(schedule)
    assert place.closed(schedule) == [
        ("10:01", FIRED),
        *((f"10:0{n}", PAUSED) for n in (2, 3, 4)),
        ("10:05", FIRED),
    ]


def test_resume_from_a_time_in_the_pause_catches_up(place: Place) -> None:
    cron = CronSchedule(
        "* * * * *",
        exact=True,
        catch_up=CatchUp(policy=CatchUpPolicy.ALL, max_runs=10),
        overlap_policy=OverlapPolicy.BUFFER_ALL,
    )
    schedule = place.client.submit("report", cron=cron).task_id
    place.minute(schedule)
    place.client.pause(schedule)
    place.server.advance(240)
    place.client.resume(schedule, resume_from=at(10, 4))
    place.server.advance(1)
    place.eventually(
        lambda: place.closed(schedule)[:5],
        [
            ("10:01", FIRED),
            ("10:02", PAUSED),
            ("10:03", PAUSED),
            ("10:04", FIRED),
            ("10:05", FIRED),
        ],
    )


def test_nobody_resumes_in_a_hundred_years(alone: Place) -> None:
    schedule = alone.client.submit("report", cron=EVERY_MINUTE).task_id
    alone.client.pause(schedule)
    with pytest.raises(InvalidArgument) as refused:
        alone.client.resume(schedule, resume_from=datetime(2200, 1, 1, tzinfo=UTC))
    assert refused.value.metadata["field"] == "resume_from_time"
    assert alone.client.get_schedule(schedule).paused


def test_a_failure_pauses_a_schedule_that_asks_for_it(place: Place) -> None:
    cron = CronSchedule("* * * * *", exact=True, pause_on_failure=True)
    schedule = place.client.submit("report", cron=cron).task_id
    place.worker.fails = True
    place.idle(schedule)
    place.server.advance(60)
    place.eventually(
        lambda: place.client.get(place.ledger(schedule)[0].task_id).status.name, "FAILED"
    )
    place.server.advance(60)
    place.eventually(lambda: place.client.get_schedule(schedule).paused)
    assert "fail" in place.client.get_schedule(schedule).pause_note.lower()


def test_cancel_ends_it_and_counts_what_it_took_along(alone: Place) -> None:
    cron = CronSchedule("* * * * *", exact=True, overlap_policy=OverlapPolicy.ALLOW_ALL)
    schedule = alone.client.submit("report", cron=cron).task_id
    for n in range(1, 4):
        alone.server.advance(60)
        alone.eventually(lambda: len(alone.client.get_schedule(schedule).live_task_ids), n)
        alone.eventually(lambda: bool(alone.client.get_schedule(schedule).next_task_id))
    assert alone.client.cancel(schedule, "enough") == 4
    assert alone.client.cancel(schedule) == 0
    task = alone.client.get(schedule)
    assert (task.status, task.status_reason) == (TaskStatus.CANCELLED, "enough")
    alone.server.advance(600)
    rows = alone.ledger(schedule)
    assert [row.task_status for row in rows] == [TaskStatus.CANCELLED] * 3
    assert {row.outcome for row in rows} == {FIRED}
    assert "over: enough" in alone.client.explain(schedule).summary
    assert alone.client.preview(task_id=schedule).fires == ()


# --- Overlap and catch-up ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "outcomes", "live"),
    [
        (OverlapPolicy.SKIP, [FIRED, SKIPPED, SKIPPED], 1),
        (OverlapPolicy.ALLOW_ALL, [FIRED, FIRED, FIRED], 3),
        (OverlapPolicy.CANCEL_OTHER, [FIRED, FIRED, FIRED], 1),
        (OverlapPolicy.BUFFER_ALL, [FIRED, FIRED, FIRED], 3),
        (OverlapPolicy.BUFFER_ONE, [FIRED, FIRED, SKIPPED], 2),
    ],
)
def test_overlap_while_nobody_runs_anything(
    alone: Place, policy: OverlapPolicy, outcomes: list[InstanceOutcome], live: int
) -> None:
    cron = CronSchedule("* * * * *", exact=True, overlap_policy=policy)
    schedule = alone.client.submit("report", cron=cron).task_id
    alone.eventually(lambda: bool(alone.client.get_schedule(schedule).next_task_id))
    for n in range(1, 4):
        alone.server.advance(60)
        alone.eventually(lambda n=n: len(alone.closed(schedule)), n)
        alone.eventually(
            lambda n=n: alone.client.get_schedule(schedule).next_nominal_time, at(10, n + 1)
        )
    assert [outcome for _, outcome in alone.closed(schedule)] == outcomes
    assert len(alone.client.get_schedule(schedule).live_task_ids) == live


@pytest.mark.parametrize(
    ("catch_up", "fired"),
    [
        (CatchUp(policy=CatchUpPolicy.NONE), 0),
        (CatchUp(policy=CatchUpPolicy.LATEST), 1),
        (CatchUp(policy=CatchUpPolicy.ALL, max_runs=10, window=timedelta(hours=12)), 10),
    ],
)
def test_six_hours_pass_at_once(place: Place, catch_up: CatchUp, fired: int) -> None:
    cron = CronSchedule(
        "*/5 * * * *",
        exact=True,
        catch_up=catch_up,
        overlap_policy=OverlapPolicy.ALLOW_ALL,
    )
    schedule = place.client.submit("report", cron=cron).task_id
    place.eventually(lambda: bool(place.client.get_schedule(schedule).next_task_id))
    # The instance of 10:05 exists by then and fires late; the other 71 passed unseen.
    place.server.advance(timedelta(hours=6))

    def unseen() -> int:
        counts = place.counts(schedule)
        return counts.get(MISSED, 0) + counts.get(COALESCED, 0)

    place.eventually(unseen, 71 - fired)
    for _ in range(fired):  # spread: one a while
        place.server.advance(20)
    place.eventually(lambda: place.counts(schedule).get(FIRED, 0), 1 + fired)
    rows = [row for row in place.ledger(schedule) if row.outcome is FIRED][1:]
    assert [row.nominal_time for row in rows] == [
        at(16, 0) - timedelta(minutes=5 * n) for n in reversed(range(fired))
    ]
    due = [row.due_time for row in rows]
    assert len(set(due)) == fired


# --- Trigger, Backfill ------------------------------------------------------------------------


def test_trigger_makes_an_extra_instance_once_a_key(place: Place) -> None:
    schedule = place.client.submit("report", 7, cron="0 5 * * *").task_id
    first = place.client.trigger(schedule, idempotency_key="now")
    again = place.client.trigger(schedule, idempotency_key="now")
    assert (again.task_id, again.existing) == (first.task_id, True)
    assert place.client.wait(first.task_id, timeout=PATIENCE).result() == 7
    other = place.client.trigger(schedule)
    assert other.task_id != first.task_id
    place.client.pause(schedule)
    paused = place.client.trigger(schedule)
    assert place.client.wait(paused.task_id, timeout=PATIENCE).status is TaskStatus.SUCCEEDED
    made = [row for row in place.ledger(schedule) if row.source is InstanceSource.TRIGGER]
    assert {row.task_id for row in made} == {first.task_id, other.task_id, paused.task_id}


def test_trigger_lets_a_pending_task_run_now(place: Place) -> None:
    task = place.client.submit("report", delay=3_600).task_id
    assert place.client.trigger(task).task_id == task
    assert place.client.wait(task, timeout=PATIENCE).status is TaskStatus.SUCCEEDED


def test_backfill_is_half_open_and_leaves_out_what_fired(place: Place) -> None:
    schedule = place.client.submit("report", cron="0 * * * *").task_id
    counted = place.client.backfill(schedule, at(2, 0), at(6, 0), dry_run=True)
    assert (counted.backfill_id, counted.instances) == ("", 4)
    assert (counted.first_nominal_time, counted.last_nominal_time) == (at(2, 0), at(5, 0))
    assert not [row for row in place.ledger(schedule) if row.source is InstanceSource.BACKFILL]
    made = place.client.backfill(
        schedule, at(2, 0), at(6, 0), max_rate=1_000, overlap_policy=OverlapPolicy.ALLOW_ALL
    )
    assert made.instances == 4

    def fired() -> list[datetime | None]:
        return [row.nominal_time for row in place.ledger(schedule) if row.outcome is FIRED]

    place.server.advance(1)
    place.eventually(fired, [at(n, 0) for n in range(2, 6)])
    assert place.client.backfill(schedule, at(1, 0), at(7, 0), dry_run=True).instances == 2
    with pytest.raises(InvalidArgument) as refused:
        place.client.backfill(schedule, at(2, 0), at(12, 0))
    assert refused.value.metadata["field"] == "end_time"


def test_a_backfill_goes_at_its_rate_and_is_stopped(place: Place) -> None:
    schedule = place.client.submit("report", cron="0 * * * *").task_id
    place.eventually(lambda: bool(place.client.get_schedule(schedule).next_task_id))
    made = place.client.backfill(
        schedule, at(0, 0), at(10, 0), max_rate=0.1, overlap_policy=OverlapPolicy.ALLOW_ALL
    )
    assert made.instances == 10

    def fired() -> int:
        rows = [row for row in place.ledger(schedule) if row.source is InstanceSource.BACKFILL]
        return sum(row.task_status is TaskStatus.SUCCEEDED for row in rows)

    place.eventually(fired, 1)
    place.server.advance(10)
    place.eventually(fired, 2)
    assert place.client.cancel(made.backfill_id) == 8
    place.server.advance(600)
    rows = [row for row in place.ledger(schedule) if row.source is InstanceSource.BACKFILL]
    assert [row.outcome for row in rows] == [FIRED] * 2 + [CANCELLED] * 8


# --- Update, Preview --------------------------------------------------------------------------


def test_update_tells_the_difference_and_minds_the_etag(place: Place) -> None:
    schedule = place.client.submit("report", 1, cron=CronSchedule("0 * * * *", exact=True)).task_id
    etag = place.client.get_schedule(schedule).etag
    change = {"cron": CronSchedule("0 */2 * * *", exact=True)}
    would = place.client.update(schedule, validate_only=True, compare_count=4, **change)  # type: ignore[arg-type]
    assert would.removed_times == (at(11, 0), at(13, 0))
    assert would.added_times == (at(18, 0),) or would.added_times == ()
    assert place.client.get_schedule(schedule).etag == etag
    place.client.update(schedule, etag=etag, payload=2, **change)  # type: ignore[arg-type]
    with pytest.raises(Aborted) as refused:
        place.client.update(schedule, etag=etag, priority=1)
    assert refused.value.reason == "VERSION_MISMATCH"
    place.eventually(lambda: place.client.get_schedule(schedule).next_nominal_time, at(12, 0))
    place.idle(schedule)
    place.server.advance(timedelta(hours=2))
    place.eventually(lambda: place.closed(schedule), [("12:00", FIRED)])
    task_id = place.ledger(schedule)[0].task_id
    assert place.client.wait(task_id, timeout=PATIENCE).result() == 2


def test_preview_flags_clock_changes_and_tells_the_load(alone: Place) -> None:
    fires = alone.client.preview(
        CronSchedule("30 2 * * *", time_zone="Europe/Berlin"),
        from_time=datetime(2026, 3, 28, 12, tzinfo=UTC),
        count=2,
    ).fires
    assert [(fire.local_time, fire.dst_effect) for fire in fires] == [
        ("2026-03-29T03:00:00+02:00", DstEffect.AFTER_GAP),
        ("2026-03-30T02:30:00+02:00", DstEffect.NONE),
    ]
    alone.client.submit_batch([NewTask("report", due_time=at(12, 0)) for _ in range(3)])
    loads = alone.client.preview("0 12 * * *", include_load=True, count=2).fires
    assert [fire.load for fire in loads] == [3, 0]


# --- Recurring graphs -------------------------------------------------------------------------


def test_a_graph_recurs_as_a_whole(place: Place) -> None:
    made = place.client.submit_graph(
        [
            NewTask("report", 1, local_ref="a"),
            NewTask("report", 2, local_ref="b"),
            NewTask("collect", 3, dependencies=Dependencies(local_refs=("a", "b"))),
        ],
        cron=EVERY_MINUTE,
    )
    assert made.schedule is not None
    schedule = made.schedule.task_id
    place.minute(schedule, 2)
    assert place.closed(schedule) == [("10:01", FIRED), ("10:02", FIRED)]
    graphs = {
        task.graph_id
        for task in place.client.list(f'schedule_id="{schedule}" AND status=SUCCEEDED')
    }
    assert len(graphs) == 2
    for graph_id in graphs:
        assert place.client.get_graph(graph_id).tasks == 3


def test_a_cron_task_in_a_graph_is_told_where_cron_belongs(alone: Place) -> None:
    with pytest.raises(InvalidArgument) as refused:
        alone.client.submit_graph([NewTask("report", cron="@daily")])
    assert refused.value.metadata["field"] == "requests[0].schedule"
    assert "the batch's own cron" in str(refused.value)


def test_a_backfill_of_graphs_is_bounded_by_its_tasks(alone: Place) -> None:
    tasks = [NewTask("report", local_ref=f"t{n}") for n in range(500)]
    cron = CronSchedule("0 * * * *", start_time=START - timedelta(days=30))
    made = alone.client.submit_graph(tasks, cron=cron)
    assert made.schedule is not None
    schedule = made.schedule.task_id
    policy = OverlapPolicy.ALLOW_ALL
    with pytest.raises(ResourceExhausted) as refused:
        alone.client.backfill(
            schedule, at(0, 0, day=1), at(10, 0), max_rate=1_000, overlap_policy=policy
        )
    assert refused.value.metadata["limit"] == "10"
    few = alone.client.backfill(
        schedule, at(8, 0), at(10, 0), max_rate=1_000, overlap_policy=policy
    )
    assert few.instances == 2
    assert alone.client.cancel(schedule) >= 2
    counted = alone.client.count("", group_by=[CountGroupBy.STATUS])
    assert {str(group.status) for group in counted.groups} == {"CANCELLED"}
