"""Puts the three services on a machine: Debian's packages, and Kafka's jars through Maven."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from . import kafka_jars, postgresql, redis
from .kafka import Kafka
from .process import ServiceError, spawn, wait_until_up

_POLICY = Path("/usr/sbin/policy-rc.d")
_FORBIDDEN = "#!/bin/sh\nexit 101\n"
_APT = ("apt-get", "--quiet=2", "-o", "DPkg::Lock::Timeout=120")
_BOOT_TIMEOUT = 60.0


def install(names: tuple[str, ...], say: Callable[[str], None]) -> None:
    """Install what is missing of these services; at once when nothing is."""
    packages = missing_packages(names)
    if packages:
        _install_packages(packages, say)
    if "kafka" in names and not kafka_jars.installed():
        jars = kafka_jars.fetch(say)
        if not jars.archive.exists():
            say("preparing Kafka for quick starts")
            _make_archive(jars)


def missing_packages(names: tuple[str, ...]) -> list[str]:
    """Return the Debian packages that these services need and the machine lacks."""
    packages = []
    if "postgresql" in names and postgresql.programs() is None:
        packages.append("postgresql")
    if "redis" in names and shutil.which(redis.PROGRAM) is None:
        packages.append("redis-server")
    if "kafka" in names:
        if kafka_jars.find_java() is None:
            packages.append("default-jre-headless")
        if not kafka_jars.downloaded() and shutil.which("mvn") is None:
            packages.append("maven")
    return packages


def _install_packages(packages: list[str], say: Callable[[str], None]) -> None:
    wanted = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServiceError(
            f"missing on this machine: {wanted}. Install them (Debian, as root: "
            f"apt-get install {wanted}) and try again."
        )
    say(f"installing {wanted}")
    with _no_service_starts():
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    result = subprocess.run(
        [*_APT, *arguments],
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode:
        raise ServiceError(f"apt-get {arguments[0]} failed:\n{result.stdout.strip()}")


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Keep the packages from starting servers of their own on the standard ports."""
    ours = not _POLICY.exists()
    if ours:
        _POLICY.write_text(_FORBIDDEN)
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            _POLICY.unlink(missing_ok=True)


def _make_archive(jars: kafka_jars.Jars) -> None:
    """Boot a broker once and let the JVM write down, as it ends, the classes that it loaded."""
    kafka = Kafka("512m")
    with tempfile.TemporaryDirectory(dir=jars.root) as scratch:
        unfinished = Path(scratch) / "classes.jsa"
        launch = kafka.launch(Path(scratch), jars, [f"-XX:ArchiveClassesAtExit={unfinished}"])
        broker = spawn(launch)
        try:
            wait_until_up(broker, launch, kafka.answers, _BOOT_TIMEOUT)
            broker.terminate()
            broker.wait(_BOOT_TIMEOUT)
        finally:
            broker.kill()
            broker.wait()
        unfinished.replace(jars.archive)
