"""One operation on one limiter: what `core.quotas.simulation` and the quota managers do, on flat arrays.

Operations: `RECORD` records and then checks; `NOCHECK` only records (a negative value takes back); `STRICT` checks, and
records what holds; `CHECK` only checks; `FETCH` records, checks, and takes back what is refused.
**Source:** `Sensor.record`, `ClientQuotaManager`, `KafkaApis.handleFetchRequest` (4.0).

How long a violation costs, and the tokens of a mutation quota, on flat arrays.

Invariants: the arithmetic and rounding are those of `core.metrics.throttle_time` and `core.metrics.token_bucket`;
results are whole ms within 64 bits.
**Source:** `QuotaUtils`, `TokenBucket`, `ControllerMutationQuotaManager.throttleTimeMs` of Kafka 4.0.
"""

import math
from typing import Final

from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.ring import measure_sum, record_and_sum, record_rate, spanned_ms

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


RECORD: Final = 0
NOCHECK: Final = 1
STRICT: Final = 2
CHECK: Final = 3
FETCH: Final = 4


@compiled
def judge_rate(clocks, sums, c, s, op, value, bound, now_ms, samples, window_ms, longest_ms):
    """Whether the value is admitted and the bound holds, the throttle time and window in ms, and the rate."""
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
    if op == FETCH and throttle_ms > 0:
        record_rate(clocks, sums, c, s, -value, now_ms, samples, window_ms)
        return False, False, throttle_ms, span_ms, rate
    return op == RECORD or op == FETCH, False, throttle_ms, span_ms, rate


@compiled
def judge_tokens(clocks, sums, c, s, op, value, bound, now_ms, samples, window_ms):
    """Whether the value is admitted and there is no debt, the throttle time in ms, 0, and the tokens judged."""
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
