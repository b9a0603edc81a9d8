"""Python environments of the peers' own, so that their dependencies and ours never meet."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .processes import ROOT, BenchError, run_once

FOLDER = ROOT / ".venv-peers"
LATEST_MINOR = 20
"""No Python 3 later than this is looked for."""


@dataclass(frozen=True)
class Environment:
    """What `requirements/NAME.txt` locks, under `.venv-peers/NAME`, for a Python new enough."""

    name: str
    at_least: tuple[int, int] = (3, 11)

    @property
    def needs(self) -> str:
        """The oldest Python that will do."""
        return ".".join(map(str, self.at_least))

    def python(self) -> Path | None:
        """Its interpreter, made first where it is missing or its lock has changed.

        None where no Python of this machine is new enough. BenchError if it cannot be made.
        """
        lock = ROOT / "requirements" / f"{self.name}.txt"
        wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
        stamp = self._folder / "lock.sha256"
        if self._runs() and stamp.exists() and stamp.read_text() == wanted:
            return self._python
        base = next(self._bases(), None)
        if base is None:
            return None
        _uv("venv", "--quiet", "--clear", "--python", base, str(self._folder))
        into = ("--quiet", "--python", str(self._python))
        _uv("pip", "install", *into, "--require-hashes", "-r", str(lock))
        stamp.write_text(wanted)
        return self._python

    def version(self, package: str) -> str:
        """The release of a package that it holds."""
        ask = f"from importlib.metadata import version; print(version({package!r}))"
        return run_once([str(self._python), "-c", ask], f"the version of {package}").strip()

    @property
    def _folder(self) -> Path:
        return FOLDER / self.name

    @property
    def _python(self) -> Path:
        return self._folder / "bin" / "python"

    def _runs(self) -> bool:
        """Whether its interpreter is there: the Python under it may have been removed since."""
        return is_new_enough(str(self._python), self.at_least)

    def _bases(self) -> Iterator[str]:
        """Interpreters that are new enough: this one first, then the oldest by name, then uv's."""
        if sys.version_info[:2] >= self.at_least:
            yield sys.executable
        major, minor = self.at_least
        names = (f"python{major}.{number}" for number in range(minor, LATEST_MINOR + 1))
        for found in filter(None, map(shutil.which, names)):
            if is_new_enough(found, self.at_least):
                yield found
        found = _found_by_uv(f">={self.needs}")
        if found and is_new_enough(found, self.at_least):
            yield found


def is_new_enough(python: str, at_least: tuple[int, int]) -> bool:
    """Whether it runs and is: a name on PATH may be a shim with nothing behind it."""
    ask = f"import sys; sys.exit(sys.version_info[:2] < {at_least})"
    try:
        return subprocess.run([python, "-c", ask], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _found_by_uv(request: str) -> str | None:
    try:
        return _uv("python", "find", "--no-python-downloads", request).strip()
    except BenchError:
        return None


def _uv(*arguments: str) -> str:
    return run_once([str(Path(sys.executable).with_name("uv")), *arguments], f"uv {arguments[0]}")
