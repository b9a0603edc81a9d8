import re
import sys
import tomllib
from pathlib import Path

import pytest

from bench.peer_environments import Environment, is_new_enough
from bench.workloads.peers import PEERS, PROGRAMS, beside

ROOT = Path(__file__).parents[3]
LOCKS = sorted({peer.environment.name for peer in PEERS})


def test_the_ratio_is_to_the_fastest_peer_that_was_measured() -> None:
    found = {
        "slow": {"tasks_per_s": 500.0},
        "fast": {"tasks_per_s": 8_000.0},
        "absent": {"left_out": "needs Python 3.12"},
    }

    assert beside(12_000.0, found) == {"fastest_peer": "fast", "ratio": 1.5}


def test_every_peer_has_a_program() -> None:
    assert {f"{peer.name}_program" for peer in PEERS} | {"program"} == {
        path.stem for path in PROGRAMS.glob("*.py")
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_of_peers_is_hashes_without_addresses(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()

    pinned = re.findall(r"^[a-z0-9._-]+==\S+.*\\$", text, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^[a-z]", text, re.MULTILINE))
    assert "://" not in text
    assert "--index" not in text


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_of_peers_holds_its_dependency_group(lock: str) -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()

    for requirement in groups[lock]:
        assert f"\n{re.split('[^a-z]', requirement)[0]}==" in text


def test_a_python_that_does_not_run_is_not_new_enough(tmp_path: Path) -> None:
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)

    assert is_new_enough(sys.executable, (3, 11))
    assert not is_new_enough(sys.executable, (3, 99))
    assert not is_new_enough(str(shim), (3, 11))
    assert not is_new_enough(str(tmp_path / "none"), (3, 11))


def test_an_environment_is_not_made_where_no_python_is_new_enough() -> None:
    assert Environment("peers", at_least=(3, 99)).python() is None
