"""What a stack consists of: which processes, on which ports, with which command lines."""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

ROLES = ("api", "dispatch", "trigger", "sweep")
"""In the order of their ports."""

HOST = "127.0.0.1"
BASE_PORT = 7400
PORTS_PER_ROLE = 10

Counts = Mapping[str, int]
"""Processes by role."""


class StackError(Exception):
    """The stack could not be started or kept; the text says what to do."""


@dataclass(frozen=True)
class Urls:
    """Where the services are; None: the stack does without a wheel or a queue."""

    store: str
    wheel: str | None = None
    queue: str | None = None

    @property
    def options(self) -> list[str]:
        """The options of `mainspring serve` that name them."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return [part for name, url in named.items() if url for part in (f"--{name}", url)]


@dataclass(frozen=True)
class Member:
    """One process of a role, before it is started and whenever it is started again."""

    name: str
    role: str
    address: str
    command: list[str]
    log: Path


def members(counts: Counts, base_port: int, urls: Urls, logs: Path) -> Iterator[Member]:
    """The processes of a stack: api from the base port on, dispatch 10 above it, and so on."""
    for number, role in enumerate(ROLES):
        for index in range(counts.get(role, 0)):
            name = f"{role}-{index}"
            address = f"{HOST}:{base_port + number * PORTS_PER_ROLE + index}"
            options = ["--role", role, "--listen", address, *urls.options]
            # It announces itself once it serves, and ends with this process.
            options += ["--json", "--stop-with", str(os.getpid())]
            yield Member(name, role, address, mainspring("serve", *options), logs / f"{name}.log")


def mainspring(*arguments: str) -> list[str]:
    """The command line of `mainspring` in this environment."""
    return [sys.executable, "-m", "mainspring_server.cli", *arguments]


def parse_counts(text: str) -> Counts:
    """Read `api=1,dispatch=2`; roles that are not named have two processes."""
    counts = dict.fromkeys(ROLES, 2)
    for part in filter(None, text.split(",")):
        role, _, number = part.partition("=")
        if role not in ROLES or not number.isdigit() or int(number) > PORTS_PER_ROLE:
            raise StackError(
                f"{part!r} is no ROLE=COUNT: roles are {', '.join(ROLES)}, counts 0 to "
                f"{PORTS_PER_ROLE}"
            )
        counts[role] = int(number)
    return counts
