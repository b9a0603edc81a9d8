"""The cluster of the distributed fault tests, and a load on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import RealServices

from .cluster import Cluster, cluster
from .load import Load


@pytest.fixture(scope="module")
def shared_cluster(
    services: RealServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Two processes of each role, for every test that leaves them as they were.

    They end with the module: later tests count what goes on at the same services.
    """
    with cluster(tmp_path_factory.mktemp("cluster"), services) as running:
        yield running


@pytest.fixture
def here(shared_cluster: Cluster) -> Cluster:
    """The shared cluster, whole again after the test before."""
    shared_cluster.calm()
    return shared_cluster


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """What the handlers of a test write to."""
    return tmp_path / "record.txt"


@pytest.fixture
def load(here: Cluster, record: Path) -> Iterator[Load]:
    """A running load of 300 tasks a second with one worker on it."""
    made = here.load()
    worker = here.worker(made, record)
    try:
        yield made.start()
    finally:
        made.stop()
        worker.end()
        here.processes.remove(worker)
