"""Job queues of the Python index on the same PostgreSQL, and Mainspring beside them in the same run.

Each enqueues 500 no-op jobs a call while one worker process with about 100 slots runs what is there,
committed durably. A peer's figure ends when the last job's body ran, Mainspring's when its result is
stored; that the peer has stored everything too is checked afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from ..options import Options
from ..peer_environments import Environment
from ..processes import ROOT, BenchError, Child, CpuMeter, run_once
from ..report import cpu_per_1000
from ..site import Site
from . import drain

TASKS = 10_000
SLOTS = 100
WITHIN_S = 300.0
STORED_WITHIN_S = 30.0
PROGRAMS = ROOT / "bench" / "peers"


class Peer(NamedTuple):
    """One of them: its environment, its default number of jobs, what it is set to."""

    name: str
    environment: Environment
    jobs: int
    config: str
    unfinished: str
    """Counts the jobs whose success is not stored."""


PEERS = (
    Peer(
        "pgqueuer",
        Environment("peers"),
        TASKS,
        "batch 100, uvloop",
        "SELECT count(*) FROM pgqueuer",
    ),
    Peer(
        "procrastinate",
        Environment("peers"),
        2_000,
        "concurrency 100, uvloop",
        "SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'",
    ),
    Peer(
        "oban",
        Environment("peers-oban", at_least=(3, 12)),
        TASKS,
        "limit 100, uvloop",
        "SELECT count(*) FROM oban_jobs WHERE state <> 'completed'",
    ),
)


def run(options: Options) -> dict[str, Any]:
    """Mainspring first, then each of the others alone on a database of its own."""
    if options.rung != "postgres":
        raise BenchError("peers stand on PostgreSQL alone: take the postgres rung")
    # Before anything is measured: an installation is no quiet neighbour.
    pythons = {peer.name: peer.environment.python() for peer in PEERS}
    own = drain.run(
        replace(options, tasks=options.tasks or TASKS, slots=options.slots or SLOTS),
    )
    found: dict[str, dict[str, Any]] = {}
    with Site("postgres", options.folder / "peers") as site:
        site.stop_servers()
        for peer in PEERS:
            python = pythons[peer.name]
            if python is None:
                found[peer.name] = {"left_out": f"needs Python {peer.environment.needs}"}
            else:
                found[peer.name] = _measured(peer, python, site, options)
    keys = (
        *("tasks", "succeeded", "tasks_per_s", "cpu_s_per_1000", "cpu_s_per_1000_by_kind"),
        *("cores_taken_by_others", "batch", "synchronous_commit"),
    )
    return {
        **{key: own[key] for key in keys},
        "enqueue_per_s": own["submit_per_s"],
        **found,
        **beside(own["tasks_per_s"], found),
    }


def beside(tasks_per_s: float, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The fastest of those that were measured, and how many times as fast Mainspring is."""
    rates = {name: one["tasks_per_s"] for name, one in found.items() if "tasks_per_s" in one}
    fastest = max(rates, key=rates.__getitem__)
    return {"fastest_peer": fastest, "ratio": round(tasks_per_s / rates[fastest], 4)}


def _measured(peer: Peer, python: Path, site: Site, options: Options) -> dict[str, Any]:
    jobs = options.tasks or peer.jobs
    url = site.new_database(peer.name)
    program = (str(python), str(PROGRAMS / f"{peer.name}_program.py"))
    run_once([*program, "install", url], f"{peer.name}'s installation")
    durability = asyncio.run(_value(url, "SHOW synchronous_commit"))
    sizes = ("--jobs", str(jobs))
    how = ("--batch", str(options.batch), "--in-flight", str(options.in_flight))
    children: list[Child] = []
    try:
        worker = Child(f"{peer.name}'s worker", [*program, "work", url, *sizes])
        children.append(worker)
        worker.line()
        load = Child(f"{peer.name}'s load", [*program, "enqueue", url, *sizes, *how])
        children.append(load)
        load.line()
        kinds = {"worker": [worker.pid], "load": [load.pid], **site.services()}
        meter = CpuMeter(kinds)
        load.tell()
        began, sent = map(int, load.line(WITHIN_S).split())
        ended = int(worker.line(WITHIN_S))
        seconds, others = meter.read()
        _wait_until_stored(peer, url)
    finally:
        for child in children:
            child.stop()
    return {
        "tasks": jobs,
        "tasks_per_s": round(jobs * 1e9 / (ended - began), 1),
        "enqueue_per_s": round(jobs * 1e9 / (sent - began), 1),
        "cpu_s_per_1000": round(1_000 * sum(seconds.values()) / jobs, 4),
        "cpu_s_per_1000_by_kind": cpu_per_1000(seconds, jobs),
        "cores_taken_by_others": round(others * 1e9 / (ended - began), 2),
        "synchronous_commit": durability,
        "config": peer.config,
        "version": peer.environment.version(peer.name),
    }


def _wait_until_stored(peer: Peer, url: str) -> None:
    """BenchError unless every job's success is stored soon after the last one ran."""
    until = time.monotonic() + STORED_WITHIN_S
    while left := asyncio.run(_value(url, peer.unfinished)):
        if time.monotonic() > until:
            raise BenchError(f"{peer.name}: all jobs ran, but {left} are not stored as succeeded")
        time.sleep(0.05)


async def _value(url: str, query: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()
