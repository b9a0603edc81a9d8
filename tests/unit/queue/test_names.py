"""Topic names: legal for Kafka, and never shared, nor nearly shared, by two lanes."""

import re

from hypothesis import given
from hypothesis import strategies as st

from mainspring_server.queue.kafka.names import lane_key, namespace_prefix, topic_name

LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
names = st.text("abcAB019._-", min_size=1, max_size=128)


@given(names, names, st.integers(0, 2))
def test_a_topic_name_is_legal(namespace: str, queue: str, band: int) -> None:
    assert LEGAL.fullmatch(topic_name(f"{namespace}/{queue}", band))


@given(st.tuples(names, names, st.integers(0, 2)), st.tuples(names, names, st.integers(0, 2)))
def test_two_lanes_never_share_a_topic(
    one: tuple[str, str, int], two: tuple[str, str, int]
) -> None:
    first, second = (topic_name(f"{n}/{q}", band) for n, q, band in (one, two))
    # Kafka takes a dot and an underscore for the same character in places
    assert (first.replace(".", "_") == second.replace(".", "_")) == (one == two)


def test_dots_underscores_and_hyphens_stay_apart() -> None:
    topics = {topic_name(f"default/{name}", 1) for name in ("a.b", "a_b", "a-b", "a_2eb", "a/b")}
    assert len(topics) == 5
    assert topic_name("default/send-mail", 1) == "mainspring-default_2fsend-mail-1"


def test_a_name_that_is_too_long_becomes_a_digest() -> None:
    long = ["default/" + "_" * 127 + end for end in "ab"]
    assert len({lane_key(lane) for lane in long}) == 2
    assert all(len(topic_name(lane, 0)) < 249 for lane in long)


def test_a_namespaces_topics_have_a_prefix_of_their_own() -> None:
    assert topic_name("team/x", 0).startswith(namespace_prefix("team"))
    assert not topic_name("team-a/x", 0).startswith(namespace_prefix("team"))
    assert not topic_name("tea/mx", 0).startswith(namespace_prefix("team"))
