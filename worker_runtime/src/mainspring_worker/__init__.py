"""Worker runtime of the Mainspring job scheduler.

Subclass `Worker`, write `handle`, and run it: `MyWorker().run("host:7400")`, or several
classes with `Runner`. `testing.run_handler` runs a handler without a server.
"""

from .context import Context, Predecessor
from .held import Stats
from .outcomes import Cancelled, Fail, InputInvalid, OutcomeInvalid, Retry, Snooze, StopReason
from .runner import Runner
from .worker import Worker

__all__ = [
    "Cancelled",
    "Context",
    "Fail",
    "InputInvalid",
    "OutcomeInvalid",
    "Predecessor",
    "Retry",
    "Runner",
    "Snooze",
    "Stats",
    "StopReason",
    "Worker",
]

__version__ = "0.1.0"
