"""Kafka's windowed rate and token bucket on flat arrays, and one operation on either.

The arithmetic and rounding are those of `core.metrics` and of the quota managers, bit by bit; results are whole ms
within 64 bits. `RECORD` records and then checks. `NOCHECK` only records (a negative value takes back). `STRICT` checks,
and records a value that the bound admits. `CHECK` only checks. `FETCH` records, checks, and takes a refused value back.

A ring has `samples + 1` slots: the current one, and those before it. It takes `clocks_width` whole numbers (times in
ms) from offset `c` of `clocks` on, and `sums_width` doubles from offset `s` of `sums` on. The head holds the current
slot, the number of slots, the time at which the current slot is complete, the time at which another one has expired,
the oldest start, and the latest record of the other slots. Start and last record of each slot follow. The first double
is the sum of the slots before the current one.

Invariants: `fresh_clocks` and zeros make a ring without records. Compiled kernels check no bounds: callers make rings
as wide as `samples` needs. Sums are added in the order of the slots. The clock may go back.

**Source:** `SampledStat`, `WindowedSum`, `Rate`, `Sensor.record`, `ClientQuotaManager`, `KafkaApis.handleFetchRequest`,
`QuotaUtils`, `TokenBucket`, `ControllerMutationQuotaManager.throttleTimeMs` of Kafka 4.0.
"""

import math
from typing import Final

from kafka_quotas.core.metrics import throttle_time
from kafka_quotas.pipeline.kernels.compiled import compiled

FAR_MS: Final = 1 << 62
"""A time later than any other."""

INDEX: Final = 0
COUNT: Final = 1
COMPLETE_MS: Final = 2
EXPIRED_MS: Final = 3
OLDEST_MS: Final = 4
LATEST_MS: Final = 5
HEAD: Final = 6
_MOST_WINDOWS: Final = 1 << 31
"""The number of passed windows that 32 bits no longer hold."""

_narrow32 = compiled(throttle_time.narrow_to_int32)
_round_half_up = compiled(throttle_time.round_half_up)


@compiled
def record_rate(clocks, sums, c, s, value, now_ms, samples, window_ms):
    """Add a value to the current slot, or to the next once the current one is complete."""
    if now_ms >= clocks[c + COMPLETE_MS]:
        turn(clocks, sums, c, s, now_ms, samples, window_ms)
    index = clocks[c + INDEX]
    sums[s + 1 + index] += value
    clocks[c + HEAD + 2 * index + 1] = now_ms


@compiled
def measure_sum(clocks, sums, c, s, now_ms, samples, window_ms):
    """Sum the slots that have not expired, and reset expired ones to `now_ms`."""
    index = clocks[c + INDEX]
    if clocks[c + COUNT] == 0:
        turn(clocks, sums, c, s, now_ms, samples, window_ms)
    elif now_ms >= clocks[c + EXPIRED_MS] or now_ms - clocks[c + HEAD + 2 * index + 1] >= samples * window_ms:
        _purge(clocks, sums, c, s, now_ms, samples, window_ms)
    total = sums[s]
    for slot in range(index, clocks[c + COUNT]):
        total += sums[s + 1 + slot]
    return total


@compiled
def record_and_sum(clocks, sums, c, s, value, now_ms, samples, window_ms):
    """Record a value and return the sum, in at most one pass over the slots.

    The result is that of `record_rate` followed by `measure_sum`.
    """
    if now_ms >= clocks[c + COMPLETE_MS] or now_ms >= clocks[c + EXPIRED_MS]:
        advance_slots(clocks, sums, c, s, now_ms, samples, window_ms)
    index = clocks[c + INDEX]
    sums[s + 1 + index] += value
    clocks[c + HEAD + 2 * index + 1] = now_ms
    total = sums[s]
    for slot in range(index, clocks[c + COUNT]):
        total += sums[s + 1 + slot]
    return total


