"""One operation on one limiter: what `core.simulation` and the quota managers do, on flat arrays.

Operations: `RECORD` records and then checks; `NOCHECK` only records (a negative value takes back); `STRICT` checks, and
records what holds; `CHECK` only checks; `FETCH` records, checks, and takes back what is refused.
**Source:** `Sensor.record`, `ClientQuotaManager`, `KafkaApis.handleFetchRequest` (4.0).
"""

from typing import Final

from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.ring import measure_sum, record_and_sum, record_rate, spanned_ms
from kafka_quotas.pipeline.kernels.verdict import debt_throttle_ms, rate_throttle_ms, refill, take

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
