"""PostgreSQL: a fresh cluster, durable, open to this machine alone."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from .process import LOOPBACK, Launch, ServiceError, current_user, free_ports, identity

DATABASE = "mainspring"
ROLE = "mainspring"
_SYSTEM_USER = "postgres"
_DEBIAN = Path("/usr/lib/postgresql")
# Local to this machine and, unlike /tmp, a disk on every distribution.
_SHARED_FOLDER = "/var/tmp"

_SETTINGS = """
listen_addresses = '{host}'
port = {port}
unix_socket_directories = ''
max_connections = 200
shared_preload_libraries = 'pg_stat_statements'
fsync = on
synchronous_commit = on
full_page_writes = on
wal_level = replica
wal_buffers = 16MB
min_wal_size = 256MB
max_wal_size = 2GB
checkpoint_timeout = 15min
shared_buffers = {shared_buffers}
effective_cache_size = 1GB
random_page_cost = 1.1
jit = off
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
log_line_prefix = '%m [%p] %q%u@%d '
"""

_ACCESS = f"""
host all all {LOOPBACK}/32 trust
host replication all {LOOPBACK}/32 trust
"""


def programs() -> Path | None:
    """Return the folder of the newest PostgreSQL server's programs, or None."""
    releases = [folder for folder in _DEBIAN.glob("*/bin") if (folder / "postgres").exists()]
    if releases:
        return max(releases, key=lambda folder: float(folder.parent.name))
    found = shutil.which("postgres")
    return Path(found).resolve().parent if found else None


class PostgreSQL:
    """Knows how to lay out, reach and complete a PostgreSQL server."""

    name = "postgresql"
    # Fast shutdown: a smart one (SIGTERM) waits for clients that never leave.
    polite_signal = "SIGINT"
    # Immediate: what is thrown away needs no last checkpoint.
    discard_signal = "SIGQUIT"

    def __init__(self, shared_buffers: str) -> None:
        """Take the size of the page cache in PostgreSQL's notation, `256MB`."""
        self._shared_buffers = shared_buffers

    def prepare(self, folder: Path) -> Launch:
        """Make a new cluster under `folder`, or where its user may enter."""
        bin_folder = _programs_or_raise()
        user = _SYSTEM_USER if os.geteuid() == 0 else current_user()
        home = _home(folder, user)
        data = home / "data"
        (port,) = free_ports(1)
        _run(
            [
                str(bin_folder / "initdb"),
                f"--pgdata={data}",
                f"--username={ROLE}",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
                "--no-instructions",
            ],
            home,
            user,
        )
        with (data / "postgresql.conf").open("a") as file:
            file.write(
                _SETTINGS.format(host=LOOPBACK, port=port, shared_buffers=self._shared_buffers)
            )
        (data / "pg_hba.conf").write_text(_ACCESS)
        return Launch(
            name=self.name,
            url=f"postgresql://{ROLE}@{LOOPBACK}:{port}/{DATABASE}",
            port=port,
            data=str(home),
            log=str(folder / f"{self.name}.log"),
            command=[str(bin_folder / "postgres"), "-D", str(data)],
            cwd=str(home),
            user=user,
        )

    def answers(self, launch: Launch) -> bool:
        """Say whether the server answers a query."""
        return _query(launch, "postgres", "SELECT 1").returncode == 0

    def complete(self, launch: Launch) -> None:
        """Make the database; every later one gets the statistics extension from the template."""
        for database, statement in (
            ("template1", "CREATE EXTENSION pg_stat_statements"),
            ("postgres", f"CREATE DATABASE {DATABASE}"),
        ):
            result = _query(launch, database, statement)
            if result.returncode:
                raise ServiceError(f"PostgreSQL refused {statement}: {result.stderr.strip()}")


def _programs_or_raise() -> Path:
    found = programs()
    if found is None:
        raise ServiceError("PostgreSQL's server is not installed: run 'make services'")
    return found


def _home(folder: Path, user: str) -> Path:
    """Return a new folder that `user` owns and can reach."""
    home = folder / "postgresql"
    if user == current_user():
        home.mkdir()
        return home
    reachable = subprocess.run(["test", "-x", str(folder)], check=False, cwd="/", **identity(user))
    if reachable.returncode == 0:
        home.mkdir()
    else:
        home = Path(tempfile.mkdtemp(prefix="mainspring-postgresql-", dir=_SHARED_FOLDER))
    shutil.chown(home, user, identity(user)["group"])
    home.chmod(0o700)
    return home


def _run(command: list[str], cwd: Path, user: str) -> None:
    result = subprocess.run(
        command, cwd=cwd, check=False, capture_output=True, text=True, **identity(user)
    )
    if result.returncode:
        raise ServiceError(
            f"{Path(command[0]).name} failed: {(result.stderr or result.stdout).strip()}"
        )


def _query(launch: Launch, database: str, statement: str) -> subprocess.CompletedProcess[str]:
    # The environment is set by hand: PGOPTIONS and its like belong to the user's own servers.
    return subprocess.run(
        [
            str(Path(launch.command[0]).with_name("psql")),
            "--no-psqlrc",
            "--quiet",
            f"--dbname=host={LOOPBACK} port={launch.port} user={ROLE} dbname={database}",
            f"--command={statement}",
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C", "PGCONNECT_TIMEOUT": "5"},
    )
