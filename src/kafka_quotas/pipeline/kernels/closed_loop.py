"""Plain records in a closed loop, compiled: a fast path with the results of `loop.replay_lanes`.

Most replays are of this kind. Events come row by row, which keeps a lane's state in registers for as long as its events
last. Where neither a lane nor the next looser limit beside it has been throttled, both hold the same figures, and the
looser lane is copied. A sweep therefore costs little for clients that its limits do not touch.
"""

from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.pipeline.kernels.admission import rate_throttle_ms
from kafka_quotas.pipeline.kernels.attempts import count_delay
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.ring import COMPLETE_MS, COUNT, EXPIRED_MS, HEAD, INDEX, settle_slots, spanned_ms
from kafka_quotas.pipeline.kernels.tally import (
    AMOUNT,
    AMOUNTS,
    BEGIN_MS,
    COUNTS,
    END_MS,
    EVENTS,
    LATE_MS,
    PEAK,
    THROTTLED,
    tally_throttle,
)


@compiled
def replay_waiting_records(
    rows, times_ms, values, bounds, samples, window_ms, longest_ms,
    clocks, sums, free_ms, counts, amounts, slots, pool, pool_used, begin,
):  # fmt: skip
    """Replay plain records in a closed loop, from place `begin` on.

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
            if limit + 1 < limits and _came_to(counts, amounts, lane, bound):
                _copy_line(clocks, looser, clock_width)
                _copy_line(sums, looser, sum_width)
                _copy_line(free_ms, looser, 1)
                _copy_line(counts, looser, COUNTS)
                _copy_line(amounts, looser, AMOUNTS)
            else:
                free_ms[lane] = _wait_through(
                    first, end, times_ms, values, bound, free_ms[lane], samples, window_ms, longest_ms,
                    clocks, lane * clock_width, sums, lane * sum_width, counts, lane * COUNTS,
                    amounts, lane * AMOUNTS, slots, pool, pool_used, lane,
                )  # fmt: skip
        first = end
    return first


@compiled
def _wait_through(
    first, end, times_ms, values, bound, free_ms, samples, window_ms, longest_ms,
    clocks, c, sums, s, counts, t, amounts, a, slots, pool, pool_used, lane,
):  # fmt: skip
    """Replay the events from `first` to before `end` on one lane and return when it is free, in ms."""
    index, count, current = clocks[c + INDEX], clocks[c + COUNT], sums[s + 1 + clocks[c + INDEX]]
    turn_ms = min(clocks[c + COMPLETE_MS], clocks[c + EXPIRED_MS])
    throttled, late_ms, begin_ms, end_ms = 0, 0, counts[t + BEGIN_MS], counts[t + END_MS]
    amount, peak = amounts[a + AMOUNT], amounts[a + PEAK]
    for step in range(first, end):
        due_ms, value = times_ms[step], values[step]
        now_ms = max(due_ms, free_ms)
        if now_ms >= turn_ms:  # the current slot is complete, or another one has expired
            settle_slots(clocks, sums, c, s, now_ms, samples, window_ms)
            index, count, current = clocks[c + INDEX], clocks[c + COUNT], sums[s + 1 + clocks[c + INDEX]]
            turn_ms = min(clocks[c + COMPLETE_MS], clocks[c + EXPIRED_MS])
        current += value
        sums[s + 1 + index], clocks[c + HEAD + 2 * index + 1] = current, now_ms
        total = sums[s] + current
        for slot in range(index + 1, count):
            total += sums[s + 1 + slot]
        span_ms = spanned_ms(clocks, c, now_ms, samples, window_ms)
        rate, free_ms = total / (span_ms / 1000.0), now_ms
        if not rate <= bound:
            throttle_ms = rate_throttle_ms(rate, bound, span_ms, longest_ms)
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
def _came_to(counts, amounts, lane, bound):
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
