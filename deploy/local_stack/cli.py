"""The command line of the stack: start and stop."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from native_services import ServiceError
from native_services.process import send

from mainspring_server.cli.parent import stop_with

from .plan import BASE_PORT, StackError, parse_counts
from .record import RECORD, owner_of
from .stack import SERVICES, Stack, StackOptions

FOLDER = Path(__file__).resolve().parents[2] / ".stack"
STOP_S = 60.0

_SUBMIT = '{"task_type": "greet", "payload": {"json": "{}"}, "schedule": {"immediate": {}}}'


def main(arguments: list[str] | None = None) -> int:
    """Carry out one sub-command; return the exit code."""
    try:
        options = _parser().parse_args(arguments)
        if options.command == "stop":
            _stop(options.dir.resolve())
        else:
            if options.stop_with is not None:
                stop_with(options.stop_with)
            asyncio.run(_start(_stack_options(options)))
    except (StackError, ServiceError, OSError) as error:
        print(f"stack: {error}", file=sys.stderr)
        return 1
    return 0


async def _start(options: StackOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _note, stop, number)
    await Stack(options, _say).run(stop, _announce)
    _say("stopped")


def _note(stop: asyncio.Event, number: signal.Signals) -> None:
    if not stop.is_set():
        _say(f"{number.name}: stopping")
    stop.set()


def _announce(stack: Stack) -> None:
    """Print where everything is, and three calls to try."""
    assert stack.urls is not None
    lines = [("store", stack.urls.store), ("wheel", stack.urls.wheel), ("queue", stack.urls.queue)]
    lines += [(process.member.name, process.member.address) for process in stack.roles]
    print()
    for name, value in lines:
        print(f"{name:<12} {value or '(none)'}")
    by_role = {
        role: [p.member.address for p in stack.roles if p.member.role == role]
        for role in ("api", "dispatch")
    }
    print(f"\nAll of it, with pids and logs: {stack.folder / RECORD}")
    if by_role["api"]:
        server = by_role["api"][0]
        service = "mainspring.v1.SchedulerService"
        print("Try, from another terminal:")
        print(f"  grpcurl -plaintext {server} list")
        print(f"  grpcurl -plaintext -d '{_SUBMIT}' {server} {service}/Submit")
        print(f'  grpcurl -plaintext -d \'{{"task_id": "…"}}\' {server} {service}/Status')
    if by_role["dispatch"]:
        print("Workers connect to the dispatch processes:")
        print(f"  mainspring worker MODULE:CLASS --server {','.join(by_role['dispatch'])}")
    print("Ctrl-C stops it.", flush=True)


def _stop(folder: Path) -> None:
    owner = owner_of(folder)
    if owner is None:
        _say(f"no stack runs in {folder}")
    elif send(*owner, signal.SIGTERM, STOP_S):
        _say("stopped")
    else:
        raise StackError(f"process {owner[0]} is still stopping after {STOP_S:.0f} s")


def _say(message: str) -> None:
    print(f"stack: {message}", file=sys.stderr, flush=True)


def _stack_options(options: argparse.Namespace) -> StackOptions:
    given = {key: getattr(options, key) for key in SERVICES if getattr(options, key)}
    without = frozenset(filter(None, options.without.split(",")))
    if without - {"wheel", "queue"} or without & given.keys():
        raise StackError("--without takes wheel, queue or both, and none that is given by URL")
    env = {}
    for entry in options.env:
        key, equals, value = entry.partition("=")
        if not key or not equals:
            raise StackError(f"--env: {entry!r} is no KEY=VALUE")
        env[key] = value
    return StackOptions(
        folder=options.dir,
        base_port=options.base_port,
        counts=parse_counts(options.counts),
        given=given,
        without=without,
        env=env,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stack.py",
        description="A whole Mainspring cluster on this machine: services, and processes of each role.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    start = commands.add_parser("start", help="Start it, and keep it until SIGINT or SIGTERM.")
    stop = commands.add_parser("stop", help="Stop the one that runs.")
    for command in (start, stop):
        command.add_argument("--dir", type=Path, default=FOLDER, help="default: .stack")
    start.add_argument(
        "--counts", default="", help="processes by role: api=1,dispatch=1; default: two of each"
    )
    start.add_argument(
        "--base-port",
        type=int,
        default=BASE_PORT,
        help="of api; dispatch, trigger and sweep are 10, 20 and 30 above",
    )
    for key, name in SERVICES.items():
        start.add_argument(f"--{key}", metavar="URL", help=f"a {name} that runs already")
    start.add_argument(
        "--without", default="", help="wheel, queue or wheel,queue: do without that service"
    )
    start.add_argument(
        "--env", action="append", default=[], metavar="KEY=VALUE", help="for every role; repeat it"
    )
    start.add_argument(
        "--stop-with", type=int, metavar="PID", help="stop when the process that started it ends"
    )
    return parser
