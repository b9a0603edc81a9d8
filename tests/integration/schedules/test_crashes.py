"""A node that is killed at any step around making, firing and running: no tick is lost or doubled."""

from __future__ import annotations

import os
import random

import pytest

from mainspring_server.domain.schedule import CatchUp, Outcome, Overlap, Policy

from .conftest import Failpoints, Open

SEEDS = int(os.environ.get("MAINSPRING_TEST_CRASH_SEEDS", "40"))
"""Lives of a schedule with crashes, half of them on each store."""

START = 1_767_225_600_000  # 2026-01-01T00:00:00Z
MINUTE = 60_000
EVERYTHING = Policy(overlap=Overlap.ALLOW_ALL)

pytestmark = pytest.mark.timeout(1_200)


async def test_i6_one_outcome_a_tick_whatever_is_killed(open_site: Open) -> None:
    """I6: killed before or after each call of the store, at random."""
    kills: set[str] = set()
    async with open_site(START) as site:
        for seed in range(SEEDS // 2):
            site.points = Failpoints(0.08, random.Random(seed))
            began = site.clock.now() // MINUTE * MINUTE
            schedule = await site.submit("* * * * *", EVERYTHING)
            await site.live(began + 8 * MINUTE)
            kills |= site.points.kills.keys()
            # What a dead node held is ended by the sweeper; then all of it has run.
            site.points = Failpoints()
            await site.live(began + 10 * MINUTE + MINUTE // 2, sweep_ms=5_000)
            counts = await site.check(schedule, [began + n * MINUTE for n in range(1, 11)])
            assert counts == {Outcome.FIRED: 10}
            await site.end(schedule)
        assert site.restarts > SEEDS // 4
    for call in ("visit", "make_ready", "claim_lanes", "succeed", "due_schedules"):
        for side in ("before", "after"):
            assert f"{side} {call}" in kills


@pytest.mark.parametrize(
    "policy",
    [
        Policy(overlap=Overlap.ALLOW_ALL, catch_up=CatchUp.NONE),
        Policy(overlap=Overlap.SKIP, catch_up=CatchUp.LATEST),
        Policy(overlap=Overlap.BUFFER_ALL, catch_up=CatchUp.ALL, max_catch_up=3),
        Policy(overlap=Overlap.CANCEL_OTHER),
    ],
)
async def test_kills_and_standstills_together(open_site: Open, policy: Policy) -> None:
    async with open_site(START) as site:
        site.points = Failpoints(0.05, random.Random(int(policy.overlap)))
        schedule = await site.submit("*/2 * * * *", policy)
        for stop in (7, 20, 31):
            await site.live(START + stop * MINUTE, sweep_ms=5_000)
            site.tick(9 * MINUTE)  # nobody is there
        site.points = Failpoints()
        await site.live(START + 60 * MINUTE, sweep_ms=5_000)
        rows = await site.ledger(schedule)
        ticks = [START + n * MINUTE for n in range(2, 61, 2)]
        assert [row.nominal_at for row in rows] == ticks[: len(rows)]
        assert len(rows) >= len(ticks) - 1
        made = [task.nominal_at for task in await site.tasks(schedule)]
        assert len(made) == len(set(made))
