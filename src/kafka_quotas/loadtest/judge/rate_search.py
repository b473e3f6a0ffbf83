"""The search for the highest rate that keeps a target: which rate is next, when it is found, and how sure that is.

Rates lie on a ladder of eight steps between a rate and its double (9 % each), counted from the scenario's own. The
search doubles or halves until a rate that keeps the target and one that breaks it are known, and halves the gap
between them. Then both ends are repeated, in turn, until each is sure: a rate *keeps* the target where more than half
of all runs would keep it. Near the highest such rate runs scatter: one that `_MOST_REPEATS` runs can't decide is left
out, and the gap around it stays.

How sure a rate is, is a bet of its runs against "half of them or fewer": each that agrees multiplies the stake by 1.9,
each other one by 0.1, and 20 times the stake refutes it with a confidence of 95 %, however often one looks. Five runs
in a row do, or nine of ten. **Source:** J. Ville, Etude critique de la notion de collectif (1939).

Contract: pure.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kafka_quotas.loadtest.judgement import State

STEPS_PER_DOUBLE: Final = 8
_FURTHEST: Final = 10 * STEPS_PER_DOUBLE  # in either direction: a thousand times the rates, or a thousandth
_MOST_REPEATS: Final = 10
_SURE: Final = 20.0
_AGREES, _DISAGREES = 1.9, 0.1


def factor_of(step: int) -> float:
    """Return by what the scenario's rates are multiplied at a step."""
    return float(2.0 ** (step / STEPS_PER_DOUBLE))


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTally:
    """The runs at one rate."""

    step: int
    kept: int = 0
    """Runs that kept the target."""
    broken: int = 0
    """Runs that did not."""

    @property
    def runs(self) -> int:
        """All of them."""
        return self.kept + self.broken

    @property
    def is_surely_kept(self) -> bool:
        """Whether more than half of all runs would keep the target, with a confidence of 95 %."""
        return _stake(self.kept, self.broken) >= _SURE

    @property
    def is_surely_broken(self) -> bool:
        """Whether more than half of all runs would break it, with the same confidence."""
        return _stake(self.broken, self.kept) >= _SURE

    @property
    def is_sure(self) -> bool:
        """Whether its runs decide."""
        return self.is_surely_kept or self.is_surely_broken

    @property
    def is_unclear(self) -> bool:
        """Whether not even `_MOST_REPEATS` runs can decide, so that no more are made."""
        fewer = min(self.kept, self.broken)
        return not self.is_sure and _stake(_MOST_REPEATS - fewer, fewer) < _SURE


def _stake(agreeing: int, others: int) -> float:
    return float(_AGREES**agreeing * _DISAGREES**others)


class RateSearch:
    """One search, which names the next rate and records how its run ended."""

    def __init__(self) -> None:
        self._tallies: dict[int, RateTally] = {}

    @property
    def tallies(self) -> tuple[RateTally, ...]:
        """The runs by rate, from the lowest rate on."""
        return tuple(self._tallies[step] for step in sorted(self._tallies))

    def record(self, step: int, *, is_kept: bool) -> None:
        """Record a run at a step."""
        tally = self._tallies.get(step, RateTally(step=step))
        self._tallies[step] = RateTally(step=step, kept=tally.kept + is_kept, broken=tally.broken + (not is_kept))

    @property
    def low(self) -> RateTally | None:
        """The highest rate that seems to keep the target, below all that surely break it."""
        ceiling = min((each.step for each in self.tallies if each.is_surely_broken), default=_FURTHEST + 1)
        kept = [each for each in self._leaning(1) if each.step < ceiling]
        return max(kept, key=lambda each: each.step, default=None)

    @property
    def high(self) -> RateTally | None:
        """The lowest rate that seems to break it, above `low`."""
        floor = -_FURTHEST - 1 if self.low is None else self.low.step
        return min((each for each in self._leaning(-1) if each.step > floor), key=lambda each: each.step, default=None)

    def next_step(self) -> int | None:
        """Return the step of the next run, None where the search has ended."""
        if not self._tallies:
            return 0
        doubtful = self._doubtful()
        if doubtful is not None:
            return doubtful
        low, high = self.low, self.high
        if low is None:
            return self._beyond(-1)
        if high is None:
            return self._beyond(1)
        gap = self._widest_gap(low.step, high.step)
        if gap is not None:
            return gap
        open_ends = [each for each in (low, high) if not each.is_sure]
        return min(open_ends, key=lambda each: each.runs).step if open_ends else None

    @property
    def state(self) -> State:
        """Met where the rate is found, not met where no rate keeps the target, else undecided."""
        if self.next_step() is not None:
            return State.UNDECIDED
        if self.low is None:
            return State.NOT_MET
        return State.UNDECIDED if self.high is None else State.MET

    def _leaning(self, sign: int) -> list[RateTally]:
        """Return the clear rates whose runs mostly kept the target (1) or mostly broke it (-1)."""
        return [each for each in self.tallies if (each.kept - each.broken) * sign > 0 and not each.is_unclear]

    def _doubtful(self) -> int | None:
        """Return the rate with the fewest runs of those that are even, or contradict another one."""
        even = [each for each in self.tallies if each.kept == each.broken and not each.is_unclear]
        lowest_broken = min((each.step for each in self._leaning(-1)), default=_FURTHEST + 1)
        highest_kept = max((each.step for each in self._leaning(1)), default=-_FURTHEST - 1)
        crossed = [
            each
            for each in (*self._leaning(1), *self._leaning(-1))
            if lowest_broken <= each.step <= highest_kept and not each.is_sure
        ]
        return min((*even, *crossed), key=lambda each: (each.runs, each.step)).step if even or crossed else None

    def _beyond(self, direction: int) -> int | None:
        """Return the next step outwards, at the end of the ladder until that is sure."""
        ends = [each.step * direction for each in self.tallies]
        outermost = self._tallies[max(ends) * direction]
        if abs(outermost.step) >= _FURTHEST:
            return None if outermost.is_sure or outermost.is_unclear else outermost.step
        return outermost.step + direction * STEPS_PER_DOUBLE

    def _widest_gap(self, low: int, high: int) -> int | None:
        """Return the middle of the widest gap between rates that were tried, None where there is none."""
        tried = [each.step for each in self.tallies if low <= each.step <= high]
        gaps = [(above - below, -below) for below, above in pairwise(tried) if above - below > 1]
        if not gaps:
            return None
        width, below = max(gaps)
        return -below + width // 2
