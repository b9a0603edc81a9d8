"""How partitions are shared out, and which lanes a node still wants."""

from hypothesis import given
from hypothesis import strategies as st

from mainspring_server.queue.kafka.lanes import LINGER_MS, WITHOUT_CREDIT_MS, Lanes
from mainspring_server.queue.kafka.shares import (
    credit_name,
    partition_name,
    read_credit,
    read_partition,
    share,
    weight_of,
)
from mainspring_server.store.port import ShardLease

weights = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.integers(1, 1_000), min_size=1, max_size=8
)


@given(weights, st.integers(1, 64))
def test_every_partition_is_somebodys_and_shares_follow_the_weights(
    nodes: dict[str, int], partitions: int
) -> None:
    shares = {node: share(nodes, node, partitions, "topic") for node in nodes}
    assert sum(shares.values()) == partitions
    for node, weight in nodes.items():
        exact = partitions * weight / sum(nodes.values())
        assert exact - 1 < shares[node] < exact + 1


def test_a_node_without_weight_gets_nothing() -> None:
    assert share({"a": 8}, "b", 8, "topic") == 0
    assert share({}, "b", 8, "topic") == 0


def test_odd_partitions_do_not_all_go_to_one_node() -> None:
    nodes = {"a": 1, "b": 1}
    assert {share(nodes, "a", 1, f"topic-{n}") for n in range(20)} == {0, 1}


def test_weights_are_coarse() -> None:
    assert [weight_of(n) for n in (0, 1, 2, 3, 4, 100, 128)] == [1, 1, 2, 2, 4, 64, 128]


def test_names_are_read_back() -> None:
    lease = ShardLease(credit_name("default_2fwork", "host/with/slashes", 100), "host", 1, 0)
    assert read_credit(lease) == ("default_2fwork", "host", 64)
    assert read_partition(partition_name("mainspring-a_2fb-1", 7)) == ("mainspring-a_2fb-1", 7)


class Changes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_a_new_lane_is_news_and_an_old_one_lingers() -> None:
    changed = Changes()
    lanes = Lanes(changed)
    lanes.serve({"a": 5}, 0)
    lanes.serve({"a": 7}, 10)
    assert (lanes.names(), lanes.credits("a"), changed.count) == (["a"], 7, 1)
    lanes.serve({}, 20)
    lanes.serve({}, 20 + LINGER_MS - 1)
    assert lanes.names() == ["a"]
    lanes.serve({"a": 7}, 20 + LINGER_MS)
    lanes.serve({}, 30 + LINGER_MS)
    lanes.serve({}, 30 + 2 * LINGER_MS)
    assert (lanes.names(), changed.count) == ([], 2)


def test_a_lane_without_credit_is_given_up_only_to_others() -> None:
    changed = Changes()
    lanes = Lanes(changed)
    lanes.serve({"alone": 5, "shared": 5}, 0)
    shared = lanes.get("shared")
    assert shared is not None
    shared.rivals = True
    lanes.waits("alone", 0)
    lanes.waits("shared", 10)
    lanes.waits("shared", 100)  # it waits since 10
    assert lanes.starve(11) == 10 + WITHOUT_CREDIT_MS
    assert set(lanes.active()) == {"alone", "shared"}
    assert lanes.starve(10 + WITHOUT_CREDIT_MS) is None
    assert set(lanes.active()) == {"alone"}
    lanes.asked("shared")
    assert set(lanes.active()) == {"alone", "shared"}
    assert changed.count == 3
