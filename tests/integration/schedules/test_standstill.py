"""What passed while nothing ran, and what people do meanwhile, on every store."""

from __future__ import annotations

import asyncio

import pytest

from mainspring_server.domain import recurrence, schedule_changes
from mainspring_server.domain.instances import Mint, Slot
from mainspring_server.domain.schedule import (
    CatchUp,
    Outcome,
    Overlap,
    Plan,
    Policy,
    Source,
    View,
)
from mainspring_server.schedules import Operation

from .conftest import Node, Open

START = 1_767_225_600_000
MINUTE = 60_000
HOUR = 60 * MINUTE


@pytest.mark.parametrize(
    ("catch_up", "fired"), [(CatchUp.NONE, 0), (CatchUp.LATEST, 1), (CatchUp.ALL, 10)]
)
async def test_c27_down_for_six_hours(open_site: Open, catch_up: CatchUp, fired: int) -> None:
    """C27: every five minutes, nobody there for six hours; ALL is capped at ten, and spread."""
    policy = Policy(
        overlap=Overlap.ALLOW_ALL, catch_up=catch_up, window_ms=12 * HOUR, max_catch_up=10
    )
    async with open_site(START) as site:
        schedule = await site.submit("*/5 * * * *", policy)
        await site.live(START + 6 * MINUTE)
        site.tick(6 * HOUR)
        back = site.clock.now()
        await site.live(back + 2 * MINUTE)
        counts = await site.check(schedule, [START + n * 5 * MINUTE for n in range(1, 74)])
        # Two fired on time or stood already made: that of 00:05, and that of 00:10.
        assert counts[Outcome.FIRED] == 2 + fired
        assert sum(counts.values()) == 73
        late = [t for t in await site.tasks(schedule) if t.terminal and t.due_at >= back]
        assert len({task.due_at for task in late}) == len(late) == fired


async def test_c22_a_trigger_that_wakes_early_fires_nothing(open_site: Open) -> None:
    """C22: woken 8 s early, and again at the time: one run."""
    async with open_site(START) as site:
        schedule = await site.submit("* * * * *", Policy())
        await site.live(START + MINUTE - 8_000)
        node = Node(site.store, site.clock)
        await node.open()
        (open_row,) = await site.store.schedules.ledger(schedule, None, 1)
        (early,) = await node.engine.make_ready([open_row.task_id])
        assert early.state.name == "EARLY"
        await site.live(START + MINUTE + 1_000)
        counts = await site.check(schedule, [START + MINUTE])
        assert counts == {Outcome.FIRED: 1}


async def test_c24_a_daily_tick_while_nobody_leads(open_site: Open) -> None:
    """C24: killed 1 s before it, another 40 s later: once, late."""
    async with open_site(START) as site:
        schedule = await site.submit("0 7 * * *", Policy())
        tick = START + 7 * HOUR
        await site.live(tick - 1_000)
        site.tick(41_000)
        await site.live(tick + 60_000)
        counts = await site.check(schedule, [tick])
        assert counts == {Outcome.FIRED: 1}
        (ran,) = [task for task in await site.tasks(schedule) if task.terminal]
        assert ran.started_at == tick + 40_000


