"""The composition root: the only module that names concrete adapters.

Read it as the architecture: a store; a wheel and a ready queue in front of it; the engine, which
alone writes task state; and the services of each role around the engine.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from . import __version__
from .api.admin_service import AdminService
from .api.interceptors import ServerInterceptor
from .api.scheduler_service import SchedulerService
from .api.server import GrpcServer
from .api.server_info import Readings, ServerInfo
from .api.watch import Watcher
from .api.worker_service import WorkerService
from .clock import Clock, SystemClock
from .clock_guard import ClockGuard
from .config import Role, Settings
from .dispatch.dispatcher import Dispatcher
from .dispatch.keeper import LeaseKeeper
from .engine import Engine
from .materialise.service import BATCH, Materialiser
from .queue.claimed import ClaimedQueue
from .queue.port import ReadyQueue
from .resolve.service import Resolver
from .retention import Retention
from .schedules import Schedules
from .service import Service
from .store.port import Store
from .sweep.service import SweepOwner, SweepService, SweepSettings
from .trigger.ownership import Fanout, ShardOwner
from .trigger.pager import Pager
from .trigger.service import TriggerService
from .wheel.polled import PolledWheel
from .wheel.port import Wheel

log = logging.getLogger(__name__)


def open_store(settings: Settings, clock: Clock) -> Store:
    """SQLite in a file, or PostgreSQL; the drivers that are not used are not loaded."""
    path = settings.sqlite_path
    if path is not None:
        from .store.sqlite.store import SqliteStore

        return SqliteStore(str(path), clock)
    from .store.postgres.store import PostgresStore

    return PostgresStore(
        settings.store,
        ready_index=settings.queue is None or settings.wheel is None,
        period_days=settings.partition_days,
    )


def open_wheel(settings: Settings, store: Store, clock: Clock) -> Wheel:
    """The polled wheel, or the one in Redis with the polled one to fall back on."""
    polled = PolledWheel(
        store, clock, poll_ms=settings.poll_ms, ahead_ms=max(2 * settings.poll_ms, 1_000)
    )
    if settings.wheel is None:
        return polled
    from .wheel.ladder import LadderWheel
    from .wheel.redis.wheel import RedisWheel

    redis = RedisWheel(settings.wheel, store, clock, horizon_ms=settings.wheel_horizon_ms)
    return LadderWheel(redis, polled, clock)


def open_queue(settings: Settings, store: Store, clock: Clock) -> ReadyQueue:
    """Claims from the store, or Kafka, which falls back on them by itself."""
    if settings.queue is None:
        return ClaimedQueue(store)
    from .queue.kafka.queue import KafkaQueue, KafkaSettings

    kafka = KafkaSettings(
        partitions=settings.kafka_partitions, replication=settings.kafka_replication
    )
    brokers = settings.queue.removeprefix("kafka://")
    consume = Role.DISPATCH in settings.roles
    return KafkaQueue(brokers, store, clock, node=settings.node, consume=consume, settings=kafka)


class App:
    """One server process: everything of its roles, started and stopped together."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.store = open_store(settings, self.clock)
        self.wheel = open_wheel(settings, self.store, self.clock)
        self.queue = open_queue(settings, self.store, self.clock)
        self.engine = Engine(self.store, self.wheel, self.queue, self.clock, settings.batch)
        self.schedules = Schedules(self.store.schedules, self.engine)
        self.dispatcher = Dispatcher(
            self.engine,
            self.clock,
            batch=settings.batch,
            recheck_ms=settings.recheck_ms,
            linger_ms=settings.linger,
        )
        self.watcher = Watcher(self.engine, self.store, self.clock, settings.limits)
        self.guard = ClockGuard(self.store, self.clock)
        self._watermark: Callable[[], int | None] = lambda: None
        self._oldest_find: Callable[[], int | None] = lambda: None
        self.services = self._services()
        self.interceptor = ServerInterceptor()
        self.grpc = GrpcServer(
            settings.listen,
            [self.interceptor],
            self._registrations(),
            share_port=settings.share_port,
        )

    def _services(self) -> Sequence[Service]:
        """In the order of starting; they are stopped the other way round."""
        settings, store, clock = self.settings, self.store, self.clock
        alone = settings.sqlite_path is not None
        services: list[Service] = [] if alone else [self.guard]
        services.append(Resolver(self.engine, store, clock))
        if Role.TRIGGER in settings.roles:
            own_all = settings.own_all_shards or alone
            pager = Pager(self.wheel, clock)
            trigger = TriggerService(
                self.engine,
                self.wheel,
                clock,
                linger_ms=settings.linger,
                allowed=lambda: self.guard.trusted,
            )
            # SQLite works on the loop's thread: smaller batches, so that others get their turn.
            materialiser = Materialiser(self.schedules, clock, batch=100 if alone else BATCH)
            owner = ShardOwner(
                store,
                Fanout(self.wheel, materialiser),
                clock,
                settings.node,
                own_all=own_all,
                on_change=pager.wake.set,
            )
            services += [owner, pager, trigger, materialiser]
            self._watermark = trigger.watermark
        if Role.DISPATCH in settings.roles:
            keeper = LeaseKeeper(
                self.engine, self.dispatcher, store, clock, settings.leases, settings.node
            )
            services += [self.dispatcher, keeper]
        if Role.API in settings.roles:
            services.append(self.watcher)
        if Role.SWEEP in settings.roles:
            hold = settings.lease_ms if settings.hold_ms is None else settings.hold_ms
            sweep = SweepService(
                self.engine, store, clock, SweepSettings(settings.sweep_ms, hold), self._watermark
            )
            self._oldest_find = lambda: sweep.oldest_age_ms
            retention = Retention(store, store.schedules, clock, settings.retention_ms)
            sweepers = SweepOwner(store, sweep, clock, settings.node, own_all=alone)
            services += [sweepers, sweep, retention]
        return services

    def _registrations(self) -> Sequence[Callable[[Any], None]]:
        settings = self.settings
        # Every process answers about itself and takes beats and results.
        readings = Readings(self._counters(), self._watermark, self._oldest_find)
        info = ServerInfo(settings, self.guard, self.store, self.wheel, self.queue, readings)
        found = [AdminService(self.engine, self.store, self.dispatcher, info).register]
        if Role.API in settings.roles:
            found.append(
                SchedulerService(
                    self.engine,
                    self.store,
                    self.schedules,
                    self.watcher,
                    self.clock,
                    settings.limits,
                ).register
            )
        dispatcher = self.dispatcher if Role.DISPATCH in settings.roles else None
        found.append(
            WorkerService(
                self.engine, dispatcher, self.clock, settings.leases, settings.limits
            ).register
        )
        return found

    def _counters(self) -> Mapping[str, Callable[[], int]]:
        """Those that the adapters in use count, each at its one door."""
        doors = (
            ("sql_statements", self.store, "statements"),
            ("redis_commands", self.wheel, "commands"),
            ("kafka_records", self.queue, "records"),
            ("grpc_messages", self.interceptor, "messages"),
        )
        return {
            name: partial(getattr, door, attribute)
            for name, door, attribute in doors
            if hasattr(door, attribute)
        }

    async def start(self) -> None:
        """Open the store, start the services, serve; on failure everything is closed again."""
        await self.store.open()
        try:
            await self.wheel.start()
            await self.queue.open()
            for service in self.services:
                await service.start()
            await self.grpc.start()
        except BaseException:
            await self.close()
            raise
        log.info("mainspring %s serves on %s", __version__, self.settings.listen)

    async def stop(self) -> None:
        """Drain: health says so, workers are told, in-flight work finishes or lapses."""
        await self.grpc.not_serving()
        self.interceptor.draining = True
        self.watcher.end_all()
        self.dispatcher.drain("the server is stopping", self.settings.drain_ms)
        await self.dispatcher.emptied(self.settings.drain_ms)
        await self.grpc.stop(1.0)
        await self.engine.drain()
        await self.close()

    async def close(self) -> None:
        """Stop the services in reverse order and close the store."""
        for service in reversed(self.services):
            await service.stop()
        await self.queue.close()
        await self.wheel.close()
        await self.store.close()


async def serve(settings: Settings, started: Callable[[App], None] | None = None) -> None:
    """Run one server until SIGTERM or SIGINT; `started` is called once it serves."""
    app = App(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await app.start()
    if started is not None:
        started(app)
    await stop.wait()
    await app.stop()
