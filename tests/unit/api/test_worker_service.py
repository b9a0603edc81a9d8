"""A process without the role dispatch says where tasks are handed out."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.v1 import worker_service_pb2
from mainspring_server.admission.limits import Limits
from mainspring_server.api.worker_service import WorkerService
from mainspring_server.clock import SystemClock
from mainspring_server.domain.errors import FailedPrecondition
from mainspring_server.domain.leases import LeaseTerms

NOTHING: Any = None


async def test_without_the_role_dispatch_nothing_is_handed_out() -> None:
    service = WorkerService(
        NOTHING, None, SystemClock(), LeaseTerms(60_000, 5_000, 15_000), Limits()
    )
    asked = worker_service_pb2.PollRequest(worker_id="w", task_types=["t"])
    for call in (service.Poll(asked, None), service.Lease(NOTHING, None)):
        with pytest.raises(FailedPrecondition, match="role dispatch") as caught:
            await call
        assert caught.value.reason == "ROLE_MISSING"
        assert caught.value.metadata["role"] == "dispatch"
