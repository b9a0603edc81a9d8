"""Apache Kafka's program: the jars it is published as, fetched once by Maven and kept.

The cache holds, per pinned set of jars: `libs/`, verified against checked-in
hashes; `template/`, an empty data folder made by Kafka's own format tool; and a
class data archive per Java release, which halves the time to boot.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .process import LOOPBACK, ServiceError, tail

_HERE = Path(__file__).resolve().parent.parent / "kafka"
_POM = _HERE / "pom.xml"
_HASHES = _HERE / "jars.sha256"
_SETTINGS = _HERE / "server.properties"
LOGGING = _HERE / "log4j2.properties"

_LEAST_JAVA = 17
_MAVEN_TIMEOUT = 900


@dataclass(frozen=True)
class Jars:
    """Kafka's jars and what was made from them on this machine."""

    root: Path
    java: str
    java_release: str

    @property
    def libs(self) -> Path:
        """The folder of jars."""
        return self.root / "libs"

    @property
    def template(self) -> Path:
        """A formatted, empty data folder, to be copied."""
        return self.root / "template"

    @property
    def archive(self) -> Path:
        """The class data archive for this Java release."""
        digest = hashlib.sha256(self.java_release.encode()).hexdigest()[:12]
        return self.root / f"classes-{digest}.jsa"

    def class_path(self) -> str:
        """Return the jars as Java's launcher expands them.

        The archive is valid for one order of the jars only: the folder, once
        renamed into place, never changes, so its order does not either.
        """
        return f"{self.libs}/*"

    def archive_flags(self) -> list[str]:
        """Return the flags of the JVM that use the archive, if there is one."""
        if not self.archive.exists():
            return []
        return [f"-XX:SharedArchiveFile={self.archive}", "-Xshare:auto"]


def find() -> Jars:
    """Return the installed jars, or say how to install them."""
    java = find_java()
    if java is None:
        raise ServiceError(f"no Java {_LEAST_JAVA} or later found: run 'make services'")
    jars = Jars(_root(), *java)
    if not (jars.libs.exists() and jars.template.exists()):
        raise ServiceError("Kafka is not installed: run 'make services'")
    return jars


def installed() -> bool:
    """Say whether there is nothing left for `fetch` and `archive` to do."""
    java = find_java()
    if java is None:
        return False
    jars = Jars(_root(), *java)
    return jars.libs.exists() and jars.template.exists() and jars.archive.exists()


def downloaded() -> bool:
    """Say whether the jars are there, so that Maven is not needed."""
    return (_root() / "libs").exists()


def find_java() -> tuple[str, str] | None:
    """Return the path of a Java runtime that is new enough, and its release text."""
    home = os.environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java"] if home else []
    candidates += filter(None, [shutil.which("java")])
    candidates += sorted(str(path) for path in Path("/usr/lib/jvm").glob("*/bin/java"))
    for path in candidates:
        try:
            answer = subprocess.run([path, "-version"], check=False, capture_output=True, text=True)
        except OSError:
            continue
        release = re.search(r'version "(\d+)', answer.stderr)
        if release and int(release[1]) >= _LEAST_JAVA:
            return path, answer.stderr
    return None


def fetch(say: Callable[[str], None]) -> Jars:
    """Download and verify the jars and format the template; what is there is kept."""
    java = find_java()
    if java is None:
        raise ServiceError(f"no Java {_LEAST_JAVA} or later found")
    jars = Jars(_root(), *java)
    jars.root.mkdir(parents=True, exist_ok=True)
    with _locked(jars.root), tempfile.TemporaryDirectory(dir=jars.root) as scratch:
        if not jars.libs.exists():
            say("fetching Kafka's jars")
            _download(Path(scratch) / "libs")
            (Path(scratch) / "libs").rename(jars.libs)
        if not jars.template.exists():
            _format(jars, Path(scratch))
            (Path(scratch) / "template").rename(jars.template)
    return jars


def server_properties(log_dirs: Path, port: int, controller_port: int) -> str:
    """Return a broker's configuration."""
    return _SETTINGS.read_text().format(
        host=LOOPBACK, port=port, controller_port=controller_port, log_dirs=log_dirs
    )


def _root() -> Path:
    """Return the cache folder of exactly these jars: another pin is another folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    pin = hashlib.sha256(_POM.read_bytes() + _HASHES.read_bytes()).hexdigest()[:12]
    return Path(cache).expanduser() / "mainspring" / f"kafka-{pin}"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one installer at a time."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ServiceError("no Maven (mvn) found to fetch Kafka's jars with")
    command = [maven, "--batch-mode", "--quiet", "--strict-checksums", "--file", str(_POM)]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={target}"]
    command += ["-DincludeScope=runtime", "-Dstyle.color=never"]
    result = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT
    )
    if result.returncode:
        raise ServiceError(
            f"Maven could not fetch Kafka:\n{(result.stdout + result.stderr).strip()}"
        )
    _verify(target)


def _verify(folder: Path) -> None:
    """Compare the jars with the checked-in hashes: none more, none less, none changed."""
    expected = {}
    for line in _HASHES.read_text().splitlines():
        digest, name = line.split()
        expected[name] = digest
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.iterdir()}
    wrong = sorted(name for name, _ in expected.items() ^ found.items())
    if wrong:
        raise ServiceError(f"these jars are not the pinned ones: {', '.join(dict.fromkeys(wrong))}")


def _format(jars: Jars, scratch: Path) -> None:
    """Let Kafka's storage tool make the template; the copies get a cluster id of their own."""
    target, settings = scratch / "template", scratch / "server.properties"
    target.mkdir()
    settings.write_text(server_properties(target, 1, 2))
    log = scratch / "format.log"
    with log.open("w") as out:
        command = [jars.java, "-XX:TieredStopAtLevel=1", "-cp", jars.class_path()]
        command += ["kafka.tools.StorageTool", "format", "--config", str(settings)]
        command += ["--cluster-id", "bWFpbnNwcmluZy10ZW1wbA"]
        result = subprocess.run(command, check=False, stdout=out, stderr=subprocess.STDOUT)
    if result.returncode:
        raise ServiceError(f"Kafka's storage tool failed:\n{tail(str(log))}")
