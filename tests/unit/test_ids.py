"""Task ids: what is minted parses, what is not canonical is refused by name."""

from __future__ import annotations

import uuid

import pytest

from mainspring_server.domain.errors import InvalidArgument
from mainspring_server.domain.task import SHARDS, shard_of
from mainspring_server.ids import mint, parse, text_of

NOW = 1_700_000_000_000


def test_minted_ids_are_uuids_of_version_7_and_their_time() -> None:
    for task_id in mint(NOW, 100):
        known = uuid.UUID(bytes=task_id)
        assert (known.version, known.variant) == (7, uuid.RFC_4122)
        assert int.from_bytes(task_id[:6], "big") == NOW
        assert text_of(task_id) == str(known)
        assert parse(text_of(task_id), "task_id") == task_id


def test_ids_differ_and_spread_over_the_shards() -> None:
    ids = mint(NOW, 20_000)
    assert len(set(ids)) == len(ids)
    assert {shard_of(task_id) for task_id in ids} == set(range(SHARDS))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0190f3c47e1a7c3e9b603f1d2a9c5b77",
        "0190F3C4-7E1A-7C3E-9B60-3F1D2A9C5B77",
        "0190f3c4-7e1a-4c3e-9b60-3f1d2a9c5b77",
        "0190f3c4-7e1a-7c3e-1b60-3f1d2a9c5b77",
        "0190f3c4-7e1a-7c3e-9b60-3f1d2a9c5b77\n",
        "0190f3c4-7e1a-7c3e-9b60-3f1d2a9c5b7٣",
        "a" * 10_000,
    ],
)
def test_anything_else_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(text, "leases[3].task_id")
    assert caught.value.reason == "TASK_ID_INVALID"
    assert caught.value.field == "leases[3].task_id"
    assert len(caught.value.message) < 300
