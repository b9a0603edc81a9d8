"""The whole comparison with cronsim: `make conformance`. Exits with 1 when the calendars differ."""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

from .comparison import Report, compare, expression_of
from .referee import YEARS, ZONES, boundaries

CHUNK = 50


def run_chunk(seed: int, first: int) -> Report:
    """CHUNK expressions, each over every clock change of every zone."""
    report = Report()
    for index in range(first, first + CHUNK):
        compare(expression_of(seed, index), report)
    return report


def lines(report: Report, seconds: float) -> Iterator[str]:
    """What a reader wants to know of a run."""
    changes = sum(len(boundaries(name)) for name in ZONES)
    yield (
        f"{report.expressions} expressions x {len(ZONES)} zones x {YEARS} years ({changes} clock "
        f"changes): {report.windows} windows, {report.ticks} ticks, {seconds:.0f} s"
    )
    for kind, count in report.strayed.most_common():
        yield f"  {kind}: {count} windows; {report.examples[kind]}"
    yield f"differences without a reason: {len(report.differences)}"
    yield from (f"  {difference}" for difference in report.differences[:20])


def main() -> int:
    """Run it on every core."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--expressions", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    report = Report()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        work = partial(run_chunk, options.seed)
        futures = [pool.submit(work, first) for first in range(0, options.expressions, CHUNK)]
        for done, future in enumerate(as_completed(futures), 1):
            report.add(future.result())
            if done % 10 == 0:
                sys.stderr.write(f"{done * CHUNK} expressions\n")
    sys.stdout.write("\n".join(lines(report, time.monotonic() - started)) + "\n")
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
