"""Index the files of a folder with Mainspring: one task a file, real workers, an index on disk.

    python examples/file_index/main.py [--once] [--folder DIR] [--out FILE]

Without --once the server stays up afterwards, for calls with grpcurl.
"""

import argparse
import contextlib
import json
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

# Before what takes time to import: the server starts meanwhile.
from children import Child, ChildFailed, address_of, start_server, start_worker

if TYPE_CHECKING:
    from files import Listing
    from run import Run

LISTEN = "127.0.0.1:7400"
FREE_PORT = "127.0.0.1:0"
INDEX = "mainspring-index.jsonl"


def arguments() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(description="Index the files of a folder with Mainspring.")
    parser.add_argument(
        "--once", action="store_true", help="stop when all is done; fresh data, a free port"
    )
    parser.add_argument("--folder", type=Path, help="default: what git tracks in this repository")
    parser.add_argument(
        "--out", type=Path, default=Path(INDEX), help=f"JSON Lines, default {INDEX}"
    )
    found = parser.parse_args()
    if found.folder is not None and not found.folder.is_dir():
        parser.error(f"--folder: {found.folder} is no folder")
    found.out = found.out.absolute()
    if not found.out.parent.is_dir() or found.out.is_dir():
        parser.error(f"--out: {found.out} cannot be written: name a file in a folder that exists")
    return found


@contextlib.contextmanager
def running(once: bool) -> Iterator[list[Child]]:
    """A server, and what is added to the list; stopped in reverse order."""
    with contextlib.ExitStack() as stack:
        data = None
        if once:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-"))
            data = Path(folder)
        children = [start_server(FREE_PORT if once else LISTEN, data)]
        try:
            yield children
        finally:
            for child in reversed(children):
                child.stop()


def index_files(options: argparse.Namespace, children: list[Child]) -> tuple["Run", "Listing", str]:
    """The job; what came of it, for which files, and the server's address."""
    from files import list_files  # noqa: PLC0415  # while the server starts
    from report import Display  # noqa: PLC0415
    from run import Run, collect, follow, submit  # noqa: PLC0415

    from mainspring import Client  # noqa: PLC0415

    listing = list_files(options.folder, options.out)
    display = Display(listing, options.out)
    address = address_of(children[0])
    children.append(start_worker(address))

    def check() -> None:
        for child in children:
            child.check()

    run = Run()
    with Client(address) as client:
        display.serving(address)
        submit(client, run, listing)
        display.submitted(run, time.monotonic() - STARTED)
        if run.task_ids:
            with display.progress(len(run.task_ids)) as progress:
                follow(client, run, progress, check)
            collect(client, run)
    display.finished(run)
    return run, listing, address


def stay(run: "Run", listing: "Listing", address: str, children: list[Child]) -> None:
    """Leave the server up until Ctrl-C; say what to try meanwhile."""
    task_id, path = next(iter(run.task_ids.items()), ("TASK_ID", "README.md"))
    example = {
        "task_type": "index-file",
        "payload": {"json": json.dumps({"folder": str(listing.folder), "path": path})},
        "schedule": {"immediate": {}},
    }
    call = f"grpcurl -plaintext -d {{}} {address} mainspring.v1.SchedulerService/{{}}"
    print("\nThe server stays up. Try, in another terminal:\n")
    print(f"  grpcurl -plaintext {address} list")
    print("  " + call.format(shlex.quote(json.dumps(example)), "Submit"))
    print("  " + call.format(shlex.quote(json.dumps({"task_id": task_id})), "Status"))
    print("\nCtrl-C stops it.", flush=True)
    ended = threading.Event()
    while not ended.wait(0.5):
        for child in children:
            child.check()


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """End as with Ctrl-C: the children are stopped on the way out."""
    raise KeyboardInterrupt


def main() -> int:
    """Run the example; the exit code."""
    options = arguments()
    signal.signal(signal.SIGTERM, interrupt)
    try:
        with running(options.once) as children:
            run, listing, address = index_files(options, children)
            if not options.once:
                stay(run, listing, address, children)
    except ChildFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130 if options.once else 0
    return 1 if run.failures else 0


STARTED = time.monotonic()

if __name__ == "__main__":
    sys.exit(main())
