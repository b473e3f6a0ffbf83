"""What a replay adds up per row and limit: columns of counts and amounts, and histograms of delays.

Histograms are fine enough for percentiles: delays below 32 ms are exact, longer ones have 16 steps to each doubling.

Invariants: a step is at most 1/16 of its lower end, and a percentile is the middle of its step, hence at most 1/32 off.
Histograms of the same delays are equal whatever the order or the number of parts they came in.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.ring import FAR_MS

EVENTS: Final = 0
THROTTLED: Final = 1
REFUSALS: Final = 2
THROTTLE_MS: Final = 3
LONGEST_MS: Final = 4
FIRST_MS: Final = 5
"""Time of the first throttled event, `FAR_MS` for never."""
LATE_MS: Final = 6
BEGIN_MS: Final = 7
END_MS: Final = 8
"""End of the last event and of its delay."""
COUNTS: Final = 9

AMOUNT: Final = 0
PEAK: Final = 1
AMOUNTS: Final = 2

FRESH: Final = (0, 0, 0, 0, 0, FAR_MS, 0, FAR_MS, -FAR_MS)
"""The counts of a row without events."""

STEPS: Final = 448
"""Counts in a histogram of delays up to 2^31 ms."""
_KEPT_BITS: Final = 48
"""Low bits of a double to drop: exponent and 4 binary digits are left, which number the step with another origin."""
_FIRST_KEPT: Final = 1023 * 16 + 48
_AT_A_TIME: Final = 4096
"""Histograms that are added up together: 15 MB."""


@compiled
def tally_throttle(counts, t, now_ms, throttle_ms):
    """Count a throttle time above 0."""
    counts[t + THROTTLE_MS] += throttle_ms
    if throttle_ms > counts[t + LONGEST_MS]:
        counts[t + LONGEST_MS] = throttle_ms
    if now_ms < counts[t + FIRST_MS]:
        counts[t + FIRST_MS] = now_ms


@compiled
def tally_event(counts, t, now_ms, end_ms, late_ms, throttled):
    """Count an event that happened at `now_ms` and whose delay ends at `end_ms`."""
    counts[t + EVENTS] += 1
    if throttled:
        counts[t + THROTTLED] += 1
    counts[t + LATE_MS] += late_ms
    if now_ms < counts[t + BEGIN_MS]:
        counts[t + BEGIN_MS] = now_ms
    if end_ms > counts[t + END_MS]:
        counts[t + END_MS] = end_ms


@compiled
def step_of(delay_ms):
    """Return the step that counts a delay of at least 0 ms.

    Delays beyond 2^31 ms share the last step.
    """
    rest = min(delay_ms, INT_MAX)
    if rest < 32:
        return rest
    return (np.float64(rest).view(np.int64) >> _KEPT_BITS) - _FIRST_KEPT


@compiled
def count_delay(slots, pool, pool_used, lane, throttle_ms):
    """Count a throttle time in the histogram of a lane (one limit of one row).

    A lane gets a histogram from the pool with its first throttle time.
    """
    slot = slots[lane]
    if slot < 0:
        slot = pool_used[0]
        slots[lane] = slot
        pool_used[0] += 1
    pool[slot, step_of(throttle_ms)] += 1


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
    if step < 32:
        return float(step)
    octave = step // 16 - 1
    width = 1 << octave
    return (step - 16 * octave) * width + (width - 1) / 2


_MIDDLES_MS: Final = np.array([_middle_ms(step) for step in range(STEPS)])
