"""The house rules that no linter knows: sizes, names, words, and one version."""

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainspring
import mainspring_server
import mainspring_worker

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "sdk/python/src", ROOT / "worker_runtime/src", ROOT / "server/src"]
MODULE_LINES = 400
FUNCTION_LINES = 50
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager"}


def modules() -> Iterator[Path]:
    """Every hand-written module of the three packages."""
    for source in SOURCES:
        yield from (path for path in source.rglob("*.py") if "_pb2" not in path.name)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_modules_stay_small() -> None:
    sizes = {name(path): len(path.read_text().splitlines()) for path in modules()}
    assert {path: size for path, size in sizes.items() if size > MODULE_LINES} == {}


def test_functions_stay_small() -> None:
    long = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                start = first.end_lineno if is_docstring else node.lineno
                size = (node.end_lineno or 0) - (start or 0)
                if size > FUNCTION_LINES:
                    long[f"{name(path)}:{node.name}"] = size
    assert long == {}


def test_modules_are_named_for_what_they_hold() -> None:
    assert [name(path) for path in modules() if path.stem in VAGUE_NAMES] == []


def test_one_version() -> None:
    assert mainspring.__version__ == mainspring_worker.__version__ == mainspring_server.__version__


def test_changelog_knows_the_version() -> None:
    assert f"## {mainspring_server.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("lock", ["dev", "run", "uv"])
def test_lock_names_no_host(lock: str) -> None:
    text = (ROOT / f"requirements/{lock}.txt").read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "--hash=sha256:" in text


def test_lock_holds_every_dependency() -> None:
    locked = (ROOT / "requirements/run.txt").read_text()
    missing = []
    for member in ("sdk/python", "worker_runtime", "server"):
        project = tomllib.loads((ROOT / member / "pyproject.toml").read_text())["project"]
        for requirement in project["dependencies"]:
            package = requirement.split(">=")[0].split("[")[0]
            if not package.startswith("mainspring-") and f"\n{package}==" not in locked:
                missing.append(package)
    assert missing == []


def test_uv_lock_stays_out() -> None:
    ignored = subprocess.run(["git", "check-ignore", "-q", "uv.lock"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
