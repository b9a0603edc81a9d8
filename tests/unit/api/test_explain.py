"""What Explain tells people."""

import pytest

from mainspring_server.api.explain import spell


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0 s"),
        (1, "0.001 s"),
        (59_999, "59.999 s"),
        (60_000, "1 min"),
        (61_000, "1 min 1 s"),
        (3_597_434, "59 min 57 s"),
        (3_600_000, "1 h"),
        (90_061_000, "1 d 1 h"),
        (315_360_000_000, "3650 d"),
    ],
)
def test_durations_are_spelled_with_two_units(ms: int, said: str) -> None:
    assert spell(ms) == said
