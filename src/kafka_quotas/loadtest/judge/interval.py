"""Intervals of 95 % from repeated runs: what a difference between two means may be, given how runs scatter.

Runs of either side may scatter differently and be few, so the interval is Welch's, from Student's distribution.
**Source:** B. L. Welch, Biometrika 34 (1947); the quantiles are Abramowitz and Stegun's, 26.7.5 and table 26.10.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final

_T_975: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's 97.5 % quantiles of 1 to 10 degrees of freedom."""
_Z_975: Final = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An interval that holds the true value in 95 of 100 experiments."""

    low: float
    high: float


def t_quantile(degrees: int) -> float:
    """Return Student's 97.5 % quantile for this many degrees of freedom, from 1 on."""
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = _Z_975
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / math.pow(degrees, power) for power, term in enumerate(terms, start=1))


def difference_interval(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """Return the interval of mean(second) - mean(first), None with fewer than two figures on either side."""
    if min(len(first), len(second)) < 2:
        return None
    parts = [(variance(values) / len(values), len(values) - 1) for values in (first, second)]
    middle, squared = fmean(second) - fmean(first), sum(part for part, _ in parts)
    if not squared:
        return Interval(low=middle, high=middle)
    degrees = int(squared**2 / sum(part**2 / freedom for part, freedom in parts))
    reach = t_quantile(max(degrees, 1)) * math.sqrt(squared)
    return Interval(low=middle - reach, high=middle + reach)
