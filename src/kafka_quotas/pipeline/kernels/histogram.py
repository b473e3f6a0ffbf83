"""Counts of delays by length, fine enough for percentiles.

Delays below 32 ms are exact, longer ones have 16 steps to each doubling.

Invariants: a step is at most 1/16 of its lower end, and a percentile is the middle of its step, hence at most 1/32 off.
Histograms of the same delays are equal whatever the order or the number of parts they came in.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.pipeline.kernels.compiled import compiled

STEPS: Final = 448
"""Counts in a histogram of delays up to 2^31 ms."""
_KEPT_BITS: Final = 48
"""Low bits of a double to drop: exponent and 4 binary digits are left, which number the step with another origin."""
_FIRST_KEPT: Final = 1023 * 16 + 48
_AT_A_TIME: Final = 4096
"""Histograms that are added up together: 15 MB."""


@compiled
def step_of(delay_ms):
    """Return the step that counts a delay of at least 0 ms.

    Delays beyond 2^31 ms share the last step.
    """
    rest = min(delay_ms, INT_MAX)
    if rest < 32:
        return rest
    return (np.float64(rest).view(np.int64) >> _KEPT_BITS) - _FIRST_KEPT


def steps_of(delays_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the steps of many delays."""
    rest: NDArray[np.int64] = np.minimum(delays_ms, INT_MAX)
    octave = np.maximum(np.frexp(rest.astype(np.float64))[1].astype(np.int64) - 5, 0)
    steps: NDArray[np.int64] = octave * 16 + (rest >> octave)
    return steps


def percentiles_ms(pool: NDArray[np.uint32], chosen: NDArray[np.int64], share: float) -> NDArray[np.float64]:
    """Return the percentile in ms of each chosen histogram of the pool.

    Each chosen histogram has at least one count. `share` of the delays, 0 to 1, do not exceed the percentile.
    """
    found = np.zeros(chosen.size)
    for begin in range(0, chosen.size, _AT_A_TIME):
        running = np.cumsum(pool[chosen[begin : begin + _AT_A_TIME]], axis=1, dtype=np.int64)
        ranks = np.maximum(np.ceil(share * running[:, -1]), 1)
        found[begin : begin + _AT_A_TIME] = _MIDDLES_MS[(running < ranks[:, None]).sum(axis=1)]
    return found


def _middle_ms(step: int) -> float:
    """Return the middle of the delays that one step counts."""
    if step < 32:
        return float(step)
    octave = step // 16 - 1
    width = 1 << octave
    return (step - 16 * octave) * width + (width - 1) / 2


_MIDDLES_MS: Final = np.array([_middle_ms(step) for step in range(STEPS)])
