"""Job queues of the Python index on the same PostgreSQL, and Mainspring beside them in the same run.

Each enqueues 500 a call while one worker process runs what is there: no-op jobs, committed durably.
"""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..options import Options
from ..processes import ROOT, BenchError, Child, CpuMeter, python
from ..report import cpu_per_1000
from ..site import Site
from . import drain

TASKS = 10_000
WITHIN_S = 300.0
PROGRAMS = ROOT / "bench" / "peers"
ENVIRONMENTS = ROOT / ".venv-peers"


class Peer(NamedTuple):
    """One of them: its program, its lock, the Python that it needs, and how many jobs it gets."""

    name: str
    requirements: str
    pythons: tuple[str, ...]
    jobs: int
    config: str


PEERS = (
    Peer("pgqueuer", "peers.txt", (), TASKS, "batch 100, uvloop"),
    Peer("procrastinate", "peers.txt", (), 2_000, "concurrency 100"),
    Peer("oban", "peers-oban.txt", ("python3.12", "python3.13"), 5_000, "limit 100"),
)


def run(options: Options) -> dict[str, Any]:
    """Mainspring first, then each of the others on a database of its own."""
    if options.rung != "postgres":
        raise BenchError("peers stand on PostgreSQL alone: take the postgres rung")
    tasks = options.tasks or TASKS
    own = drain.run(replace(options, tasks=tasks))
    with Site("postgres", options.folder / "peers") as site:
        found = {peer.name: _measured(peer, site, options.tasks or peer.jobs) for peer in PEERS}
    best = max((one["tasks_per_s"] for one in found.values() if "tasks_per_s" in one), default=0.0)
    keys = ("tasks", "succeeded", "tasks_per_s", "cpu_s_per_1000", "batch", "synchronous_commit")
    return {
        **{key: own[key] for key in keys},
        **found,
        "ratio": round(own["tasks_per_s"] / best, 2) if best else 0.0,
    }


def _measured(peer: Peer, site: Site, jobs: int) -> dict[str, Any]:
    executable = _environment(peer)
    if executable is None:
        return {
            "left_out": f"it needs one of {', '.join(peer.pythons)}, and none of them runs here"
        }
    url = site.new_database(peer.name)
    program = [str(executable), str(PROGRAMS / f"{peer.name}_program.py")]

    def command(mode: str) -> list[str]:
        return [*program, mode, url, str(jobs)]

    subprocess.run(command("install"), check=True, capture_output=True, text=True)
    worker = Child(f"{peer.name}'s worker", command("work"))
    try:
        worker.line()
        load = Child(f"{peer.name}'s load", command("enqueue"))
        meter = CpuMeter({"worker": [worker.pid], "load": [load.pid], **site.services()})
        began, sent = map(int, load.line(WITHIN_S).split())
        ended = int(worker.line(WITHIN_S))
        seconds, _ = meter.read()
        load.stop()
    finally:
        worker.stop()
    return {
        "tasks": jobs,
        "tasks_per_s": round(jobs * 1e9 / (ended - began), 1),
        "enqueue_per_s": round(jobs * 1e9 / (sent - began), 1),
        "cpu_s_per_1000": round(1_000 * sum(seconds.values()) / jobs, 4),
        "cpu_s_per_1000_by_kind": cpu_per_1000(seconds, jobs),
        "version": _version(executable, peer.name),
        "config": peer.config,
        "measured_at": int(time.time()),
    }


def _environment(peer: Peer) -> Path | None:
    """The peer's own Python, made once from its hash-pinned lock; None where none is new enough."""
    folder = ENVIRONMENTS / peer.requirements.removesuffix(".txt")
    executable = folder / "bin" / "python"
    lock = ROOT / "requirements" / peer.requirements
    if (folder / "complete").exists():
        return executable
    base = next((name for name in peer.pythons if _runs(name)), None)
    if peer.pythons and base is None:
        return None
    _uv("venv", "--quiet", "--clear", "--python", base or python()[0], str(folder))
    _uv(
        "pip",
        "install",
        "--quiet",
        "--python",
        str(executable),
        "--require-hashes",
        "-r",
        str(lock),
    )
    (folder / "complete").touch()
    return executable


def _runs(name: str) -> bool:
    try:
        return subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _uv(*arguments: str) -> None:
    subprocess.run([str(Path(python()[0]).with_name("uv")), *arguments], check=True)


def _version(executable: Path, name: str) -> str:
    ask = f"import importlib.metadata as m, json; print(json.dumps(m.version({name!r})))"
    done = subprocess.run([str(executable), "-c", ask], check=True, capture_output=True, text=True)
    return str(json.loads(done.stdout))
