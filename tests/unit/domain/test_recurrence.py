"""Schedules lived through on virtual time: one outcome per nominal time, whatever happens between."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring_server.domain import recurrence, schedule_changes
from mainspring_server.domain.schedule import CatchUp, Outcome, Overlap, Policy, Source
from mainspring_server.domain.task import Status

from .world import HOUR, MINUTE, START, World


def test_every_tick_fires_once() -> None:
    world = World("*/5 * * * *").live_for(2 * HOUR)
    assert world.nominals() == list(range(5, 121, 5))
    assert world.counts() == {"FIRED": 24}
    assert [moment for moment, _ in world.starts] == [START + n * MINUTE for n in range(5, 121, 5)]


def test_c25_run_now_cancel_and_failure_do_not_disturb_the_series() -> None:
    world = World("*/5 * * * *").live_for(12 * MINUTE)
    world.do(schedule_changes.trigger, None)
    world.live_for(MINUTE)
    assert world.counts(Source.TRIGGER) == {"FIRED": 1}
    task = next(t for t in world.tasks.values() if t.status is Status.PENDING)
    task.status, task.completed_at = Status.CANCELLED, world.now
    world.live_for(10 * MINUTE)
    world.fails = True
    world.live_for(10 * MINUTE)
    assert world.nominals() == [5, 10, 15, 20, 25, 30]
    assert world.counts() == {"FIRED": 5, "CANCELLED": 1}


DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(catch_up=CatchUp.NONE, window_ms=DAY), {"FIRED": 2, "MISSED": 71}),
        (Policy(catch_up=CatchUp.LATEST, window_ms=DAY), {"FIRED": 3, "COALESCED": 70}),
        (
            Policy(catch_up=CatchUp.ALL, window_ms=DAY, overlap=Overlap.ALLOW_ALL),
            {"FIRED": 12, "COALESCED": 61},
        ),
        (Policy(window_ms=HOUR), {"FIRED": 3, "COALESCED": 11, "MISSED": 59}),
    ],
)
def test_c27_down_for_six_hours(policy: Policy, expected: dict[str, int]) -> None:
    world = World("*/5 * * * *", policy).live_for(7 * MINUTE)
    # The instance that was made before fires all the same; nothing else happens for six hours.
    world.materialises = False
    world.live_for(6 * HOUR, step=MINUTE)
    world.materialises = True
    world.live_for(MINUTE + 30_000)
    assert world.nominals() == list(range(5, 366, 5))
    assert world.counts() == expected


def test_catching_up_all_is_spread_out() -> None:
    policy = Policy(catch_up=CatchUp.ALL, window_ms=24 * HOUR, overlap=Overlap.ALLOW_ALL)
    world = World("*/5 * * * *", policy)
    world.do(recurrence.visit)
    world.now += 3 * HOUR
    world.live_for(20_000)
    gaps = [b - a for (a, _), (b, _) in zip(world.starts, world.starts[1:], strict=False)]
    assert len(world.starts) == 11
    assert max(gaps[1:]) <= 2_000


def test_c24_a_tick_during_a_change_of_leader_runs_once_late() -> None:
    world = World("0 0 * * *").live_for(24 * HOUR - 1_000, step=MINUTE)
    world.materialises = False
    world.live_for(40_000)
    world.materialises = True
    world.live_for(MINUTE)
    assert len(world.starts) == 1
    assert world.counts() == {"FIRED": 1}


def test_skip_never_runs_two_at_once() -> None:
    world = World("*/5 * * * *", runs_for=12 * MINUTE).live_for(2 * HOUR)
    assert world.most_at_once() == 1
    counts = world.counts()
    assert counts["SKIPPED"] > counts["FIRED"] > 5
    assert world.nominals() == list(range(5, 121, 5))


def test_an_instance_that_ends_just_before_the_next_lets_it_run() -> None:
    world = World("*/5 * * * *", runs_for=5 * MINUTE - 1_000).live_for(HOUR)
    assert world.counts() == {"FIRED": 12}
    assert world.most_at_once() == 1


@pytest.mark.parametrize("overlap", [Overlap.BUFFER_ONE, Overlap.BUFFER_ALL])
def test_buffered_instances_run_one_after_the_other(overlap: Overlap) -> None:
    world = World("*/5 * * * *", Policy(overlap=overlap), runs_for=7 * MINUTE).live_for(2 * HOUR)
    assert world.most_at_once() == 1
    counts = world.counts()
    if overlap is Overlap.BUFFER_ALL:
        assert counts == {"FIRED": 24}
    else:
        assert counts["SKIPPED"] > 3
    started = len(world.starts)
    assert started >= 2 * HOUR // (7 * MINUTE) - 1


def test_the_buffer_has_a_cap() -> None:
    policy = Policy(overlap=Overlap.BUFFER_ALL, max_buffered=3)
    world = World("* * * * *", policy, runs_for=HOUR).live_for(30 * MINUTE)
    waiting = [t for t in world.tasks.values() if t.status is Status.CREATED]
    assert len(waiting) <= 4
    assert world.counts()["SKIPPED"] >= 25


def test_cancel_other_keeps_the_newest() -> None:
    policy = Policy(overlap=Overlap.CANCEL_OTHER)
    world = World("*/5 * * * *", policy, runs_for=12 * MINUTE).live_for(HOUR)
    running = [t for t in world.tasks.values() if t.status is Status.RUNNING]
    assert len(running) <= 1
    assert world.counts() == {"FIRED": 12}


def test_allow_all_runs_side_by_side() -> None:
    policy = Policy(overlap=Overlap.ALLOW_ALL)
    world = World("*/5 * * * *", policy, runs_for=12 * MINUTE).live_for(HOUR)
    assert world.most_at_once() == 3
    assert world.counts() == {"FIRED": 12}


def test_v5_a_tick_is_not_lost_between_pause_and_resume() -> None:
    world = World("*/5 * * * *").live_for(6 * MINUTE)
    world.do(schedule_changes.pause, "tea")
    assert not [t for t in world.tasks.values() if t.status is Status.PENDING]
    world.live_for(2 * MINUTE)
    world.do(schedule_changes.resume, "", None)
    world.live_for(3 * MINUTE)
    assert world.counts() == {"FIRED": 2}


def test_paused_times_have_their_outcome() -> None:
    world = World("*/5 * * * *").live_for(6 * MINUTE)
    world.do(schedule_changes.pause, "tea")
    world.live_for(30 * MINUTE)
    world.do(schedule_changes.resume, "", None)
    world.live_for(10 * MINUTE)
    assert world.nominals() == list(range(5, 46, 5))
    assert world.counts() == {"FIRED": 3, "PAUSED": 6}


def test_v6_a_tick_that_passed_before_the_pause_was_active() -> None:
    world = World("*/5 * * * *", Policy(overlap=Overlap.ALLOW_ALL)).live_for(4 * MINUTE)
    world.materialises = False
    world.now += 7 * MINUTE
    world.do(schedule_changes.pause, "")
    assert world.counts().get("PAUSED") is None
    assert world.nominals() == [5, 10]


def test_resuming_from_a_later_time() -> None:
    world = World("*/5 * * * *").live_for(6 * MINUTE)
    world.do(schedule_changes.pause, "")
    world.do(schedule_changes.resume, "", START + 21 * MINUTE)
    world.live_for(25 * MINUTE)
    assert world.nominals() == [5, 10, 15, 20, 25, 30]
    assert world.counts() == {"FIRED": 3, "PAUSED": 3}


def test_a_cancelled_schedule_fires_no_more() -> None:
    world = World("*/5 * * * *", runs_for=12 * MINUTE).live_for(7 * MINUTE)
    plan = world.do(schedule_changes.end, "no longer needed")
    assert plan.answer == 2
    started = len(world.starts)
    world.live_for(HOUR)
    assert len(world.starts) == started
    assert world.schedule.next_check_at is None
    assert world.do(schedule_changes.end, "again").answer == 0
    assert not [row for row in world.ledger.values() if row.outcome is Outcome.OPEN]


def test_limited_runs_and_an_end_bound() -> None:
    world = World("*/5 * * * *", max_runs=3).live_for(HOUR)
    assert world.counts() == {"FIRED": 3}
    assert world.schedule.ended_at is not None
    world = World("*/5 * * * *", end_at=START + 15 * MINUTE).live_for(HOUR)
    assert world.nominals() == [5, 10]
    assert world.schedule.ended_at is not None


def test_pause_on_failure() -> None:
    world = World("*/5 * * * *", Policy(pause_on_failure=True))
    world.fails = True
    world.live_for(HOUR)
    assert world.counts()["FIRED"] <= 2
    assert world.schedule.paused_at is not None


def test_a_backfill_is_spread_and_leaves_the_series_alone() -> None:
    world = World("*/5 * * * *").live_for(11 * MINUTE)
    past = [START - n * HOUR for n in range(1, 11)]
    assert world.do(schedule_changes.backfill, past, 2_000, bytes(16)).answer == 10
    world.live_for(30_000)
    assert world.counts(Source.BACKFILL) == {"FIRED": 10}
    moments = [m for m, i in world.starts if world.tasks[i].graph_id == bytes(16)]
    assert moments == sorted(moments)
    assert moments[-1] - moments[0] >= 17_000
    assert world.counts() == {"FIRED": 2}


operations = st.sampled_from(
    ["wait", "wait", "wait", "long", "pause", "resume", "trigger", "stall", "go", "cancel one"]
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(operations, min_size=1, max_size=25),
    st.sampled_from(Overlap),
    st.sampled_from(CatchUp),
)
def test_whatever_happens_each_nominal_time_has_one_outcome(
    steps: list[str], overlap: Overlap, catch_up: CatchUp
) -> None:
    world = World("*/5 * * * *", Policy(overlap=overlap, catch_up=catch_up), runs_for=6 * MINUTE)
    for step in steps:
        if step == "pause":
            world.do(schedule_changes.pause, "")
        elif step == "resume":
            world.do(schedule_changes.resume, "", None)
        elif step == "trigger":
            world.do(schedule_changes.trigger, None)
        elif step in ("stall", "go"):
            world.materialises = step == "go"
        elif step == "cancel one":
            for task in world.tasks.values():
                if not task.terminal:
                    task.status, task.completed_at = Status.CANCELLED, world.now
                    task.version += 1
                    world.resolve()
                    break
        else:
            world.live_for((3 if step == "wait" else 34) * MINUTE, step=30_000)
    world.materialises = True
    world.do(schedule_changes.resume, "", None)
    world.live_for(HOUR, step=30_000)
    ended = world.nominals()
    assert ended == list(range(5, ended[-1] + 1, 5))
    assert ended[-1] >= (world.now - START) // MINUTE - 5
    if overlap in (Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.BUFFER_ALL) and "trigger" not in steps:
        assert world.most_at_once() <= 1 or "cancel one" in steps
