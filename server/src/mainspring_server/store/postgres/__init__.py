"""The PostgreSQL store: one transaction a batch, plans pinned, PostgreSQL's clock decides."""

from .migrate import MigrationStatus, migrate, migration_status
from .store import PostgresStore

__all__ = ["MigrationStatus", "PostgresStore", "migrate", "migration_status"]
