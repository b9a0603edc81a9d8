"""The bench measures what it says it does: real processes at tiny sizes, no figure is judged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EVERYWHERE = {
    *("workload", "rung", "tasks", "succeeded", "tasks_per_s", "versions", "batch"),
    *("synchronous_commit", "cores", "python"),
}

pytestmark = pytest.mark.timeout(240)


def bench(workload: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", "--workload", workload, "--rung", "embedded", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def measured(workload: str, *options: str) -> dict[str, Any]:
    done = bench(workload, *options)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result.keys() >= EVERYWHERE
    assert result["succeeded"] == result["tasks"]
    assert result["synchronous_commit"] == "FULL"
    return result


def test_latency_beside_huey() -> None:
    result = measured("latency", "--tasks", "10", "--rate", "50", "--peer-tasks", "5")

    assert result["tasks"] == 10
    assert 0 < result["ms_p50"] <= result["ms_p99"] <= result["ms_max"]
    assert result["huey"]["ms_max"] > 0


def test_drain_beside_huey_and_the_raw_life_cycle() -> None:
    result = measured("drain", "--tasks", "300", "--batch", "50", "--peer-tasks", "20")

    assert result["tasks"] == 300
    assert result["batch"] == {"submit": 50, "in_flight": 4, "slots": 1_000}
    assert result["ratio"] == pytest.approx(
        result["tasks_per_s"] / result["raw_life_cycle_per_s"], rel=1e-3
    )
    assert set(result["cpu_s_per_1000_by_kind"]) == {"server", "worker", "load"}
    assert result["alone"]["tasks_per_s"] > 0
    assert result["huey"]["tasks"] == 20
    assert result["huey"]["synchronous"] == "FULL"


@pytest.mark.parametrize(("workload", "spread_s"), [("delayed", 1.0), ("herd", 0.0)])
def test_due_tasks_are_never_early(workload: str, spread_s: float) -> None:
    result = measured(workload, "--tasks", "40")

    assert result["early"] == 0
    assert result["spread_s"] == spread_s
    assert 0 <= result["late_ms_p50"] <= result["late_ms_p99"] <= result["late_ms_max"]


def test_graphs_run_edge_by_edge_and_in_pairs() -> None:
    result = measured("graph", "--tasks", "200", "--rate", "50", "--seconds", "0.2")

    assert result["tasks"] == 200
    assert result["edges"] == 540
    assert result["edges_per_s"] > 0
    assert 0 < result["ms_p50"] <= result["ms_p99"] <= result["ms_max"]


def test_repeats_show_the_run_in_the_middle_and_all_figures() -> None:
    result = measured(
        "latency", "--tasks", "3", "--rate", "50", "--peer-tasks", "0", "--repeats", "3"
    )

    assert len(result["repeats"]["ms_p99"]) == 3
    assert result["ms_p99"] == sorted(result["repeats"]["ms_p99"])[1]


def test_what_cannot_be_measured_is_said() -> None:
    done = bench("economy")

    assert done.returncode == 1
    assert "distributed" in done.stderr
