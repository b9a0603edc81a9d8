"""Who fires which shard: fair shares, quick take-over, and letting go when in doubt."""

from collections.abc import Sequence

import pytest

from mainspring_server.clock import VirtualClock
from mainspring_server.domain.errors import Unavailable
from mainspring_server.domain.task import SHARDS
from mainspring_server.store.port import DueEntry, ShardLease
from mainspring_server.trigger.ownership import (
    RENEW_MS,
    RETRY_MS,
    TTL_MS,
    ShardOwner,
    shard_name,
    shard_of_name,
)
from mainspring_server.wheel.polled import PolledWheel

ALL = frozenset(range(SHARDS))


class Leases:
    """ShardLeases in memory. `slow_ms` pass before `acquire` answers."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.rows: dict[str, ShardLease] = {}
        self.slow_ms = 0
        self.error: Exception | None = None
        self.calls = 0
        self.watched: ShardOwner | None = None
        self.seen: frozenset[int] = frozenset()  # all shards open while `watched` called

    async def acquire(self, names: Sequence[str], owner: str, ttl_ms: int) -> list[ShardLease]:
        self._call()
        now = self.clock.now()
        for name in names:
            row = self.rows.get(name)
            live = row is not None and row.expires_at > now
            if live and row is not None and row.owner != owner:
                continue
            term = (row.term if row else 0) + (0 if live else 1)
            self.rows[name] = ShardLease(name, owner, term, now + ttl_ms)
        self.clock.advance(self.slow_ms)
        return [self.rows[name] for name in names if self.rows[name].owner == owner]

    async def release(self, leases: Sequence[ShardLease]) -> None:
        self._call()
        for lease in leases:
            row = self.rows.get(lease.name)
            if row is not None and (row.owner, row.term) == (lease.owner, lease.term):
                self.rows[lease.name] = ShardLease(row.name, row.owner, row.term, self.clock.now())

    async def shard_leases(self, *prefixes: str) -> list[ShardLease]:
        self._call()
        now = self.clock.now()
        rows = [r for r in self.rows.values() if r.name.startswith(prefixes)]
        return [r for r in rows if r.expires_at > now]

    def _call(self) -> None:
        self.calls += 1
        if self.watched is not None:
            self.seen |= self.watched.shards
        if self.error is not None:
            raise self.error


class NoRows:
    """A store without tasks."""

    async def due(self, shards: Sequence[int], until: int, limit: int) -> list[DueEntry]:
        return []


class Cluster:
    """Some nodes that share one table of leases, stepped by hand."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.leases = Leases(self.clock)
        self.nodes: dict[str, ShardOwner] = {}
        self.wake: dict[str, int] = {}

    def node(self, name: str) -> ShardOwner:
        wheel = PolledWheel(NoRows(), self.clock)
        self.nodes[name] = ShardOwner(self.leases, wheel, self.clock, name)
        self.wake[name] = self.clock.now()
        return self.nodes[name]

    def kill(self, name: str) -> None:
        del self.nodes[name], self.wake[name]

    async def run(self, ms: int) -> None:
        """Every node's passes at the times that it asks for."""
        until = self.clock.now() + ms
        while self.nodes and min(self.wake.values()) <= until:
            name = min(self.wake, key=lambda n: self.wake[n])
            self.clock.advance(max(self.wake[name] - self.clock.now(), 0))
            wake = await self.nodes[name].run_once()
            assert wake is not None
            assert wake > self.clock.now()
            self.wake[name] = wake
        self.clock.advance(max(until - self.clock.now(), 0))

    def owners(self) -> dict[int, list[str]]:
        return {s: [n for n, owner in self.nodes.items() if s in owner.shards] for s in ALL}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_names() -> None:
    assert [shard_of_name(shard_name(shard)) for shard in range(SHARDS)] == list(range(SHARDS))


async def test_a_node_alone_owns_everything_at_once(cluster: Cluster) -> None:
    node = cluster.node("a")
    await node.run_once()
    assert node.shards == ALL
    assert {lease.term for lease in node.held} == {1}
    assert cluster.leases.rows["trigger/a"].owner == "a"


async def test_renewal_keeps_the_term(cluster: Cluster) -> None:
    node = cluster.node("a")
    await cluster.run(20_000)
    assert node.shards == ALL
    assert {lease.term for lease in node.held} == {1}


