"""A value by its rank among values in many parts, exactly, from a bounded sample of each part.

A part gives its distinct values in a bracket, or as many evenly spaced ones of them as a sample may have, each with the
number of values up to it. Together they bound the rank of each of them, which narrows the bracket by a factor of about
half a sample, until all parts give all their values in it: a million values take two rounds.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

SAMPLE: Final = 128
"""Most values in a sample."""


class Bracket(NamedTuple):
    """Values above a lower bound, up to an upper one."""

    low: float = -math.inf
    high: float = math.inf


class ValueSample(NamedTuple):
    """Some of a part's values in a bracket."""

    below: int
    """Values of the part up to the bracket's lower bound."""
    values: NDArray[np.float64]
    """Distinct values, ascending, the largest of all among them."""
    counts: NDArray[np.int64]
    """Number of the part's values up to each of them."""
    is_whole: bool
    """Whether they are all the distinct values."""

    @property
    def up_to_high(self) -> int:
        """The number of the part's values up to the bracket's upper bound."""
        return int(self.counts[-1]) if self.counts.size else self.below

    def bounds(self, values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the least and largest number of the part's values that may be up to each of these."""
        counts = np.concatenate(([self.below], self.counts))
        places = np.searchsorted(self.values, values, side="right")
        least = counts[places]
        if self.is_whole:
            return least, least
        is_known = (places == 0) | (places == self.values.size)
        is_known |= np.append(self.values, np.nan)[places - 1] == values
        return least, np.where(is_known, least, counts[np.minimum(places + 1, self.values.size)] - 1)


def sample_of(values: NDArray[np.float64], bracket: Bracket, *, most: int = SAMPLE) -> ValueSample:
    """Return a sample of a part's values."""
    within = values[(values > bracket.low) & (values <= bracket.high)]
    below = int(np.count_nonzero(values <= bracket.low))
    distinct, counts = np.unique(within, return_counts=True)
    places = np.arange(distinct.size)
    if distinct.size > most:
        places = np.unique(np.linspace(0, distinct.size - 1, most).round().astype(np.int64))
    return ValueSample(below, distinct[places], below + np.cumsum(counts)[places], distinct.size == places.size)


def narrowed(bracket: Bracket, samples: Sequence[ValueSample], rank: int) -> tuple[Bracket, bool]:
    """Return a narrower bracket, and whether its upper bound is the value of a rank.

    Args:
        bracket: A bracket that has the value.
        samples: Samples of it, of all parts.
        rank: The value's rank among the values of all parts, from 1 for the least.
    """
    values = np.unique(np.concatenate([each.values for each in samples]))
    least, most = (np.sum(bounds, axis=0) for bounds in zip(*(each.bounds(values) for each in samples), strict=True))
    lows = values[most < rank]
    found = Bracket(float(lows[-1]) if lows.size else bracket.low, float(values[least >= rank][0]))
    return found, all(each.is_whole for each in samples)