@compiled
def spanned_ms(clocks, c, now_ms, samples, window_ms):
    """Return the window in ms that divides a sum measured at `now_ms`."""
    elapsed_ms = now_ms - clocks[c + OLDEST_MS]
    if (samples - 1) * window_ms <= elapsed_ms < _MOST_WINDOWS * window_ms:
        return max(elapsed_ms, 1)
    # Kafka counts whole windows in a Java int, and assumes at least samples - 1 of them
    whole = _narrow32(elapsed_ms // window_ms if elapsed_ms >= 0 else -(-elapsed_ms // window_ms))
    if whole < samples - 1:
        elapsed_ms += _narrow32(samples - 1 - whole) * window_ms
    return max(elapsed_ms, 1)


@compiled
def turn(clocks, sums, c, s, now_ms, samples, window_ms):
    """Make the next slot of the ring the current one, empty, starting now."""
    count = clocks[c + COUNT]
    index = (clocks[c + INDEX] + 1) % (samples + 1) if count else 0
    if index == count:
        clocks[c + COUNT] = count + 1
    clocks[c + INDEX] = index
    _reset(clocks, sums, c, s, index, now_ms)
    _refresh(clocks, sums, c, s, samples, window_ms)


@compiled
def advance_slots(clocks, sums, c, s, now_ms, samples, window_ms):
    """Move on from a complete slot and reset expired slots, before a value is recorded.

    The record that follows keeps the current slot from expiring, which is why it counts as recorded to already.
    """
    count, index, expire_ms = clocks[c + COUNT], clocks[c + INDEX], samples * window_ms
    expired = now_ms >= clocks[c + EXPIRED_MS]
    if now_ms >= clocks[c + COMPLETE_MS]:
        latest_ms = max(clocks[c + LATEST_MS], clocks[c + HEAD + 2 * index + 1])
        if count:
            expired = expired or now_ms - clocks[c + HEAD + 2 * index + 1] >= expire_ms
            index = index + 1 if index < samples else 0
        if index == count:
            count += 1
            clocks[c + COUNT] = count
        clocks[c + INDEX] = index
        if now_ms - latest_ms >= expire_ms:
            _start_anew(clocks, sums, c, s, now_ms, samples, window_ms)
            return
        _reset(clocks, sums, c, s, index, now_ms)
    else:
        clocks[c + HEAD + 2 * index + 1] = now_ms
    if expired:
        for slot in range(count):
            if slot != index and now_ms - clocks[c + HEAD + 2 * slot + 1] >= expire_ms:
                _reset(clocks, sums, c, s, slot, now_ms)
    _refresh(clocks, sums, c, s, samples, window_ms)


@compiled
def _start_anew(clocks, sums, c, s, now_ms, samples, window_ms):
    """Empty every slot and start it now, where all records are out of the window."""
    count = clocks[c + COUNT]
    for place in range(c + HEAD, c + HEAD + 2 * count):
        clocks[place] = now_ms
    for place in range(s, s + 1 + count):
        sums[place] = 0.0
    clocks[c + COMPLETE_MS] = now_ms + window_ms
    clocks[c + EXPIRED_MS] = now_ms + samples * window_ms if count > 1 else FAR_MS
    clocks[c + OLDEST_MS], clocks[c + LATEST_MS] = now_ms, now_ms if count > 1 else 0


@compiled
def _purge(clocks, sums, c, s, now_ms, samples, window_ms):
    """Reset every slot whose last record is out of the window."""
    for slot in range(clocks[c + COUNT]):
        if now_ms - clocks[c + HEAD + 2 * slot + 1] >= samples * window_ms:
            _reset(clocks, sums, c, s, slot, now_ms)
    _refresh(clocks, sums, c, s, samples, window_ms)


@compiled
def _reset(clocks, sums, c, s, slot, now_ms):
    clocks[c + HEAD + 2 * slot] = now_ms
    clocks[c + HEAD + 2 * slot + 1] = now_ms
    sums[s + 1 + slot] = 0.0


@compiled
def _refresh(clocks, sums, c, s, samples, window_ms):
    """Compute the head from the slots."""
    index = clocks[c + INDEX]
    # without a branch: which slot is the current one changes too often to be foreseen
    oldest_ms, first_ms, prefix, latest_ms = FAR_MS, FAR_MS, 0.0, 0
    for slot in range(clocks[c + COUNT]):
        start_ms, last_ms = clocks[c + HEAD + 2 * slot], clocks[c + HEAD + 2 * slot + 1]
        oldest_ms = min(oldest_ms, start_ms)
        first_ms = min(first_ms, FAR_MS if slot == index else last_ms)
        latest_ms = max(latest_ms, 0 if slot == index else last_ms)
        prefix += sums[s + 1 + slot] if slot < index else 0.0
    clocks[c + COMPLETE_MS] = clocks[c + HEAD + 2 * index] + window_ms
    clocks[c + EXPIRED_MS] = FAR_MS if first_ms == FAR_MS else first_ms + samples * window_ms
    clocks[c + OLDEST_MS], clocks[c + LATEST_MS] = oldest_ms, latest_ms
    sums[s] = prefix


@compiled
def measure_rates(rows, times_ms, clocks, sums, samples, window_ms, rates):
    """Write the rate per second of each row at its own time to `rates`."""
    for position in range(rows.shape[0]):
        row, now_ms = rows[position], times_ms[position]
        c, s = row * (HEAD + 2 * (samples + 1)), row * (2 + samples)
        total = measure_sum(clocks, sums, c, s, now_ms, samples, window_ms)
        rates[position] = total / (spanned_ms(clocks, c, now_ms, samples, window_ms) / 1000.0)


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
    return min(_round_half_up(quotient(rate - bound, bound) * span_ms), longest_ms)


@compiled
def debt_throttle_ms(tokens, bound):
    """Return the delay in ms until the bucket has refilled a debt of `-tokens`."""
    return _round_half_up(quotient(-tokens, bound) * 1000)


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
