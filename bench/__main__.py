"""`python -m bench --workload NAME --rung RUNG`: measure, and print one line of JSON last."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from .options import Options
from .processes import ROOT, BenchError
from .report import machine, versions
from .site import RUNGS

WORKLOADS = ("latency", "drain", "delayed", "herd", "economy", "graph", "schedules", "peers")
RESULTS = ROOT / "bench" / "results"


def main() -> int:
    """Run what was asked for; 0 if it was measured and every task SUCCEEDED."""
    arguments = _parser().parse_args()
    repeats: int = arguments.repeats
    RESULTS.mkdir(parents=True, exist_ok=True)
    results = []
    try:
        for number in range(repeats):
            result = _run(arguments)
            results.append(result)
            if repeats > 1:
                print(f"{number + 1}/{repeats}: {json.dumps(result)}", flush=True)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    line = json.dumps(_summary(results))
    name = f"{arguments.workload}-{arguments.rung}.jsonl"
    with (RESULTS / name).open("a") as file:
        file.write(line + "\n")
    print(line)
    return 0


def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {key: value for key, value in vars(arguments).items() if key != "repeats"}
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=RESULTS))
    try:
        module = import_module(f"bench.workloads.{arguments.workload}")
        result: dict[str, Any] = module.run(Options(folder=folder, **given))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    head = {"workload": arguments.workload, "rung": arguments.rung}
    return {**head, **result, **machine(), "versions": versions()}


def _summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The run in the middle, by its ratio, else by its latency; the other figures beside it."""
    if len(results) == 1:
        return results[0]
    keys = ("ratio", "ms_p99", "late_ms_p99", "tasks_per_s")
    key = next(name for name in keys if name in results[0])
    middle = statistics.median_low([result[key] for result in results])
    chosen = next(result for result in results if result[key] == middle)
    shown = [name for name in (*keys, "ms_p50", "cpu_s_per_1000") if name in results[0]]
    return {**chosen, "repeats": {name: [result[name] for result in results] for name in shown}}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--rung", choices=RUNGS, default="distributed")
    parser.add_argument("--tasks", type=int, help="how many tasks")
    parser.add_argument("--batch", type=int, default=500, help="tasks of one SubmitBatch")
    parser.add_argument("--in-flight", type=int, default=4, help="batches under way at a time")
    parser.add_argument("--slots", type=int, help="tasks at a time of a worker process")
    parser.add_argument("--workers", type=int, default=1, help="worker processes")
    parser.add_argument("--processes", type=int, default=1, help="server processes (postgres)")
    parser.add_argument(
        "--rate", type=float, help="tasks a second (latency, economy), pairs (graph)"
    )
    parser.add_argument("--seconds", type=float, help="how long (latency, economy, graph)")
    parser.add_argument("--peer-tasks", type=int, help="tasks for huey; 0 leaves it out")
    parser.add_argument("--repeats", type=int, default=1, help="how often; the middle is shown")
    return parser


if __name__ == "__main__":
    sys.exit(main())
