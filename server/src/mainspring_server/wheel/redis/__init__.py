"""The wheel of the distributed rung: slots in Redis, shared by all nodes."""

from .wheel import RedisWheel

__all__ = ["RedisWheel"]
