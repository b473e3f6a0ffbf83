"""The replay event by event, compiled: one pass for many rows (quota buckets) and many limits of each.

Invariants: the events come row by row, and those of one row in the order they happen in. Limits are a table of rows by
limits: one limit of one row is a lane, which has a ring or bucket of its own. A pass stops before an event for which
the pool of histograms might not suffice, and returns its place, where the next pass resumes. A closed loop repeats a
refused event, at most `MAX_ATTEMPTS` times. A fetch is taken in pieces that fit the window, as a broker cuts its
responses.

A pass adds up columns of counts and amounts for each lane, and a histogram of its delays: those below 32 ms are exact,
longer ones have 16 steps to each doubling. A percentile is the middle of its step, hence at most 1/32 off.

**Source:** `core.quotas.simulation.replay`, `KafkaApis.handleFetchRequest`, `maxValueInQuotaWindow` (4.0) for fetches.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.metrics.throttle_time import MAX_ATTEMPTS, RETRY_BACKOFF_MS
from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.pipeline.kernels.admission import (
    CHECK,
    COMPLETE_MS,
    COUNT,
    EXPIRED_MS,
    FAR_MS,
    FETCH,
    HEAD,
    INDEX,
    admit_rate,
    admit_tokens,
    advance_slots,
    rate_throttle_ms,
    spanned_ms,
)
from kafka_quotas.pipeline.kernels.compiled import compiled

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


_STEP: Final = np.arange(STEPS)
_OCTAVE: Final = np.maximum(_STEP // 16 - 1, 0)
_MIDDLES_MS: Final = (_STEP - 16 * _OCTAVE) * 2.0**_OCTAVE + (2.0**_OCTAVE - 1) / 2


@compiled
def replay_records(
    rows, times_ms, values, closed, bounds, samples, window_ms, longest_ms,
    clocks, sums, free_ms, counts, amounts, slots, pool, pool_used, begin,
):  # fmt: skip
    """Replay plain records in an open or closed loop, from place `begin` on, faster than `replay_lanes`.

    Most replays are of this kind, and the results are equal. Events come row by row, which keeps a lane's state in
    registers for as long as its events last. Where neither a lane nor the next looser limit beside it has been
    throttled, both hold the same figures, and the looser lane is copied. A sweep therefore costs little for clients
    that its limits do not touch.

    Returns:
        The place of the first event not replayed: the end, or a row for which the pool of histograms might not suffice.
    """
    limits, first = bounds.shape[1], begin
    clock_width, sum_width = HEAD + 2 * (samples + 1), 2 + samples
    while first < rows.shape[0] and pool_used[0] + limits <= pool.shape[0]:
        row = rows[first]
        end = first + 1
        while end < rows.shape[0] and rows[end] == row:
            end += 1
        for limit in range(limits - 1, -1, -1):  # the loosest first, for tighter ones to copy
            lane, looser = row * limits + limit, row * limits + limit + 1
            bound = bounds[row, limit]
            if limit + 1 < limits and _repeats_looser(counts, amounts, lane, bound):
                _copy_line(clocks, looser, clock_width)
                _copy_line(sums, looser, sum_width)
                _copy_line(free_ms, looser, 1)
                _copy_line(counts, looser, COUNTS)
                _copy_line(amounts, looser, AMOUNTS)
            else:
                free_ms[lane] = _wait_through(
                    first, end, times_ms, values, closed, bound, free_ms[lane], samples, window_ms, longest_ms,
                    clocks, lane * clock_width, sums, lane * sum_width, counts, lane * COUNTS,
                    amounts, lane * AMOUNTS, slots, pool, pool_used, lane,
                )  # fmt: skip
        first = end
    return first


@compiled
def _wait_through(
    first, end, times_ms, values, closed, bound, free_ms, samples, window_ms, longest_ms,
    clocks, c, sums, s, counts, t, amounts, a, slots, pool, pool_used, lane,
):  # fmt: skip
    """Replay the events from `first` to before `end` on one lane and return when it is free, in ms."""
    index, count, current = clocks[c + INDEX], clocks[c + COUNT], sums[s + 1 + clocks[c + INDEX]]
    turn_ms = min(clocks[c + COMPLETE_MS], clocks[c + EXPIRED_MS])
    throttled, late_ms, begin_ms, end_ms = 0, 0, counts[t + BEGIN_MS], counts[t + END_MS]
    amount, peak = amounts[a + AMOUNT], amounts[a + PEAK]
    for step in range(first, end):
        due_ms, value = times_ms[step], values[step]
        now_ms = max(due_ms, free_ms) if closed else due_ms
        if now_ms >= turn_ms:  # the current slot is complete, or another one has expired
            advance_slots(clocks, sums, c, s, now_ms, samples, window_ms)
            index, count, current = clocks[c + INDEX], clocks[c + COUNT], sums[s + 1 + clocks[c + INDEX]]
            turn_ms = min(clocks[c + COMPLETE_MS], clocks[c + EXPIRED_MS])
        current += value
        sums[s + 1 + index], clocks[c + HEAD + 2 * index + 1] = current, now_ms
        total = sums[s] + current
        for slot in range(index + 1, count):
            total += sums[s + 1 + slot]
        span_ms = spanned_ms(clocks, c, now_ms, samples, window_ms)
        rate, free_ms = total / (span_ms / 1000.0), now_ms
        throttle_ms = 0 if rate <= bound else rate_throttle_ms(rate, bound, span_ms, longest_ms)
        if throttle_ms > 0:
            throttled += 1
            tally_throttle(counts, t, now_ms, throttle_ms)
            count_delay(slots, pool, pool_used, lane, throttle_ms)
            free_ms += min(throttle_ms, INT_MAX)
        late_ms += now_ms - due_ms
        begin_ms, end_ms = min(begin_ms, now_ms), max(end_ms, free_ms)
        amount, peak = amount + value, max(peak, rate)
    counts[t + EVENTS] += end - first
    counts[t + THROTTLED] += throttled
    counts[t + LATE_MS] += late_ms
    counts[t + BEGIN_MS], counts[t + END_MS] = begin_ms, end_ms
    amounts[a + AMOUNT], amounts[a + PEAK] = amount, peak
    return free_ms


@compiled
def _repeats_looser(counts, amounts, lane, bound):
    """Check that a lane would repeat what the looser one did.

    Neither lane has been throttled, and this bound admits the looser lane's peak.
    """
    untouched = counts[lane * COUNTS + THROTTLED] + counts[(lane + 1) * COUNTS + THROTTLED] == 0
    return untouched and amounts[(lane + 1) * AMOUNTS + PEAK] <= bound


@compiled
def _copy_line(figures, lane, width):
    """Copy a lane's figures to the lane before it."""
    for place in range(lane * width, (lane + 1) * width):
        figures[place - width] = figures[place]


