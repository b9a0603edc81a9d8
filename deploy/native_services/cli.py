"""The command line of the native services."""

import argparse
import sys
from pathlib import Path

from .process import ServiceError
from .provision import install
from .services import NAMES, Services, watch

_DESCRIPTION = "PostgreSQL, Redis and Apache Kafka on this machine, for tests and local clusters."


def main(arguments: list[str] | None = None) -> int:
    """Carry out one sub-command; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _carry_out(options)
    except ServiceError as error:
        print(f"services: {error}", file=sys.stderr)
        return 1
    return 0


def _carry_out(options: argparse.Namespace) -> None:
    match options.command:
        case "install":
            install(options.only, _say)
        case "start":
            _start(options)
        case "stop":
            Services(options.dir, owned=False).stop()
        case "restart":
            Services(options.dir, owned=False).restart(options.name)
        case "watch":
            watch()


def _start(options: argparse.Namespace) -> None:
    services = Services(
        options.dir,
        owned=False,
        shared_buffers=options.shared_buffers,
        kafka_heap=options.kafka_heap,
    )
    if services.running:
        raise ServiceError(f"there are services in {options.dir} already: stop them first")
    try:
        services.start(*options.only)
    except BaseException:
        services.stop()
        raise
    if options.json is None:
        print(services.as_json(), end="")
    else:
        options.json.write_text(services.as_json())


def _say(message: str) -> None:
    print(f"services: {message}", file=sys.stderr, flush=True)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no such service: {', '.join(unknown)}; choose from {', '.join(NAMES)}"
        )
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="services.py", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text)

    def only(to: argparse.ArgumentParser) -> None:
        to.add_argument("--only", type=_names, default=NAMES, help="a comma list; default: all")

    def folder(to: argparse.ArgumentParser) -> None:
        to.add_argument("--dir", type=Path, required=True, help="where the services live")

    only(
        command("install", "Install what is missing (as root on Debian); at once when nothing is.")
    )
    start = command("start", "Start fresh services that run on, and print where they are as JSON.")
    folder(start)
    only(start)
    start.add_argument("--json", type=Path, help="write the JSON to this file instead")
    start.add_argument("--shared-buffers", default="256MB", help="PostgreSQL's page cache")
    start.add_argument("--kafka-heap", default="512m", help="the limit of Kafka's heap")
    folder(command("stop", "Stop what start started there and remove its data."))
    restart = command("restart", "Start one service again, on its data and port.")
    folder(restart)
    restart.add_argument("name", choices=NAMES)
    command("watch", "End the services named on standard input once it closes (for owners).")
    return parser
