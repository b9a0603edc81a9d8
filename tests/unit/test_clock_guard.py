"""A node whose clock is off does not trigger."""

from __future__ import annotations

from mainspring_server.clock import VirtualClock
from mainspring_server.clock_guard import ClockGuard


class Store:
    """A store whose clock is `ahead` of the node's and whose answers take `travel` ms."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock, self.ahead, self.travel = clock, 0, 0

    async def now(self) -> int:
        self.clock.advance(self.travel // 2)
        answer = self.clock.now() + self.ahead
        self.clock.advance(self.travel - self.travel // 2)
        return answer


async def test_the_bound_is_a_hundred_milliseconds_either_way() -> None:
    clock = VirtualClock()
    store = Store(clock)
    guard = ClockGuard(store, clock)
    for ahead, trusted in ((0, True), (100, True), (101, False), (-100, True), (-101, False)):
        store.ahead = ahead
        await guard.run_once()
        assert (guard.offset_ms, guard.trusted) == (-ahead, trusted)


async def test_the_travel_time_counts_half_and_a_slow_answer_not_at_all() -> None:
    clock = VirtualClock()
    store = Store(clock)
    guard = ClockGuard(store, clock)
    store.travel = 40
    await guard.run_once()
    assert guard.offset_ms == 0
    store.travel, store.ahead = 500, 5_000
    await guard.run_once()
    assert guard.offset_ms == 0
