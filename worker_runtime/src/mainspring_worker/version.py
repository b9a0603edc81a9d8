"""The version that a worker tells the server."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def sdk_version() -> str:
    """Read the installed version; empty when run from a source tree that is not installed."""
    try:
        return version("mainspring-worker")
    except PackageNotFoundError:
        return ""
