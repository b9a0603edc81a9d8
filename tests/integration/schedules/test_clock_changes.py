"""Two days over both clock changes of six zones: the ledger is the reference, tick for tick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mainspring_server.domain.schedule import Outcome, Overlap, Policy

from ...conformance.test_calendar_zones import CASES, reference
from .conftest import Open

EXPRESSIONS = (
    ("30 1 * * *", False),
    ("15,45 0-4 * * *", False),
    ("*/15 * * * *", True),
    ("10 */2 * * *", True),
)
"""With fixed times, and in real time."""


async def live_through(open_site: Open, zone: str, change: str) -> None:
    start = datetime.fromisoformat(change).replace(tzinfo=UTC) - timedelta(hours=24)
    begin = int(start.timestamp()) * 1_000
    end = begin + 48 * 3_600_000 - 1
    async with open_site(begin - 1_000) as site:  # a tick at the very begin counts
        made = {
            expression: await site.submit(
                expression, Policy(overlap=Overlap.ALLOW_ALL), time_zone=zone
            )
            for expression, _ in EXPRESSIONS
        }
        await site.live(end)
        for expression, real_time in EXPRESSIONS:
            ticks = reference(expression, zone, start, real_time=real_time)
            expected = [tick for tick in ticks if begin <= tick <= end]
            counts = await site.check(made[expression], expected)
            assert counts == {Outcome.FIRED: len(expected)}


@pytest.mark.parametrize(("zone", "change"), CASES)
async def test_the_ledger_is_the_reference(open_sqlite: Open, zone: str, change: str) -> None:
    await live_through(open_sqlite, zone, change)


async def test_the_ledger_is_the_reference_on_every_store(open_site: Open) -> None:
    await live_through(open_site, "America/New_York", "2023-11-05T06:00:00")
