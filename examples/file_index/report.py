"""What the example shows: live progress, what went wrong, and a summary."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from files import Listing
from index import entry, write_index
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from run import ENDED, Run, printable

SHOWN = 20
LINE_EVERY_S = 1.0


class Display:
    """Everything that a run prints, and the index that it writes."""

    def __init__(self, listing: Listing, out: Path) -> None:
        self._listing = listing
        self._out = out
        self._console = Console(highlight=False, markup=False, soft_wrap=True)

    def serving(self, address: str) -> None:
        """The server answers."""
        files = f"{len(self._listing.paths):,} files in {printable(str(self._listing.folder))}"
        self._console.print(f"Mainspring serves on {address}; {files}", style="bold")
        for path, reason in list(self._listing.skipped.items())[:SHOWN]:
            self._console.print(f"  left out: {printable(path)}: {reason}", style="yellow")
        if len(self._listing.skipped) > SHOWN:
            self._console.print(f"  and {len(self._listing.skipped) - SHOWN} more", style="yellow")

    def submitted(self, run: Run, seconds: float) -> None:
        """The tasks are handed in."""
        if self._listing.paths:
            self._console.print(
                f"{len(run.task_ids):,} tasks submitted, {seconds:.1f} s after the start"
            )
        else:
            self._console.print("The folder has no files: nothing to do, the index is empty.")

    @contextlib.contextmanager
    def progress(self, total: int) -> Iterator[Callable[[dict[str, int]], None]]:
        """A bar that moves as tasks end; where there is no terminal, a line now and then."""
        columns = (
            TextColumn("indexing"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
        )
        bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        with bar:
            shown = bar.add_task("", total=total)

            last_line = time.monotonic()

            def move(by_status: dict[str, int]) -> None:
                nonlocal last_line
                ended = sum(by_status.get(status, 0) for status in ENDED)
                words = ", ".join(
                    f"{name.lower()} {count:,}" for name, count in sorted(by_status.items())
                )
                bar.update(shown, completed=ended, description=words)
                if bar.disable and time.monotonic() - last_line >= LINE_EVERY_S:
                    last_line = time.monotonic()
                    self._console.print(f"  {ended:,} of {total:,}: {words}")

            yield move

    def finished(self, run: Run) -> None:
        """Write the index; say what is in it, and what is not."""
        write_index(
            self._out,
            (
                entry(path, run.contents[path], run.attempts[path])
                for path in self._listing.paths
                if path in run.contents
            ),
        )
        if run.contents:
            self._console.print(self._summary(run))
        for path, reason in list(run.failures.items())[:SHOWN]:
            self._console.print(f"FAILED {printable(path)}: {printable(reason)}", style="red")
        if len(run.failures) > SHOWN:
            self._console.print(f"and {len(run.failures) - SHOWN} more failures", style="red")
        verdict = f"{len(run.contents):,} of {len(self._listing.paths):,} files SUCCEEDED"
        self._console.print(
            f"{verdict}, {run.retries:,} retries, index in {printable(str(self._out))}",
            style="bold red" if run.failures else "bold green",
        )

    def _summary(self, run: Run) -> Table:
        by_type: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for content in run.contents.values():
            row = (1, content["bytes"], content["lines"], content["words"])
            by_type[content["type"]] = [
                a + b for a, b in zip(by_type[content["type"]], row, strict=True)
            ]
        table = Table(show_footer=True, header_style="bold", footer_style="bold")
        totals = [sum(column) for column in zip(*by_type.values(), strict=True)]
        table.add_column("type", footer="all")
        for name, total in zip(("files", "bytes", "lines", "words"), totals, strict=True):
            table.add_column(name, justify="right", footer=f"{total:,}")
        for name, figures in sorted(by_type.items(), key=lambda item: -item[1][1]):
            table.add_row(name, *(f"{figure:,}" for figure in figures))
        return table
