"""Histograms of durations, on the grid of an HdrHistogram: 1 us to 1 h, three significant digits.

Invariants: counts are exact. A duration is known to its cell, at most 0.1 % wide, and one out of range counts in the
first or last cell. Memory is bounded by the cells in use, and only they are kept: the Python form of HdrHistogram holds
all 23,552 and takes some 6 us for an entry, and a run may have 4,000 distributions.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

LOWEST_US = 1
HIGHEST_US = 3_600_000_000
"""One hour in microseconds, longer than any throttle of a sane quota."""

_EXACT_BITS = 11  # 2048 cells for three digits: values below are their own cells
_MASKS = [-1 << max(bits - _EXACT_BITS, 0) for bits in range(HIGHEST_US.bit_length() + 1)]
"""The bits of a duration that the lowest value of its cell has, by the number of its bits."""
_LEVELS_PER_HALF = 5  # of the way to 100 %, as HdrHistogram's percentile distributions have them
_NEAR = 1.05  # times as long is not worth a mark


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """The statistics of a histogram, in microseconds, all 0 where it is empty."""

    count: int
    min_us: int
    mean_us: float
    p50_us: int
    p90_us: int
    p99_us: int
    p999_us: int
    max_us: int
    censored: int = 0
    """How many of them had not ended when the run did, and count as long as they had lasted by then."""

    def is_bound(self, share: float) -> bool:
        """Return whether the percentile at this share is only a lower bound."""
        return self.censored > (1 - share) * self.count


NOTHING = LatencySummary(count=0, min_us=0, mean_us=0.0, p50_us=0, p90_us=0, p99_us=0, p999_us=0, max_us=0)


class LatencyPoint(NamedTuple):
    """A percentile of a distribution."""

    value_us: int
    share: float
    is_bound: bool
    """Whether the value is only a lower bound, as too many requests had no answer by the end."""


class Histogram:
    """Counts of durations, written by one thread, of which others read a `snapshot`."""

    __slots__ = ("bounds", "censored", "counts")

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        """The number of durations in each cell, by the cell's lowest value in microseconds."""
        self.bounds: Counter[int] = Counter()
        """How many of these are lower bounds, in the same way."""
        self.censored = 0
        """How many of the durations are lower bounds."""

    def add_bound(self, elapsed_ns: int, count: int = 1) -> None:
        """Count `count` durations that have lasted for `elapsed_ns` nanoseconds and did not end."""
        self.censored += count
        self.bounds[self.add(elapsed_ns, count)] += count

    def add(self, elapsed_ns: int, count: int = 1) -> int:
        """Count `count` durations of `elapsed_ns` nanoseconds, and return the lowest value of their cell."""
        (cell,) = self.add_many([elapsed_ns], [count])
        return cell

    def add_many(self, elapsed_ns: Sequence[int], counts: Sequence[int]) -> list[int]:
        """Count durations, each as often as `counts` says, and return the lowest values of their cells."""
        all_us = [each // 1000 for each in elapsed_ns]
        if not LOWEST_US <= min(all_us) <= max(all_us) <= HIGHEST_US:
            all_us = [min(max(each, LOWEST_US), HIGHEST_US) for each in all_us]
        cells = [each & _MASKS[each.bit_length()] for each in all_us]
        if max(counts) == 1:
            self.counts.update(cells)  # a loop of the interpreter's own
        else:
            for cell, count in zip(cells, counts, strict=True):
                self.counts[cell] += count
        return cells

    def take(self, counts: Mapping[int, int], *, bounds: Mapping[int, int]) -> None:
        """Add the cells of another histogram and of its lower bounds, by their lowest values (us)."""
        self.counts.update(counts)
        self.bounds.update(bounds)
        self.censored += sum(bounds.values())

    def snapshot(self) -> "Histogram":
        """Return a copy as of now, safe while another thread writes."""
        taken = Histogram()
        taken.take(dict(self.counts), bounds=dict(self.bounds))  # dict() copies in one step of the interpreter
        return taken

    def percentiles(self) -> Iterator[LatencyPoint]:
        """Yield percentiles, ascending, of which one is a bound if endless waits would make it much longer."""
        cells = sorted(self.counts.items())
        values = [*(_highest(lowest) for lowest, _ in cells), math.inf]
        counted = list(accumulate(count for _, count in cells))
        known = list(accumulate(count - self.bounds[lowest] for lowest, count in cells))
        total = counted[-1] if counted else 0
        for level in _levels(total):
            value, longest = (values[bisect_left(each, max(level * total, 1))] for each in (counted, known))
            yield LatencyPoint(round(value), level, longest > value * _NEAR)

    def summary(self) -> LatencySummary:
        """Return the statistics that an HdrHistogram of the same durations would report."""
        if not self.counts:
            return NOTHING
        cells = sorted(self.counts.items())
        total = sum(count for _, count in cells)
        p50, p90, p99, p999 = _percentiles(cells, total, (0.5, 0.9, 0.99, 0.999))
        return LatencySummary(
            count=total,
            min_us=cells[0][0],
            mean_us=sum((lowest + _width(lowest) // 2) * count for lowest, count in cells) / total,
            p50_us=p50,
            p90_us=p90,
            p99_us=p99,
            p999_us=p999,
            max_us=_highest(cells[-1][0]),
            censored=self.censored,
        )


def _percentiles(cells: Sequence[tuple[int, int]], total: int, shares: Sequence[float]) -> list[int]:
    """Return the highest values of the cells that hold these shares of all counts, which ascend.

    **Source:** HdrHistogram's `getValueAtPercentile`: the target is the share of the count, rounded, at least one.
    """
    targets = [max(int(share * total + 0.5), 1) for share in shares]
    found: list[int] = []
    below = 0
    for lowest, count in cells:
        below += count
        while len(found) < len(targets) and below >= targets[len(found)]:
            found.append(_highest(lowest))
    return found


def _levels(total: int) -> Sequence[float]:
    """Return shares that near 100 %, and the same from the other end, as fine as `total` allows."""
    levels, level = [0.0], 0.0
    while (1 - level) * total >= 1:
        levels.append(level)
        level += math.ldexp(1 / _LEVELS_PER_HALF, -math.floor(math.log2(1 / (1 - level))) - 1)
    return sorted({*levels, *(1 - each for each in levels)}) if total else []


def _width(lowest: int) -> int:
    return 1 << max(lowest.bit_length() - _EXACT_BITS, 0)


def _highest(lowest: int) -> int:
    return lowest + _width(lowest) - 1
