"""What people write on a command line: durations, times, labels, payloads, addresses."""

from __future__ import annotations

import json
import math
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from .exits import CliError, ExitCode, usage_error

_UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d|w)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")
# protobuf's Duration and Timestamp end at 10,000 years; the server has the real limits.
_LONGEST_MS = 315_576_000_000_000


def parse_duration(text: str, option: str) -> int:
    """Milliseconds of "90", "1.5s", "250ms", "1h30m" or "2d"; a bare number means seconds."""
    compact = text.strip().lower()
    if _NUMBER.fullmatch(compact):
        compact += "s"
    parts = _PART.findall(compact)
    left_over = _PART.sub("", compact).strip()
    if not parts or left_over:
        raise usage_error(
            f"{option}: {text!r} is no duration",
            hint="Write a number and a unit: 250ms, 90s, 1.5h, 1h30m, 2d. Units: ms, s, m, h, d, w.",
        )
    total = sum(float(number) * _UNITS_MS[unit] for number, unit in parts)
    if total > _LONGEST_MS:
        raise usage_error(f"{option}: {text!r} is longer than 10,000 years")
    return math.ceil(round(total, 6))


def parse_instant(text: str, option: str) -> datetime:
    """An RFC 3339 time in UTC; without an offset it is UTC, whatever the zone of this machine.

    One whose offset takes it out of the years 1 to 9999 becomes their end: the server has the limits.
    """
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise usage_error(
            f"{option}: {text!r} is no time",
            hint="Write RFC 3339, such as 2030-01-31T08:00:00Z or 2030-01-31T08:00:00+02:00.",
        ) from None
    try:
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
        return datetime(1, 1, 1, tzinfo=UTC) if instant.year == 1 else last


def parse_labels(pairs: list[str], option: str = "--label") -> dict[str, str]:
    """Labels of "key=value" pairs; a later one replaces an earlier one of the same key."""
    labels: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise usage_error(f"{option}: {pair!r} is no label", hint="Write KEY=VALUE.")
        labels[key] = value
    return labels


def parse_servers(text: str) -> list[str]:
    """The addresses of a comma list, in order."""
    servers = [part.strip() for part in text.split(",") if part.strip()]
    if not servers:
        raise usage_error(
            "--server names no address", hint="Write HOST:PORT, such as 127.0.0.1:7400."
        )
    return servers


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 host stands in brackets."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise usage_error(
            f"--listen: {text!r} is no address", hint="Write HOST:PORT, such as 127.0.0.1:7400."
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def read_payload(argument: str | None) -> bytes | None:
    """The bytes that JSON, @FILE or - (standard input) stand for; None when nothing was given."""
    if argument is None:
        return None
    if argument == "-":
        return sys.stdin.buffer.read()
    if not argument.startswith("@"):
        return argument.encode("utf-8", "surrogateescape")
    path = Path(argument[1:])
    try:
        return path.read_bytes()
    except OSError as error:
        raise CliError(
            f"cannot read the payload file {path}: {error.strerror or error}",
            ExitCode.USAGE,
            hint="Write @FILE with a readable file, or the JSON itself, or - for standard input.",
        ) from None


def check_json(payload: bytes) -> str:
    """The payload as JSON text, unchanged; an error says where it stops being JSON."""
    try:
        text = payload.decode("utf-8")
        json.loads(text)
    except UnicodeDecodeError:
        raise usage_error(
            "the payload is not UTF-8, so it is no JSON",
            hint="Add --raw to send its bytes as they are.",
        ) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise usage_error(
            f"the payload is no JSON ({where})",
            hint="""Quote it for the shell, as '{"size": 3}', or add --raw to send it as bytes.""",
        ) from None
    except RecursionError:
        raise usage_error("the payload is nested too deeply to be read as JSON") from None
    return text
