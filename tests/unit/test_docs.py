"""The pages say what the code does: links, lines, tables, and what each of them must hold."""

import importlib
import os
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import yaml

from mainspring.v1 import error_pb2
from mainspring_server.admission.limits import Limits
from mainspring_server.api.errors import REASONS
from mainspring_server.config import Settings
from mainspring_server.domain.lifecycle import TRANSITIONS, Event
from mainspring_server.domain.task import Status

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\[[^\]]+\]\((?!https?:|mailto:)(?P<path>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class Links(NamedTuple):
    """The module that keeps the pages up to date, and its tables."""

    generate: ModuleType
    tables: ModuleType


@pytest.fixture(scope="module")
def tools() -> Iterator[Links]:
    sys.path.insert(0, str(DOCS))
    try:
        yield Links(importlib.import_module("generate"), importlib.import_module("tables"))
    finally:
        sys.path.remove(str(DOCS))


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text("utf-8"))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = [
        link["path"]
        for link in LINK.finditer(prose(page))
        if link["path"] and not Path(os.path.normpath(page.parent / link["path"])).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tables_and_line_numbers_are_those_of_the_code(page: Path, tools: Links) -> None:
    text = page.read_text("utf-8")
    assert tools.generate.refreshed(page) == text, "run: .venv/bin/python docs/generate.py"


def linked_lines(tools: Links) -> Iterator[tuple[Path, re.Match[str]]]:
    for page in PAGES:
        for match in tools.generate.LINE_LINK.finditer(page.read_text("utf-8")):
            yield page, match


def test_a_linked_line_names_what_the_link_says(tools: Links) -> None:
    for page, match in linked_lines(tools):
        lines = Path(os.path.normpath(page.parent / match["path"])).read_text("utf-8").splitlines()
        assert match["name"].rpartition(".")[2] in lines[int(match["line"]) - 1], match[0]


def test_every_link_to_a_line_is_one_that_is_checked(tools: Links) -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        anchors = len(re.findall(r"\]\([^)]*#L\d+", text))
        assert anchors == len(list(tools.generate.LINE_LINK.finditer(text))), name_of(page)


def test_the_life_of_a_task_goes_one_way(tools: Links) -> None:
    # A handful of lines for each step, and each step of the way is there, in this order.
    story = prose(DOCS / "life-of-a-task.md")
    way = (
        "SubmitReader.read",
        "Engine.submit",
        "TaskStore.insert",
        "[Wheel]",
        "TriggerService.run_once",
        "[ReadyQueue]",
        "Dispatcher.run_once",
        "LeaseStream",
        "Session.receive",
        "Attempt.call",
        "Engine.complete",
        "TRANSITIONS",
        "SweepService",
    )
    places = [story.index(step) for step in way]
    assert places == sorted(places)


def test_a_name_that_is_gone_is_an_error(tools: Links) -> None:
    with pytest.raises(tools.generate.Broken, match="defines no"):
        tools.generate.line_of(DOCS / "index.md", "generate.py", "nobody")
    with pytest.raises(tools.generate.Broken, match="there is no"):
        tools.generate.line_of(DOCS / "index.md", "nowhere.py", "nobody")


# --- The tables are complete ------------------------------------------------------------------


def test_the_diagram_has_exactly_the_transitions() -> None:
    text = (DOCS / "life-of-a-task.md").read_text("utf-8")
    arrows = re.findall(r"^    (\w+) --> (\w+) : (.+)$", text, re.MULTILINE)
    drawn = {
        (Status[start], Event(event), Status[end])
        for start, end, events in arrows
        for event in events.split(", ")
    }
    assert drawn == {
        (start, event, end) for (start, event), rule in TRANSITIONS.items() for end in rule.to
    }


def test_every_reason_of_the_contract_is_explained(tools: Links) -> None:
    reasons = tools.tables.reasons()
    assert {name for name, _, _ in reasons} == REASONS - {"UNSPECIFIED"}
    assert len(reasons) == len(error_pb2.ErrorReason.values()) - 1
    assert all(re.fullmatch("[A-Z_]+", code) and text for _, code, text in reasons)
    page = (DOCS / "reference/errors.md").read_text("utf-8")
    assert all(f"| `{name}` | {code} |" in page for name, code, _ in reasons)


def test_every_setting_and_every_limit_is_there() -> None:
    page = (DOCS / "reference/configuration.md").read_text("utf-8")
    assert [n for n in Settings.model_fields if f"`MAINSPRING_{n.upper()}`" not in page] == []
    page = (DOCS / "reference/limits.md").read_text("utf-8")
    assert [n for n in Limits.__slots__ if f"| `{n}` |" not in page] == []


# --- Every page can be found ------------------------------------------------------------------


def test_every_decision_is_in_the_index_once() -> None:
    folder = DOCS / "decisions"
    pages = sorted(path.name for path in folder.glob("0*.md"))
    numbers = [name[:4] for name in pages]
    assert len(set(numbers)) == len(numbers)
    linked = re.findall(r"\[(\d{4})\]\((\d{4}[^)]*)\)", (folder / "index.md").read_text("utf-8"))
    assert [target for _, target in linked] == pages
    assert [number for number, _ in linked] == numbers
    for name in pages:
        assert (folder / name).read_text("utf-8").startswith(f"# {name[:4]}: ")


def test_every_page_is_in_the_menu() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    menu = set(re.findall(r"[\w/-]+\.md", str(yaml.safe_load(text)["nav"])))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    patterns = yaml.safe_load(text)["not_in_nav"].split()
    hidden = {page for page in pages if any(fnmatch(f"/{page}", one) for one in patterns)}
    assert pages - menu - hidden == set()
    assert menu - pages == set()


def test_every_link_in_the_code_leads_to_a_page() -> None:
    places = (ROOT / "server", ROOT / "worker_runtime", ROOT / "sdk", ROOT / "examples")
    for place in places:
        for source in place.rglob("*.py"):
            for path in re.findall(r"docs/[\w/-]+\.md", source.read_text("utf-8")):
                assert (ROOT / path).is_file(), f"{source.name} names {path}"