@compiled
def replay_lanes(
    rows, times_ms, values, ops, op, tokens, closed, bounds, samples, window_ms, longest_ms,
    clocks, sums, free_ms, counts, amounts, slots, pool, pool_used, traced, levels, begin,
):  # fmt: skip
    """Replay events of any operation in an open or closed loop, with one ring or bucket per lane.

    `ops` has one operation per event and is empty if all are `op`. `traced` has a line per event and limit, or none:
    throttle time, time of happening, window, whether the bound held. `levels` has the level per event and limit, or is
    empty.

    Returns:
        The place of the first event not replayed.
    """
    limits = bounds.shape[1]
    clock_width, sum_width = (1, 1) if tokens else (HEAD + 2 * (samples + 1), 2 + samples)
    for step in range(begin, rows.shape[0]):
        if pool_used[0] + limits > pool.shape[0]:
            return step
        row, due_ms = rows[step], times_ms[step]
        own = ops[step] if ops.shape[0] else op
        for limit in range(limits):
            lane = row * limits + limit
            start_ms = max(due_ms, free_ms[lane]) if closed else due_ms
            free_ms[lane], happened_ms, throttle_ms, span_ms, held, level = run_attempts(
                clocks, sums, lane * clock_width, lane * sum_width, own, due_ms, start_ms, values[step],
                bounds[row, limit], tokens, closed, samples, window_ms, longest_ms,
                counts, lane * COUNTS, amounts, lane * AMOUNTS, slots, pool, pool_used, lane,
            )  # fmt: skip
            if levels.shape[0]:
                line = step * limits + limit
                traced[line, 0], traced[line, 1] = throttle_ms, happened_ms
                traced[line, 2], traced[line, 3] = span_ms, held
                levels[line] = level
    return rows.shape[0]


@compiled
def run_attempts(
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
        admitted, held, throttle_ms, span_ms, level = _admit(
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
def _admit(
    clocks, sums, c, s, op, value, bound, now_ms, tokens, samples, window_ms, longest_ms
):  # fmt: skip
    if tokens:
        return admit_tokens(clocks, sums, c, s, op, value, bound, now_ms, samples, window_ms)
    return admit_rate(clocks, sums, c, s, op, value, bound, now_ms, samples, window_ms, longest_ms)
