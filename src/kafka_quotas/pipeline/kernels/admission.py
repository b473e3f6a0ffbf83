"""One operation on one limiter, on flat arrays, as `core.quotas.simulation` and quota managers do it.

`RECORD` records and then checks. `NOCHECK` only records (a negative value takes back). `STRICT` checks, and records a
value that the bound admits. `CHECK` only checks. `FETCH` records, checks, and takes a refused value back.

Invariants: the arithmetic and rounding are those of `core.metrics.throttle_time` and `core.metrics.token_bucket`.
Results are whole ms within 64 bits.

**Source:** `Sensor.record`, `ClientQuotaManager`, `KafkaApis.handleFetchRequest`, `QuotaUtils`, `TokenBucket`,
`ControllerMutationQuotaManager.throttleTimeMs` of Kafka 4.0.
"""

import math
from typing import Final

from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.ring import measure_sum, record_and_sum, record_rate, spanned_ms

_LONG_MIN: Final = -LONG_MAX - 1
_HIGHEST: Final = float(LONG_MAX)
_LOWEST: Final = float(_LONG_MIN)
_LONGEST_QUICK_MS: Final = 2.0**32
_NEAR: Final = 1e-4
"""In ms, more than the two ways to a delay differ before it is rounded: by some 2^-53 of at most 2^32 ms each."""


@compiled
def round_half_up(value):
    """Return the nearest whole number within 64 bits, with halves rounded towards plus infinity.

    Returns:
        0 for NaN.
    """
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
    """Divide as IEEE 754 does, also by 0."""
    if divisor != 0.0:
        return dividend / divisor
    if dividend == 0.0 or dividend != dividend:  # noqa: PLR0124 - as above
        return math.nan
    return math.inf if dividend > 0.0 else -math.inf


@compiled
def rate_throttle_ms(rate, bound, span_ms, longest_ms):
    """Return the delay in ms that brings a rate back to its bound, at most `longest_ms`."""
    return min(round_half_up(quotient(rate - bound, bound) * span_ms), longest_ms)


@compiled
def quick_throttle_ms(total, span_ms, ms_per_unit):
    """Return the delay in ms that `rate_throttle_ms` gives for a sum over a window, by one product.

    `(total / span - bound) / bound * span` is `total / bound - span`, and `ms_per_unit` is 1000 by the bound.

    Returns:
        0 also for a rate within its bound. -1 where rounding may decide, or the bound is no positive number.
    """
    allowed_ms = total * ms_per_unit
    delay_ms = allowed_ms - span_ms + 0.5
    if not allowed_ms < _LONGEST_QUICK_MS:
        return -1
    if delay_ms < 1.0 - _NEAR:
        return 0
    whole = int(delay_ms)
    rest = delay_ms - whole
    return whole if _NEAR < rest < 1.0 - _NEAR else -1


@compiled
def debt_throttle_ms(tokens, bound):
    """Return the delay in ms until the bucket has refilled a debt of `-tokens`."""
    return round_half_up(quotient(-tokens, bound) * 1000)


@compiled
def refill(clocks, sums, c, s, bound, now_ms, samples, window_ms):
    """Refill a token bucket up to `now_ms` and return its tokens."""
    burst = samples * (window_ms / 1000.0) * bound
    tokens = sums[s] + bound * ((now_ms - clocks[c]) / 1000.0)
    if tokens > burst:
        tokens = burst
    sums[s] = tokens
    clocks[c] = now_ms
    return tokens


@compiled
def take(clocks, sums, c, s, value, bound, now_ms, samples, window_ms):
    """Take a value out of a token bucket.

    A negative value puts tokens back, up to the burst.
    """
    burst = samples * (window_ms / 1000.0) * bound
    tokens = refill(clocks, sums, c, s, bound, now_ms, samples, window_ms) - value
    sums[s] = min(tokens, burst)


RECORD: Final = 0
NOCHECK: Final = 1
STRICT: Final = 2
CHECK: Final = 3
FETCH: Final = 4


@compiled
def admit_rate(clocks, sums, c, s, op, value, bound, now_ms, samples, window_ms, longest_ms):
    """Apply one operation to a windowed rate and judge it against the bound.

    Returns:
        Whether the value is admitted, whether the bound holds, throttle time and window in ms, and the rate per second.
    """
    if op == NOCHECK:
        record_rate(clocks, sums, c, s, value, now_ms, samples, window_ms)
        return True, True, 0, 0, 0.0
    if op == RECORD or op == FETCH:
        total = record_and_sum(clocks, sums, c, s, value, now_ms, samples, window_ms)
    else:
        total = measure_sum(clocks, sums, c, s, now_ms, samples, window_ms)
    span_ms = spanned_ms(clocks, c, now_ms, samples, window_ms)
    rate = total / (span_ms / 1000.0)
    if rate <= bound:
        if op == STRICT:
            record_rate(clocks, sums, c, s, value, now_ms, samples, window_ms)
        return True, True, 0, span_ms, rate
    throttle_ms = rate_throttle_ms(rate, bound, span_ms, longest_ms)
    if op == FETCH and throttle_ms > 0:  # the broker answers empty and takes its charge back
        record_rate(clocks, sums, c, s, -value, now_ms, samples, window_ms)
        return False, False, throttle_ms, span_ms, rate
    return op == RECORD or op == FETCH, False, throttle_ms, span_ms, rate


@compiled
def admit_tokens(clocks, sums, c, s, op, value, bound, now_ms, samples, window_ms):
    """Apply one operation to a token bucket and judge it.

    Returns:
        Whether the value is admitted, whether there is no debt, the throttle time in ms, 0, and the tokens judged.
    """
    if op == RECORD or op == NOCHECK:
        take(clocks, sums, c, s, value, bound, now_ms, samples, window_ms)
    if op == NOCHECK:
        return True, True, 0, 0, 0.0
    tokens = refill(clocks, sums, c, s, bound, now_ms, samples, window_ms)
    if tokens < 0.0:
        return op == RECORD, False, debt_throttle_ms(tokens, bound), 0, tokens
    if op == STRICT:
        take(clocks, sums, c, s, value, bound, now_ms, samples, window_ms)
    return True, True, 0, 0, tokens
