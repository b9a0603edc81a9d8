"""Keeps what the pages take from the code true: tables between markers, and links to lines.

    python docs/generate.py           # write what has changed
    python docs/generate.py --check   # say what has changed, exit 1

A table stands between `<!-- begin:NAME -->` and `<!-- end:NAME -->`. A link to a line names what is
defined there, `[Engine.submit](../server/…/engine.py#L82)`, and the line follows the definition.
"""

import argparse
import ast
import functools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import tables

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXTRA_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")

LINE_LINK = re.compile(r"\[`?(?P<name>[A-Za-z0-9_.]+)`?\]\((?P<path>[^)#\s]+\.py)#L(?P<line>\d+)\)")
BLOCK = re.compile(r"(<!-- begin:(?P<name>[a-z-]+) -->\n).*?(<!-- end:(?P=name) -->)", re.DOTALL)


class Broken(Exception):
    """A page that names something that is not there."""


def pages() -> list[Path]:
    """Every page that people read."""
    return [*(ROOT / name for name in EXTRA_PAGES), *sorted(DOCS.rglob("*.md"))]


@functools.cache
def definitions(source: Path) -> dict[str, int]:
    """The line of each class, function, method and module-level or class-level name of a file."""
    return dict(_definitions(ast.parse(source.read_text("utf-8")).body, ""))


def _definitions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, int]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, node.lineno
            yield from _definitions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node.lineno
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield prefix + target.id, node.lineno


def line_of(page: Path, path: str, name: str) -> int:
    """The line on which a linked name is defined now."""
    source = Path(os.path.normpath(page.parent / path))
    if not source.is_file():
        raise Broken(f"{page.relative_to(ROOT)}: there is no {path}")
    known = definitions(source)
    if name not in known:
        raise Broken(f"{page.relative_to(ROOT)}: {path} defines no {name}")
    return known[name]


def refreshed(page: Path) -> str:
    """The page's text with its tables and line numbers as the code has them now."""

    def link(match: re.Match[str]) -> str:
        line = line_of(page, match["path"], match["name"])
        return match[0].replace(f"#L{match['line']})", f"#L{line})")

    def table(match: re.Match[str]) -> str:
        make = tables.TABLES.get(match["name"])
        if make is None:
            raise Broken(f"{page.relative_to(ROOT)}: there is no table {match['name']}")
        return f"{match[1]}\n{make().strip()}\n\n{match[3]}"

    return LINE_LINK.sub(link, BLOCK.sub(table, page.read_text("utf-8")))


def main() -> int:
    """Write, or only check; the exit code."""
    parser = argparse.ArgumentParser(description="Bring the pages up to date with the code.")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if needed")
    check = parser.parse_args().check
    stale = 0
    for page in pages():
        text = refreshed(page)
        if text == page.read_text("utf-8"):
            continue
        stale += 1
        sys.stdout.write(f"{'stale' if check else 'updated'}: {page.relative_to(ROOT)}\n")
        if not check:
            page.write_text(text, "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
