r"""A crontab read line by line, as Debian's cron reads it: pure, no file and no server.

A line is an entry, an environment line, a comment or blank. In a command `%` ends a line: what
follows the first one goes to the command's standard input, `\%` is the character itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_ENVIRONMENT = re.compile(r"\s*(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*?)\s*")
_NICKNAME = re.compile(r"\s*(?P<expression>@every\s+\S+|@\S+)\s+(?P<rest>\S.*)")
_FIELDS = re.compile(r"\s*(?P<expression>(?:\S+\s+){4}\S+)\s+(?P<rest>\S.*)")
_PERCENT = re.compile(r"(\\?)%")
_USER = re.compile(r"(?P<user>\S+)\s+(?P<rest>\S.*)")

ZONES = ("CRON_TZ", "TZ")
"""The lines that name the zone of the entries below them; CRON_TZ goes first."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One command and when it runs."""

    line: int
    expression: str
    command: str
    stdin: str | None = None
    user: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    time_zone: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that no schedule can be made of, and why."""

    line: int
    text: str
    reason: str


def read_crontab(text: str, *, with_user: bool = False) -> Iterator[Entry | Refused]:
    """The entries of a crontab; `with_user`: a sixth field names the user, as in /etc/crontab."""
    environment: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        assigned = _ENVIRONMENT.fullmatch(line)
        if assigned:
            environment[assigned["name"]] = _unquoted(assigned["value"])
            continue
        yield _entry(number, line, environment, with_user)


def _entry(
    number: int, line: str, environment: Mapping[str, str], with_user: bool
) -> Entry | Refused:
    found = _NICKNAME.fullmatch(line) or _FIELDS.fullmatch(line)
    if found is None:
        return Refused(
            number, line.strip(), "it is neither NAME=value nor five fields and a command"
        )
    expression, rest, user = " ".join(found["expression"].split()), found["rest"], None
    if expression.lower() == "@reboot":
        return Refused(
            number, line.strip(), "@reboot names no time: start it with the machine's init system"
        )
    if with_user:
        named = _USER.fullmatch(rest)
        if named is None:
            return Refused(number, line.strip(), "the user or the command is missing")
        user, rest = named["user"], named["rest"]
    command, stdin = _split(rest.rstrip())
    zone = next((environment[name] for name in ZONES if environment.get(name)), "")
    kept = {name: value for name, value in environment.items() if name != "CRON_TZ"}
    return Entry(number, expression, command, stdin, user, kept, zone)


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _split(rest: str) -> tuple[str, str | None]:
    """Command and standard input: the first bare % parts them, further ones are line ends."""
    parts, last = [""], 0
    for match in _PERCENT.finditer(rest):
        parts[-1] += rest[last : match.start()]
        last = match.end()
        if match[1]:
            parts[-1] += "%"
        else:
            parts.append("")
    parts[-1] += rest[last:]
    command, *lines = parts
    if not lines:
        return command, None
    text = "\n".join(lines)
    return command, text if text.endswith("\n") else f"{text}\n"
