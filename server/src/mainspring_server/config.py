"""The configuration, read and validated once.

Every value comes from the command line, else from the environment (`MAINSPRING_…`), else from the
default here. A bad value is refused at start with the key, what was expected and what was given.
"""

from __future__ import annotations

import os
import socket
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from .admission.limits import Limits
from .domain.leases import LeaseTerms

STORE_SCHEMES = ("sqlite", "postgresql")
BEATS_PER_LEASE = 3


class Role(StrEnum):
    """What a process does; any combination."""

    API = "api"
    TRIGGER = "trigger"
    DISPATCH = "dispatch"
    SWEEP = "sweep"


class ConfigError(Exception):
    """A setting that cannot be used; the message names it."""


def _milliseconds(default: int, low: int, high: int) -> Any:
    return Field(default=default, ge=low, le=high)


class Settings(BaseSettings):
    """Everything that can be set. Durations are in milliseconds."""

    model_config = SettingsConfigDict(env_prefix="MAINSPRING_", extra="ignore", frozen=True)

    listen: str = "127.0.0.1:7400"
    store: str = "sqlite:///mainspring.db"
    wheel: str | None = None
    queue: str | None = None
    roles: Annotated[frozenset[Role], NoDecode] = frozenset(Role)
    node: str = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    share_port: bool = False
    lease_ms: int = _milliseconds(60_000, 1_000, 3_600_000)
    first_lease_ms: int = _milliseconds(5_000, 500, 60_000)
    heartbeat_ms: int = _milliseconds(15_000, 200, 600_000)
    drain_ms: int = _milliseconds(10_000, 0, 3_600_000)
    sweep_ms: int = _milliseconds(1_000, 50, 60_000)
    hold_ms: int | None = None
    poll_ms: int = _milliseconds(1_000, 20, 60_000)
    wheel_horizon_ms: int = _milliseconds(86_400_000, 60_000, 30 * 86_400_000)
    retention_ms: int = _milliseconds(7 * 86_400_000, 60_000, 3_650 * 86_400_000)
    partition_days: int = Field(default=7, ge=1, le=7)
    batch: int = Field(default=500, ge=1, le=5_000)
    linger_ms: int | None = Field(default=None, ge=0, le=500)
    kafka_partitions: int = Field(default=8, ge=1, le=1_000)
    kafka_replication: int = Field(default=1, ge=1, le=9)
    own_all_shards: bool = False
    limits: Limits = Field(default_factory=Limits)

    @field_validator("roles", mode="before")
    @classmethod
    def _split_roles(cls, value: object) -> object:
        if isinstance(value, str):
            return frozenset(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65_535:
            raise ValueError("expected HOST:PORT, such as 127.0.0.1:7400")
        return value

    @field_validator("store")
    @classmethod
    def _check_store(cls, value: str) -> str:
        if urlsplit(value).scheme.removesuffix("+asyncpg") not in STORE_SCHEMES:
            raise ValueError("expected sqlite:///PATH or postgresql://…")
        return value

    @field_validator("wheel")
    @classmethod
    def _check_wheel(cls, value: str | None) -> str | None:
        if value and urlsplit(value).scheme not in ("redis", "rediss"):
            raise ValueError("expected redis://HOST:PORT/DB")
        return value or None

    @field_validator("queue")
    @classmethod
    def _check_queue(cls, value: str | None) -> str | None:
        if value and urlsplit(value).scheme != "kafka":
            raise ValueError("expected kafka://HOST:PORT,HOST:PORT")
        return value or None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.lease_ms < BEATS_PER_LEASE * self.heartbeat_ms:
            raise ValueError(
                f"lease_ms must be at least {BEATS_PER_LEASE} heartbeats "
                f"({BEATS_PER_LEASE} x {self.heartbeat_ms} ms), not {self.lease_ms} ms"
            )
        if self.sqlite_path is not None:
            if self.wheel or self.queue:
                raise ValueError(
                    "wheel and queue need a postgresql:// store; leave them out with sqlite"
                )
            if self.roles != frozenset(Role):
                raise ValueError("a sqlite store belongs to one process: leave roles out")
        if not self.roles:
            raise ValueError("roles must name at least one of api, trigger, dispatch, sweep")
        return self

    @property
    def sqlite_path(self) -> Path | None:
        """The file of an embedded store: sqlite:///relative, sqlite:////absolute."""
        if not self.store.startswith("sqlite:"):
            return None
        return Path(self.store.removeprefix("sqlite:///"))

    @property
    def linger(self) -> int:
        """How long a batch waits at most, under load, so that it grows; more where it crosses a wire."""
        if self.linger_ms is not None:
            return self.linger_ms
        return 6 if self.sqlite_path is not None else 100

    @property
    def recheck_ms(self) -> int:
        """How often idle credit looks for work of which it was told nothing.

        Only with PostgreSQL alone do other processes publish without this one hearing of it.
        """
        return 50 if self.queue is None and self.sqlite_path is None else 1_000

    @property
    def leases(self) -> LeaseTerms:
        """The lease lengths together."""
        return LeaseTerms(self.lease_ms, self.first_lease_ms, self.heartbeat_ms)


def load_settings(**given: Any) -> Settings:
    """Settings from arguments (None: not given) and environment; ConfigError names what is wrong."""
    try:
        return Settings(**{key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(item) for item in error.errors())) from None


def _explain(item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"])
    message = str(item["msg"]).removeprefix("Value error, ")
    if not key:
        return message
    return f"{key} (MAINSPRING_{key.upper()}): {message}; given: {item['input']!r}"
