"""One event on one limiter with all its attempts, for the compiled loop and the one on lists.

Invariants: a closed loop repeats a refused event, at most `MAX_ATTEMPTS` times. A fetch is taken in pieces that fit the
window, as a broker cuts its responses. Counts and amounts are added up in place.

**Source:** `core.quotas.simulation.replay`; `KafkaApis.handleFetchRequest`, `maxValueInQuotaWindow` (4.0) for fetches.
"""

from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.core.quotas.simulation import MAX_ATTEMPTS, RETRY_BACKOFF_MS
from kafka_quotas.pipeline.kernels.admission import CHECK, FETCH, judge_rate, judge_tokens
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.histogram import step_of
from kafka_quotas.pipeline.kernels.tally import AMOUNT, PEAK, REFUSALS, tally_event, tally_throttle


@compiled
def settle(
    clocks, sums, c, s, op, due_ms, start_ms, amount, bound, tokens, closed, samples, window_ms, longest_ms,
    counts, t, amounts, a, slots, pool, pool_used, lane,
):  # fmt: skip
    """Run one event on one limiter until it is admitted or gives up, and tally it.

    Returns:
        When the lane is free and when the last attempt happened (ms), then the throttle time and window (ms), the
        verdict and the level of that attempt.
    """
    most = most_at_once(op, bound, samples, window_ms)
    now_ms, rest, throttled, attempt, more = start_ms, amount, False, 0, True
    held, throttle_ms, span_ms, level, happened_ms = True, 0, 0, 0.0, start_ms
    while more:
        attempt += 1
        value = min(rest, most) if most > 0.0 else rest
        admitted, held, throttle_ms, span_ms, level = _judge(
            clocks, sums, c, s, op, value, bound, now_ms, tokens, samples, window_ms, longest_ms
        )
        amounts[a + PEAK] = max(amounts[a + PEAK], level)
        if throttle_ms > 0:
            throttled = True
            tally_throttle(counts, t, now_ms, throttle_ms)
            count_delay(slots, pool, pool_used, lane, throttle_ms)
        if admitted:
            rest -= value
            amounts[a + AMOUNT] += 0.0 if op == CHECK else value
        else:
            counts[t + REFUSALS] += 1
        happened_ms = now_ms
        now_ms += wait_after(op, admitted, closed, throttle_ms)
        # the rest of a fetch follows in another response; a client of a closed loop repeats a refused event
        again = op == FETCH and rest > 0.0 if admitted else closed and op != CHECK
        more = again and attempt < MAX_ATTEMPTS
    tally_event(counts, t, happened_ms, now_ms, happened_ms - due_ms, throttled)
    return now_ms, happened_ms, throttle_ms, span_ms, held, level


@compiled
def most_at_once(op, bound, samples, window_ms):
    """Return the largest value that one attempt takes, 0 for no such limit."""
    return bound * (samples - 1) * (window_ms / 1000.0) if op == FETCH else 0.0


@compiled
def wait_after(op, admitted, closed, throttle_ms):
    """Return how long the client waits after an attempt, in ms."""
    wait_ms = min(max(throttle_ms, 0), INT_MAX)
    return max(wait_ms, RETRY_BACKOFF_MS) if closed and not admitted and op != FETCH else wait_ms


@compiled
def _judge(
    clocks, sums, c, s, op, value, bound, now_ms, tokens, samples, window_ms, longest_ms
):  # fmt: skip
    if tokens:
        return judge_tokens(clocks, sums, c, s, op, value, bound, now_ms, samples, window_ms)
    return judge_rate(clocks, sums, c, s, op, value, bound, now_ms, samples, window_ms, longest_ms)


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
