"""Opening the file: the lock that keeps a second server out, the pragmas, the schema."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

from ...domain.errors import Unavailable

SCHEMA_VERSION = 1
PAGE_BYTES = 4096
CACHE_KIB = 32 * 1024
READ_MMAP_BYTES = 256 * 1024 * 1024
# The checkpointer copies the log back long before this; the limit holds the
# log down where the load never leaves it a gap.
AUTOCHECKPOINT_PAGES = 16_384
STATEMENTS = 512

OPERATIONAL = (sqlite3.OperationalError, sqlite3.InternalError)
"""What the machine did, as opposed to what the caller asked for."""


def unavailable(path: str, error: BaseException) -> Unavailable:
    """The error that callers see when the file cannot be used."""
    return Unavailable(
        "STORE_UNAVAILABLE",
        f"the task store {path} cannot be used: {error}",
        metadata={"path": path},
    )


def is_operational(error: BaseException) -> bool:
    """True for a full disk, a lock or a broken file; false for a wrong statement or value."""
    return isinstance(error, OPERATIONAL) or type(error) is sqlite3.DatabaseError


class FileLock:
    """Exclusive use of the file, for as long as the process lives at most."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def take(self) -> None:
        """Refuse with Unavailable if another server has the file."""
        lock = f"{self._path}.lock"
        try:
            Path(lock).parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unavailable(self._path, error)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(handle, 32).decode("ascii", "replace").strip()
            os.close(handle)
            self._refuse(owner)
        os.truncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._handle = handle

    def release(self) -> None:
        """Let another server have it; the lock file stays, empty."""
        if self._handle >= 0:
            os.truncate(self._handle, 0)
            os.close(self._handle)
            self._handle = -1

    def _refuse(self, owner: str) -> NoReturn:
        process = f" (process {owner})" if owner else ""
        raise Unavailable(
            "STORE_UNAVAILABLE",
            f"the task store {self._path} is in use by another server{process}: "
            "stop that one, or give this one a file of its own",
            metadata={"path": self._path},
        )


def open_writer(path: str) -> sqlite3.Connection:
    """The one connection that writes; it may be used from one thread at a time."""
    db = sqlite3.connect(
        path,
        timeout=0,  # nobody else writes; waiting would stop the event loop
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
    )
    try:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        db.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
        _prepare_schema(db, path)
    except BaseException:
        db.close()
        raise
    return db


def open_reader(path: str) -> sqlite3.Connection:
    """A connection that only reads: the last committed state, never waiting for the writer."""
    db = sqlite3.connect(
        f"{Path(path).absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=5,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
    )
    db.execute("PRAGMA query_only = ON")
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute(f"PRAGMA cache_size = -{CACHE_KIB // 4}")
    db.execute(f"PRAGMA mmap_size = {READ_MMAP_BYTES}")
    return db


def open_checkpointer(path: str) -> sqlite3.Connection:
    """A connection that copies the log back into the file, beside the writer."""
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def _prepare_schema(db: sqlite3.Connection, path: str) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if version != 0 or tables:
        raise Unavailable(
            "STORE_UNAVAILABLE",
            f"{path} has layout {version}, this release reads {SCHEMA_VERSION}: "
            "it is another program's file, or a newer release wrote it",
            metadata={"path": path},
        )
    schema = (files(__package__) / "schema.sql").read_text(encoding="utf-8")
    try:
        db.executescript(schema)
    except sqlite3.Error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
