"""Counts of delays by length, fine enough for percentiles: exact below 32 ms, then 16 steps to each doubling.

Invariants: a step is at most 1/16 of what it begins with, and a percentile is told as the middle of its step, so it is
at most 1/32 off. Histograms of the same figures are equal whatever the order or the number of parts they came in.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.quota_key import INT_MAX
from kafka_quotas.pipeline.kernels.compiled import compiled

STEPS: Final = 448
"""How many counts a histogram of delays up to 2^31 ms has."""


@compiled
def step_of(delay_ms):
    """The step that a delay from 0 ms on is counted under; delays beyond 2^31 ms share the last one."""
    rest = min(delay_ms, INT_MAX)
    octave = 0
    while rest >= 32:
        rest >>= 1
        octave += 1
    return octave * 16 + rest


def steps_of(delays_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """The steps of many delays."""
    rest: NDArray[np.int64] = np.minimum(delays_ms, INT_MAX)
    octave = np.maximum(np.frexp(rest.astype(np.float64))[1].astype(np.int64) - 5, 0)
    steps: NDArray[np.int64] = octave * 16 + (rest >> octave)
    return steps


def percentile_ms(counts: NDArray[np.uint32], share: float) -> float:
    """The delay in ms that so large a share (0 to 1) of what was counted does not exceed; 0 where nothing was."""
    total = int(counts.sum(dtype=np.int64))
    if not total:
        return 0.0
    rank = max(int(np.ceil(share * total)), 1)
    return _middle_ms(int(np.searchsorted(np.cumsum(counts, dtype=np.int64), rank)))


def _middle_ms(step: int) -> float:
    """The middle of the delays that one step counts."""
    if step < 32:
        return float(step)
    octave = step // 16 - 1
    width = 1 << octave
    return (step - 16 * octave) * width + (width - 1) / 2
