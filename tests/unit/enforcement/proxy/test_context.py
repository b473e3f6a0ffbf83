"""Long work takes turns with everything else, and a loop that serves nobody is seen."""

from collections.abc import Callable

import pytest

from kafka_quotas.enforcement.proxy import context
from kafka_quotas.enforcement.proxy.context import LoopStalls, SlicedWork


class VirtualTime:
    """A clock that goes on by what work costs, and a loop that calls what is due."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append((self.now, callback))

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self.due.append((self.now + delay, callback))

    def run(self, until: float) -> None:
        """Call what is due until a time."""
        while self.due and min(self.due, key=lambda each: each[0])[0] <= until:
            at, callback = min(self.due, key=lambda each: each[0])
            self.due.remove((at, callback))
            self.now = max(self.now, at)
            callback()
        self.now = max(self.now, until)


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    time_ = VirtualTime()
    monkeypatch.setattr(context, "perf_counter", lambda: time_.now)
    return time_


def test_long_work_of_several_takes_half_of_the_time_in_turns(virtual: VirtualTime) -> None:
    sliced = SlicedWork(virtual)  # type: ignore[arg-type]
    turns: list[str] = []
    left = {"a": 100, "b": 100}

    def step(name: str) -> bool:
        virtual.now += 0.0004
        turns.append(name)
        left[name] -= 1
        return left[name] > 0

    for name in left:
        sliced.add(lambda name=name: step(name))
    longest = 0.0
    while virtual.due:
        at, callback = virtual.due.pop(0)
        virtual.now = max(virtual.now, at)
        began = virtual.now
        callback()
        longest = max(longest, virtual.now - began)
    assert longest < 0.0013, "no slice is longer than a millisecond and a step"
    assert virtual.now > 2 * 200 * 0.0004 * 0.98, "half of the time is for others"
    assert turns[:6] == ["a"] * 3 + ["b"] * 3
    assert left == {"a": 0, "b": 0}


def test_the_longest_stall_is_known_for_half_a_minute_and_then_forgotten(virtual: VirtualTime) -> None:
    stalls = LoopStalls(virtual)  # type: ignore[arg-type]
    virtual.run(10.0)
    assert stalls.longest_ms < 1
    virtual.now += 0.3  # somebody works for as long
    virtual.run(virtual.now)
    assert stalls.longest_ms == pytest.approx(300, abs=21)
    virtual.run(45.0)
    assert stalls.longest_ms == pytest.approx(300, abs=21), "a scrape every 30 s sees it"
    virtual.run(75.0)
    assert stalls.longest_ms < 1
