"""PostgreSQL, Redis and Apache Kafka as plain processes, for tests, benchmarks and `make stack`."""

from .process import Launch, ServiceError
from .services import NAMES, Running, Services

__all__ = ["NAMES", "Launch", "Running", "ServiceError", "Services"]
