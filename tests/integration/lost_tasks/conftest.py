"""The nodes and sites of the schedule tests: they run tasks as well."""

from ..schedules.conftest import open_site

__all__ = ["open_site"]
