"""What the command prints: JSON for scripts, tables and colours for people, plain text for pipes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.tree import Tree

Row = Sequence[str]

PIPE_WIDTH = 10_000
"""Columns of what is drawn where there is no terminal."""

_STYLES = {
    "CREATED": "bright_black",
    "PENDING": "magenta",
    "READY": "blue",
    "RUNNING": "cyan",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "CANCELLED": "yellow",
    "TIMED_OUT": "red",
    "LOST": "red",
    "SNOOZED": "magenta",
    "PAUSED": "yellow",
    "DRAINING": "yellow",
    "PASSED": "green",
    "BLOCKING": "red",
    "NOT_REACHED": "bright_black",
}


def style_of(word: str) -> str:
    """The colour of a status or an outcome."""
    return _STYLES.get(word, "")


def console(*, stderr: bool = False) -> Console:
    """A console for people on one of the standard streams."""
    # Here, not above: importing rich costs more than all of `mainspring version`.
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)


def for_people() -> bool:
    """Whether standard output is a terminal; a pipe gets plain text."""
    return sys.stdout.isatty()


def clean(text: str) -> str:
    """Text without control characters: what a caller stored must not move the reader's cursor."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in text
    )


def print_json(document: object, *, stderr: bool = False) -> None:
    """One JSON document: indented on a terminal, one line in a pipe."""
    stream = sys.stderr if stderr else sys.stdout
    indent = 2 if stream.isatty() else None
    print(json.dumps(document, indent=indent), file=stream, flush=True)


def print_json_line(document: object) -> None:
    """One line of a stream of JSON documents."""
    print(json.dumps(document), flush=True)


def print_line(text: str = "", *, style: str | None = None) -> None:
    """One line of text, coloured on a terminal."""
    _say(text, style, stderr=False)


def print_note(text: str, *, style: str | None = None) -> None:
    """One line beside the result, on stderr, so that a pipe gets the result alone."""
    _say(text, style, stderr=True)


def _say(text: str, style: str | None, *, stderr: bool) -> None:
    stream = sys.stderr if stderr else sys.stdout
    if style and stream.isatty():
        console(stderr=stderr).print(clean(text), style=style)
    else:
        print(clean(text), file=stream, flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Row], *, empty: str) -> None:
    """A table; in a pipe its columns are aligned with spaces and nothing is cut."""
    found = [[clean(cell) for cell in row] for row in rows]
    if not found:
        print_note(empty)
    elif for_people():
        _print_rich_table(columns, found)
    else:
        _print_plain_table(columns, found)


def _print_plain_table(columns: Sequence[str], rows: list[list[str]]) -> None:
    flat = [[" ".join(cell.split()) or "-" for cell in row] for row in rows]
    lines = [[column.upper().replace(" ", "_") for column in columns], *flat]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def _print_rich_table(columns: Sequence[str], rows: list[list[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        # The first column is what the reader copies into the next command.
        table.add_column(column, no_wrap=index == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console().print(table)


def print_tree(tree: Tree) -> None:
    """A tree; in a pipe nothing of it is cut."""
    out = console()
    if not for_people():
        out.width = PIPE_WIDTH
    out.print(tree, soft_wrap=False)


def print_fields(fields: Mapping[str, str]) -> None:
    """Names and values, one a line; a value of several lines is indented below its name."""
    shown = {name: clean(value) for name, value in fields.items() if value}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        head, *more = value.splitlines() or [""]
        label = name.ljust(width)
        if for_people():
            _print_rich_field(label, head)
        else:
            print(f"{label}  {head}")
        for line in more:
            print(f"{'':{width}}  {line}")


def _print_rich_field(label: str, value: str) -> None:
    from rich.text import Text

    first = value.split(" ", 1)[0]
    line = Text.assemble((label, "bold"), "  ", (value, _STYLES.get(first, "")))
    console().print(line)


def message_document(message: Any) -> dict[str, Any]:
    """A reply of the API as JSON: the proto3 mapping with the contract's field names.

    64-bit numbers are numbers here, not strings: `jq '.ready > 100'` is true for every string.
    """
    from google.protobuf.json_format import MessageToDict

    document: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    _make_numbers(message.DESCRIPTOR, document)
    return document


def _make_numbers(descriptor: Any, document: Any) -> None:
    if not isinstance(document, dict):
        return
    for field in descriptor.fields:
        value = document.get(field.name)
        if value is None:
            continue
        if field.cpp_type == field.CPPTYPE_INT64:
            repeated = isinstance(value, list)
            document[field.name] = [int(item) for item in value] if repeated else int(value)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for item in value if isinstance(value, list) else [value]:
                _make_numbers(field.message_type, item)