async def test_c25_the_series_goes_on_whatever_becomes_of_an_instance(open_site: Open) -> None:
    """C25: run now, cancel one, restart: the next tick still comes, and only once."""
    async with open_site(START) as site:
        schedule = await site.submit("*/10 * * * *", Policy(overlap=Overlap.ALLOW_ALL))
        await site.live(START + 11 * MINUTE)
        node = Node(site.store, site.clock)
        await node.open()
        await node.schedules.change(
            schedule, "default", lambda view, mint: schedule_changes.trigger(view, mint, None)
        )
        (row,) = [row for row in await site.tasks(schedule) if row.due_at == START + 20 * MINUTE]
        assert await node.engine.cancel([row.task_id], "by hand") == {row.task_id}
        await site.live(START + 41 * MINUTE)
        rows = [row for row in await site.ledger(schedule) if row.source is Source.CRON]
        assert [(row.nominal_at - START) // MINUTE for row in rows] == [10, 20, 30, 40]
        assert [row.outcome.name for row in rows] == ["FIRED", "CANCELLED", "FIRED", "FIRED"]


async def test_two_materialisers_at_one_schedule(open_site: Open) -> None:
    """Both see it due, one makes the instance."""
    async with open_site(START) as site:
        schedule = await site.submit("* * * * *", Policy())
        one, two = Node(site.store, site.clock), Node(site.store, site.clock)
        for node in (one, two):
            await node.open()
        for minute in range(1, 6):
            await asyncio.gather(one.work(), two.work())
            await asyncio.gather(one.work(), two.work())
            site.tick(START + minute * MINUTE - site.clock.now())
        await one.work()
        counts = await site.check(schedule, [START + n * MINUTE for n in range(1, 6)])
        assert counts == {Outcome.FIRED: 5}


async def test_v5_changes_race_with_the_materialiser(open_site: Open) -> None:
    """V5, V6: pause and resume at the instant of a tick lose none and double none."""
    async with open_site(START) as site:
        schedule = await site.submit("* * * * *", Policy(overlap=Overlap.ALLOW_ALL))
        node = Node(site.store, site.clock)
        await node.open()
        for minute in range(1, 9):
            await node.work()
            site.tick(START + minute * MINUTE - site.clock.now())
            change = schedule_changes.pause if minute % 2 else _resume
            await asyncio.gather(
                node.work(),
                node.schedules.change(
                    schedule, "default", lambda view, mint, change=change: change(view, mint, "")
                ),
            )
        await site.live(START + 10 * MINUTE)
        rows = await site.ledger(schedule)
        assert [row.nominal_at for row in rows] == [START + n * MINUTE for n in range(1, 11)]
        assert {row.outcome for row in rows} <= {Outcome.FIRED, Outcome.PAUSED}
        made = [task.nominal_at for task in await site.tasks(schedule)]
        assert sum(row.outcome is Outcome.FIRED for row in rows) <= len(made)


def _resume(view: object, mint: object, note: str) -> object:
    return schedule_changes.resume(view, mint, note, None)  # type: ignore[arg-type]


async def test_another_tz_database_moves_what_it_has_to_and_says_so(
    open_site: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site(START) as site:
        stays = await site.submit("0 7 * * *", Policy(), time_zone="Europe/Paris")
        moves = await site.submit("0 9 * * *", Policy(), time_zone="Europe/Paris")
        await site.live(START + HOUR)
        monkeypatch.setattr(schedule_changes, "tzdata_version", lambda: "2099z")
        monkeypatch.setattr("mainspring_server.schedules.tzdata_version", lambda: "2099z")
        # As if the database of before had put nine o'clock an hour later.
        wrong = START + 9 * HOUR
        node = Node(site.store, site.clock)
        await node.open()
        visited = await node.schedules.change(moves, "default", _made_for(wrong))
        assert visited.plan.schedule is not None
        await node.work()
        (row,) = await site.store.schedules.load_schedules([moves])
        assert (row.tz_version, row.next_nominal_at) == ("2099z", START + 8 * HOUR)
        (row,) = await site.store.schedules.load_schedules([stays])
        assert (row.tz_version, row.next_nominal_at) == ("2099z", START + 6 * HOUR)
        told = [text for text in caplog.messages if "tz database 2099z" in text]
        assert len(told) == 1
        assert "moves from 2026-01-01T09:00:00Z to 2026-01-01T08:00:00Z" in told[0]
        await site.live(START + 10 * HOUR)
        assert await site.check(moves, [START + 8 * HOUR]) == {Outcome.FIRED: 1}
        assert await site.check(stays, [START + 6 * HOUR]) == {Outcome.FIRED: 1}


def _made_for(nominal: int) -> Operation:
    """A change that leaves the next instance standing at another time, as an old database would."""

    def change(view: View, mint: Mint) -> Plan:
        visit = recurrence.begin(view, mint)
        recurrence.withdraw(visit, "test")
        recurrence.add(visit, Slot(nominal, nominal))
        plan = recurrence.finish(visit)
        visit.schedule.tz_version = "2000a"
        return plan

    return change