@pytest.mark.parametrize("count", [2, 3, 5, 16, 70])
async def test_nodes_share_fairly_and_leave_nothing(cluster: Cluster, count: int) -> None:
    for i in range(count):
        cluster.node(f"node-{i}")
    await cluster.run(6_000)
    sizes = [len(node.shards) for node in cluster.nodes.values()]
    assert max(sizes) <= -(-SHARDS // count)
    assert sum(sizes) == SHARDS
    assert all(len(names) == 1 for names in cluster.owners().values())


async def test_a_newcomer_gets_its_share_without_a_second_of_nobody(cluster: Cluster) -> None:
    cluster.node("a")
    await cluster.run(5_300)
    cluster.node("b")
    nobody = 0
    for _ in range(60):
        await cluster.run(50)
        nobody += any(not names for names in cluster.owners().values())
    assert [len(node.shards) for node in cluster.nodes.values()] == [32, 32]
    assert nobody * 50 <= RETRY_MS + 50


@pytest.mark.parametrize("phase_ms", [0, 300, 600, 900])
async def test_the_shards_of_a_killed_node_are_taken_over_as_soon_as_they_lapse(
    cluster: Cluster, phase_ms: int
) -> None:
    cluster.node("a")
    b = cluster.node("b")
    await cluster.run(10_000)
    cluster.wake["b"] = cluster.wake["a"] + phase_ms
    await cluster.run(cluster.wake["a"] - cluster.clock.now())
    cluster.kill("a")
    await cluster.run(TTL_MS + RETRY_MS)
    assert b.shards == ALL
    assert {lease.term for lease in b.held} == {2}


async def test_a_node_that_stops_hands_over_at_once(cluster: Cluster) -> None:
    a, b = cluster.node("a"), cluster.node("b")
    await cluster.run(10_000)
    await a.stop()
    assert a.shards == frozenset()
    assert a.held == []
    cluster.kill("a")
    await cluster.run(RENEW_MS)
    assert b.shards == ALL


async def test_a_node_that_starts_again_under_its_name_has_its_shards_at_once(
    cluster: Cluster,
) -> None:
    cluster.node("a")
    cluster.node("b")
    await cluster.run(10_000)
    before = cluster.nodes["a"].shards
    again = cluster.node("a")
    await again.run_once()
    assert again.shards == before


async def test_an_error_is_ridden_out_until_the_leases_lapse(cluster: Cluster) -> None:
    node = cluster.node("a")
    await node.run_once()
    cluster.leases.error = Unavailable("STORE_UNAVAILABLE", "the store is away")
    await cluster.run(TTL_MS - 1)
    assert node.shards == ALL
    await cluster.run(RETRY_MS)
    assert node.shards == frozenset()
    assert node.held == []
    cluster.leases.error = None
    await cluster.run(RETRY_MS)
    assert node.shards == ALL


async def test_any_other_error_concedes_as_well(cluster: Cluster) -> None:
    node = cluster.node("a")
    await node.run_once()
    cluster.leases.error = OSError("no route")
    with pytest.raises(OSError, match="no route"):
        await node.run_once()
    assert node.shards == ALL
    cluster.clock.advance(TTL_MS)
    with pytest.raises(OSError, match="no route"):
        await node.run_once()
    assert node.shards == frozenset()


async def test_a_zombie_concedes_before_it_asks(cluster: Cluster) -> None:
    a, b = cluster.node("a"), cluster.node("b")
    await cluster.run(10_000)
    del cluster.nodes["a"], cluster.wake["a"]
    await cluster.run(10_000)
    assert b.shards == ALL
    assert a.shards != frozenset()  # stopped: it cannot know
    cluster.leases.watched = a
    await a.run_once()
    assert cluster.leases.seen == frozenset()
    assert a.shards == frozenset()  # everything is another's; its share is given up to it next
    cluster.nodes["a"], cluster.wake["a"] = a, cluster.clock.now()
    await cluster.run(3_000)
    assert len(a.shards) == len(b.shards) == 32


async def test_an_answer_that_took_longer_than_the_lease_means_nothing(cluster: Cluster) -> None:
    node = cluster.node("a")
    cluster.leases.slow_ms = TTL_MS
    await node.run_once()
    assert node.shards == frozenset()
    cluster.leases.slow_ms = TTL_MS - 1
    await node.run_once()
    assert node.shards == ALL


async def test_a_lease_taken_by_another_is_closed(cluster: Cluster) -> None:
    node = cluster.node("a")
    await node.run_once()
    row = cluster.leases.rows[shard_name(7)]
    cluster.leases.rows[row.name] = ShardLease(row.name, "b", row.term + 1, row.expires_at)
    await cluster.run(RENEW_MS)
    assert node.shards == ALL - {7}


async def test_the_pager_is_told_of_changes_only(cluster: Cluster) -> None:
    told: list[frozenset[int]] = []
    wheel = PolledWheel(NoRows(), cluster.clock)
    node = ShardOwner(
        cluster.leases, wheel, cluster.clock, "a", on_change=lambda: told.append(node.shards)
    )
    for _ in range(3):
        await node.run_once()
    assert told == [ALL]
    await node.stop()
    assert told == [ALL, frozenset()]


async def test_two_permanent_owners(cluster: Cluster) -> None:
    wheels = [PolledWheel(NoRows(), cluster.clock) for _ in range(2)]
    nodes = [
        ShardOwner(cluster.leases, wheel, cluster.clock, name, own_all=True)
        for wheel, name in zip(wheels, "ab", strict=True)
    ]
    for node in nodes:
        assert await node.run_once() is None
        assert node.shards == ALL
    assert cluster.leases.calls == 0


async def test_runs_as_a_service(cluster: Cluster) -> None:
    node = cluster.node("a")
    await node.start()
    await node.probe.next()
    assert node.shards == ALL
    cluster.clock.advance(RENEW_MS)
    await node.probe.next()
    await node.stop()
    assert await cluster.leases.shard_leases("") == []
