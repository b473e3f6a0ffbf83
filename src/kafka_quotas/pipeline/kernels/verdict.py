"""How long a violation costs, and the tokens of a mutation quota, on flat arrays.

Invariants: the arithmetic and rounding are those of `core.throttle_time` and `core.token_bucket`; results are whole
ms within 64 bits.
**Source:** `QuotaUtils`, `TokenBucket`, `ControllerMutationQuotaManager.throttleTimeMs` of Kafka 4.0.
"""

import math
from typing import Final

from kafka_quotas.core.quota_key import LONG_MAX
from kafka_quotas.pipeline.kernels.compiled import compiled

_LONG_MIN: Final = -LONG_MAX - 1
_HIGHEST: Final = float(LONG_MAX)
_LOWEST: Final = float(_LONG_MIN)


@compiled
def round_half_up(value):
    """The nearest whole number, halves towards plus infinity, within 64 bits; 0 for NaN."""
    if value != value:  # noqa: PLR0124 - NaN is the one value unlike itself
        return 0
    if value >= _HIGHEST:
        return LONG_MAX
    if value <= _LOWEST:
        return _LONG_MIN
    floor = math.floor(value)
    whole = int(floor)
    return whole + 1 if value - floor >= 0.5 else whole


@compiled
def quotient(dividend, divisor):
    """The quotient as IEEE 754 has it, also for a divisor of 0."""
    if divisor != 0.0:
        return dividend / divisor
    if dividend == 0.0 or dividend != dividend:  # noqa: PLR0124 - as above
        return math.nan
    return math.inf if dividend > 0.0 else -math.inf


@compiled
def rate_throttle_ms(rate, bound, span_ms, longest_ms):
    """The delay in ms that brings a rate back to its bound, at most `longest_ms`."""
    return min(round_half_up(quotient(rate - bound, bound) * span_ms), longest_ms)


@compiled
def debt_throttle_ms(tokens, bound):
    """The delay in ms after which a debt of `-tokens` is paid."""
    return round_half_up(quotient(-tokens, bound) * 1000)


@compiled
def refill(clocks, sums, c, s, bound, now_ms, samples, window_ms):
    """The tokens at a time; the bucket keeps them."""
    burst = samples * (window_ms / 1000.0) * bound
    tokens = sums[s] + bound * ((now_ms - clocks[c]) / 1000.0)
    if tokens > burst:
        tokens = burst
    sums[s] = tokens
    clocks[c] = now_ms
    return tokens


@compiled
def take(clocks, sums, c, s, value, bound, now_ms, samples, window_ms):
    """Nothing; the value is taken out, or put back where it is negative, up to the burst."""
    burst = samples * (window_ms / 1000.0) * bound
    tokens = refill(clocks, sums, c, s, bound, now_ms, samples, window_ms) - value
    sums[s] = min(tokens, burst)
