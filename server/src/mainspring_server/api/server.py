"""The gRPC server: listeners, options, health, reflection. Services and interceptors are given."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from mainspring.v1 import (
    admin_service_pb2,
    scheduler_service_pb2,
    worker_service_pb2,
)

log = logging.getLogger(__name__)

MAX_MESSAGE = 16 * 1_024 * 1_024
KEEPALIVE_MS = 10_000
"""A peer that is gone without a word is noticed within 30 s."""

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_concurrent_streams", 1_000),
)

SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (scheduler_service_pb2, "SchedulerService"),
        (worker_service_pb2, "WorkerService"),
        (admin_service_pb2, "AdminService"),
    )
)


class GrpcServer:
    """One listening server; `register` functions add the services that this process offers."""

    def __init__(
        self,
        listen: str,
        interceptors: Sequence[Any],
        register: Sequence[Callable[[grpc.aio.Server], None]],
        *,
        share_port: bool,
    ) -> None:
        options = (*OPTIONS, ("grpc.so_reuseport", int(share_port)))
        self._server = grpc.aio.server(interceptors=interceptors, options=options)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        for add in register:
            add(self._server)
        names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        self.listen = listen
        self.port = 0

    async def start(self) -> None:
        """Bind and serve; OSError with the address when the port is taken."""
        try:
            self.port = self._server.add_insecure_port(self.listen)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self.listen}: {error}") from None
        if self.port == 0:
            raise OSError(f"cannot listen on {self.listen}: the port is taken")
        await self._server.start()
        for name in ("", *SERVICES):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def not_serving(self) -> None:
        """Tell load balancers to send nothing more; running calls go on."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """End calls after the grace."""
        await self._server.stop(grace_s)
