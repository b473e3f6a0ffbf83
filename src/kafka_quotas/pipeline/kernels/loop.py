"""The replay event by event, compiled: one pass for many rows (quota buckets) and many limits of each.

Invariants: the events come row by row, and those of one row in the order they happen in. Limits are a table of rows by
limits; one limit of one row is a lane. In an open loop of plain records all limits of a row share one ring, since
recording does not depend on them. A pass stops before an event for which the pool of histograms might not suffice, and
returns its place, where the next pass resumes.
"""

from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.pipeline.kernels.admission import rate_throttle_ms
from kafka_quotas.pipeline.kernels.attempts import count_delay, settle
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.ring import HEAD, record_and_sum, spanned_ms
from kafka_quotas.pipeline.kernels.tally import AMOUNT, AMOUNTS, COUNTS, PEAK, tally_event, tally_throttle


@compiled
def replay_records(
    rows, times_ms, values, bounds, samples, window_ms, longest_ms,
    clocks, sums, counts, amounts, slots, pool, pool_used, begin,
):  # fmt: skip
    """Replay plain records in an open loop, from place `begin` on.

    Returns:
        The place of the first event not replayed.
    """
    limits = bounds.shape[1]
    for step in range(begin, rows.shape[0]):
        if pool_used[0] + limits > pool.shape[0]:
            return step
        row, now_ms, value = rows[step], times_ms[step], values[step]
        c, s = row * (HEAD + 2 * (samples + 1)), row * (2 + samples)
        total = record_and_sum(clocks, sums, c, s, value, now_ms, samples, window_ms)
        span_ms = spanned_ms(clocks, c, now_ms, samples, window_ms)
        rate = total / (span_ms / 1000.0)
        for limit in range(limits):
            lane = row * limits + limit
            bound, throttle_ms = bounds[row, limit], 0
            if not rate <= bound:
                throttle_ms = rate_throttle_ms(rate, bound, span_ms, longest_ms)
            if throttle_ms > 0:
                tally_throttle(counts, lane * COUNTS, now_ms, throttle_ms)
                count_delay(slots, pool, pool_used, lane, throttle_ms)
            tally_event(counts, lane * COUNTS, now_ms, now_ms + min(max(throttle_ms, 0), INT_MAX), 0, throttle_ms > 0)
            amounts[lane * AMOUNTS + AMOUNT] += value
            amounts[lane * AMOUNTS + PEAK] = max(amounts[lane * AMOUNTS + PEAK], rate)
    return rows.shape[0]


@compiled
def replay_lanes(
    rows, times_ms, values, ops, op, tokens, closed, bounds, samples, window_ms, longest_ms,
    clocks, sums, free_ms, counts, amounts, slots, pool, pool_used, traced, levels, begin,
):  # fmt: skip
    """Replay events of any operation in an open or closed loop, with one ring or bucket per lane.

    `ops` has one operation per event and is empty where all are `op`. `traced` has a line per event and limit, or none:
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
            free_ms[lane], happened_ms, throttle_ms, span_ms, held, level = settle(
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
