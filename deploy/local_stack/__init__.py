"""A Mainspring cluster as plain processes of this machine, for people, tests and benchmarks."""

from .plan import ROLES, Counts, Member, StackError, Urls
from .stack import Stack, StackOptions

__all__ = ["ROLES", "Counts", "Member", "Stack", "StackError", "StackOptions", "Urls"]
