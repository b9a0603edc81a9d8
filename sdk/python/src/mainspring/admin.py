"""What the server tells those who run it: queues, workers, load to come, itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from .enums import QueueRung, TriggerRung


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One queue."""

    queue: str
    """Its name."""
    paused: bool = False
    """Whether it gives no tasks to workers."""
    pause_reason: str = ""
    """Why, for people."""
    pause_time: datetime | None = None
    """Since when."""
    ready: int = 0
    """Tasks that are due and wait for a worker."""
    oldest_ready_age: timedelta | None = None
    """How long the oldest of them has waited."""
    running: int = 0
    """Tasks that a worker holds."""
    pending: int = 0
    """Tasks that wait for their time."""
    workers: int = 0
    """Workers that take from it."""
    slots: int = 0
    """Tasks that these can run at a time."""
    drain_estimate: timedelta | None = None
    """How long the ready ones would take; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedWorker:
    """One connected worker process."""

    worker_id: str
    """Its id."""
    hostname: str = ""
    """Where it runs."""
    sdk_name: str = ""
    """What it is built with."""
    sdk_version: str = ""
    """The version of that."""
    slots: int = 0
    """Tasks that it can run at a time."""
    leases: int = 0
    """Tasks that it holds."""
    max_leases: int = 0
    """Tasks that it will hold."""
    task_types: tuple[str, ...] = ()
    """What it does."""
    queues: tuple[str, ...] = ()
    """Where it takes from."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Its labels."""
    draining: bool = False
    """Whether it takes nothing new."""
    session_id: str = ""
    """Its session."""
    connect_time: datetime | None = None
    """When the session began."""
    last_seen_time: datetime | None = None
    """When it was last heard."""
    node_id: str = ""
    """The server process that it is connected to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastStep:
    """One step of a forecast in which something is due."""

    start_time: datetime
    """Its start."""
    tasks: int = 0
    """Stored tasks that are due in it."""
    schedule_fires: int = 0
    """Times of schedules that have no instance yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The load to come."""

    steps: tuple[ForecastStep, ...] = ()
    """In order; empty steps are left out."""
    slots_needed: int | None = None
    """Slots needed at the peak; None if run times are unknown."""
    slots_connected: int = 0
    """Slots connected now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """One shard of the time wheel."""

    shard: int
    """Its number."""
    owner: str = ""
    """The node that owns it; empty if none does."""
    term: int = 0
    """The owner's term."""
    watermark_time: datetime | None = None
    """Everything due before it has been triggered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The bounds that the server enforces."""

    payload_bytes: int = 0
    """Bytes of a payload."""
    outcome_bytes: int = 0
    """Bytes of an outcome."""
    checkpoint_bytes: int = 0
    """Bytes of a checkpoint."""
    error_bytes: int = 0
    """Bytes of an error message; longer ones are cut."""
    labels: int = 0
    """Labels of a task."""
    predecessors: int = 0
    """Predecessors of a task."""
    batch_requests: int = 0
    """Requests of a batch."""
    batch_bytes: int = 0
    """Bytes of a batch."""
    page_size: int = 0
    """Items of a page."""
    delay: timedelta | None = None
    """From now to a due time."""
    buffered_instances: int = 0
    """Instances that wait under BUFFER_ALL, for each schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The server process that answered, and the cluster as it sees it."""

    version: str
    """Its release."""
    node_id: str = ""
    """Its id."""
    roles: tuple[str, ...] = ()
    """What it does."""
    capabilities: tuple[str, ...] = ()
    """What it can do."""
    store: str = ""
    """The kind of store."""
    trigger_rung: TriggerRung = TriggerRung.UNSPECIFIED
    """How due tasks are found now."""
    configured_trigger_rung: TriggerRung = TriggerRung.UNSPECIFIED
    """How they are found when all is well."""
    queue_rung: QueueRung = QueueRung.UNSPECIFIED
    """How ready tasks reach dispatchers now."""
    configured_queue_rung: QueueRung = QueueRung.UNSPECIFIED
    """How they do when all is well."""
    shards: tuple[ShardInfo, ...] = ()
    """All shards with their owners."""
    limits: ServerLimits | None = None
    """The bounds that it enforces."""
    start_time: datetime | None = None
    """When it started."""
    clock_offset: timedelta | None = None
    """How far its clock is from the store's."""
    tzdata_version: str = ""
    """Version of the tz database."""
    protocol_versions: tuple[int, ...] = ()
    """Versions of the worker protocol that it speaks."""
    lease_timeout: timedelta | None = None
    """How long a lease lasts."""
    heartbeat_interval: timedelta | None = None
    """How often a worker beats."""
    namespace: str = ""
    """The caller's namespace."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """SQL statements, commands, records and messages since it started."""
    oldest_find_age: timedelta | None = None
    """Age of the oldest row that its sweeper had to put right in its last pass."""
