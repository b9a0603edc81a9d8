"""The tables that the pages take from the code; see generate.py."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path

import words

from mainspring_server.admission.limits import Limits
from mainspring_server.api import filter as filters
from mainspring_server.config import Settings
from mainspring_server.domain.lifecycle import TRANSITIONS
from mainspring_server.domain.task import Status

ROOT = Path(__file__).resolve().parents[1]
ERRORS = ROOT / "proto/mainspring/v1/error.proto"
SERVER = ROOT / "server/src/mainspring_server"
REASON = re.compile(r"((?:^ *//[^\n]*\n)+)^ *ERROR_REASON_([A-Z_]+) = (\d+);", re.MULTILINE)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = " | ".join(cell.replace("|", r"\|") for cell in row)
        lines.append(f"| {cells} |")
    return "\n".join(lines)


# --- The state machine ------------------------------------------------------------------------


def lifecycle_diagram() -> str:
    """All transitions, those between the same two states on one arrow."""
    arrows: dict[tuple[Status, Status], list[str]] = {}
    for (status, event), rule in TRANSITIONS.items():
        for to in sorted(rule.to):
            arrows.setdefault((status, to), []).append(event.value)
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {status.name} : submit" for status in words.BEGINNINGS]
    lines += [
        f"    {start.name} --> {end.name} : {', '.join(events)}"
        for (start, end), events in arrows.items()
    ]
    ends = sorted({end for _, end in arrows} - {start for start, _ in arrows})
    lines += [f"    {status.name} --> [*]" for status in ends]
    return "```mermaid\n" + "\n".join(lines) + "\n```"


def transitions() -> str:
    """One row a transition."""
    rows = [
        (
            status.name,
            f"`{event.value}`",
            " or ".join(to.name for to in sorted(rule.to)),
            {0: "", 1: "+1", -1: "-1"}[rule.attempt],
            words.EVENTS[event],
        )
        for (status, event), rule in TRANSITIONS.items()
    ]
    return table(("From", "Event", "To", "Attempts", "When"), rows)


# --- Errors -----------------------------------------------------------------------------------


def reasons() -> list[tuple[str, str, str]]:
    """Each reason of the contract: its name, its code, what its comment says."""
    found = []
    for match in REASON.finditer(ERRORS.read_text("utf-8")):
        comment = " ".join(line.strip(" /") for line in match[1].splitlines())
        code, _, rest = comment.partition(". ")
        if match[3] != "0":
            found.append((match[2], code, rest))
    return found


def sent(reason: str) -> bool:
    """Whether the server's source names the reason, so that it may be sent."""
    return f'"{reason}"' in _server_source()


@functools.cache
def _server_source() -> str:
    # The command line knows reasons that it only receives.
    paths = [path for path in SERVER.rglob("*.py") if "cli" not in path.parts]
    return "\n".join(path.read_text("utf-8") for path in sorted(paths))


def errors() -> str:
    """One row a reason."""
    rows = [
        (f"`{name}`", code, text if sent(name) else f"{text} *Not sent by this version.*")
        for name, code, text in reasons()
    ]
    return table(("Reason", "Code", "Meaning, and what to do"), rows)


# --- Configuration ----------------------------------------------------------------------------


def _bounds(name: str) -> str:
    low = high = None
    for item in Settings.model_fields[name].metadata:
        low = getattr(item, "ge", low)
        high = getattr(item, "le", high)
    return "" if low is None else f"{low:,} to {high:,}"


def _default(name: str) -> str:
    if name in words.COMPUTED:
        return words.COMPUTED[name]
    value = Settings.model_fields[name].default
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"`{value}`"


def configuration() -> str:
    """One row a setting."""
    rows = [
        (f"`MAINSPRING_{name.upper()}`", _default(name), _bounds(name), words.SETTINGS[name])
        for name in Settings.model_fields
    ]
    return table(("Variable", "Default", "Range", ""), rows)


def _readable(name: str, value: float) -> str:
    if name.endswith("_ms"):
        return (
            str(timedelta(milliseconds=value)).replace(", 0:00:00", "").replace("0:01:00", "1 min")
        )
    if name.endswith("_bytes"):
        mib, rest = divmod(int(value), 1024 * 1024)
        return f"{mib} MiB" if not rest else f"{int(value) // 1024} KiB"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def limits() -> str:
    """One row a limit."""
    rows = [
        (f"`{field.name}`", _readable(field.name, field.default), words.LIMITS[field.name])
        for field in dataclasses.fields(Limits)
    ]
    return table(("Limit", "Value", "Of"), rows)


def defaults() -> str:
    """One row a constant that a user meets."""
    rows = [(what, value, f"`{where}`") for what, value, where in words.defaults()]
    return table(("What", "Value", "Where"), rows)


# --- Filters ----------------------------------------------------------------------------------


def filter_fields() -> str:
    """One row a field."""
    fields = {**filters.FIELDS, "labels.KEY": filters.LABEL}
    rows = [
        (
            f"`{name}`",
            " ".join(f"`{operator}`" for operator in operators),
            words.VALUES[read.__name__],
        )
        for name, (read, operators) in fields.items()
    ]
    return table(("Field", "Operators", "Value"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "lifecycle-diagram": lifecycle_diagram,
    "transitions": transitions,
    "errors": errors,
    "configuration": configuration,
    "limits": limits,
    "defaults": defaults,
    "filter-fields": filter_fields,
}
