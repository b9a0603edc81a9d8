"""The store of the embedded rung: one SQLite file, one writer."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
