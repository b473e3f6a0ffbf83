"""How far bytes that passed go beyond what a quota allows in any interval whatever."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Bytes that passed at one moment.

    Below zero what an event at that moment forgave.
    """

    at_ms: int
    size: float


def excess_bytes(passed: Iterable[Passed], forgiven: Iterable[Passed], *, bytes_per_second: float) -> float:
    """Return the most by which the bytes of an interval go beyond rate x length + what was forgiven within it.

    What is left has to be explained by the burst that the window allows. Both are in order of time.
    """
    level = lowest = excess = 0.0
    last_ms: int | None = None
    for event in heapq.merge(_negative(forgiven), passed, key=lambda each: each.at_ms):
        if last_ms is not None:
            level -= bytes_per_second * (event.at_ms - last_ms) / 1000
        last_ms = event.at_ms
        lowest = min(lowest, level)
        level += event.size
        excess = max(excess, level - lowest)
    return excess


def _negative(forgiven: Iterable[Passed]) -> Iterator[Passed]:
    for each in forgiven:
        yield Passed(at_ms=each.at_ms, size=-each.size)
