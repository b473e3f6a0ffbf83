"""Counts of delays by length, fine enough for percentiles: exact below 32 ms, then 16 steps to each doubling.

Invariants: a step is at most 1/16 of what it begins with, and a percentile is told as the middle of its step, so it is
at most 1/32 off. Histograms of the same figures are equal whatever the order or the number of parts they came in.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.pipeline.kernels.compiled import compiled

STEPS: Final = 448
"""How many counts a histogram of delays up to 2^31 ms has."""
_KEPT_BITS: Final = 48
"""A double without so many bits is its exponent and 4 binary digits: the number of its step, counted from elsewhere."""
_FIRST_KEPT: Final = 1023 * 16 + 48
_AT_A_TIME: Final = 4096
"""Histograms that are added up together: 15 MB."""


@compiled
def step_of(delay_ms):
    """The step that a delay from 0 ms on is counted under; delays beyond 2^31 ms share the last one."""
    rest = min(delay_ms, INT_MAX)
    if rest < 32:
        return rest
    return (np.float64(rest).view(np.int64) >> _KEPT_BITS) - _FIRST_KEPT


def steps_of(delays_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """The steps of many delays."""
    rest: NDArray[np.int64] = np.minimum(delays_ms, INT_MAX)
    octave = np.maximum(np.frexp(rest.astype(np.float64))[1].astype(np.int64) - 5, 0)
    steps: NDArray[np.int64] = octave * 16 + (rest >> octave)
    return steps


def percentiles_ms(pool: NDArray[np.uint32], chosen: NDArray[np.int64], share: float) -> NDArray[np.float64]:
    """For each chosen histogram of the pool the delay in ms that so large a share (0 to 1) of it does not exceed.

    A histogram has counted something.
    """
    found = np.zeros(chosen.size)
    for begin in range(0, chosen.size, _AT_A_TIME):
        running = np.cumsum(pool[chosen[begin : begin + _AT_A_TIME]], axis=1, dtype=np.int64)
        ranks = np.maximum(np.ceil(share * running[:, -1]), 1)
        found[begin : begin + _AT_A_TIME] = _MIDDLES_MS[(running < ranks[:, None]).sum(axis=1)]
    return found


def _middle_ms(step: int) -> float:
    """The middle of the delays that one step counts."""
    if step < 32:
        return float(step)
    octave = step // 16 - 1
    width = 1 << octave
    return (step - 16 * octave) * width + (width - 1) / 2


_MIDDLES_MS: Final = np.array([_middle_ms(step) for step in range(STEPS)])
