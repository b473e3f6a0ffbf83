"""Events added up by row and second, with Kafka's rate after each of them, in one compiled pass.

Invariants: events come row by row and by time, and a call holds whole seconds. Rings carry over from call to call.
"""

from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.ring import HEAD, record_and_sum, spanned_ms


@compiled
def add_up_seconds(
    rows, times_ms, amounts, events, figures, clocks, sums, samples, window_ms,
    out_rows, out_seconds, out_figures, out_amounts, out_rates,
):  # fmt: skip
    """How many cells there are; row, second, figures (and a count after them), amount and largest rate of each."""
    cells = -1
    kinds = figures.shape[0]
    for place in range(rows.shape[0]):
        row, now_ms, amount = rows[place], times_ms[place], amounts[place]
        second = now_ms // 1000
        c, s = row * (HEAD + 2 * (samples + 1)), row * (2 + samples)
        total = record_and_sum(clocks, sums, c, s, amount, now_ms, samples, window_ms)
        rate = total / (spanned_ms(clocks, c, now_ms, samples, window_ms) / 1000.0)
        if cells < 0 or out_rows[cells] != row or out_seconds[cells] != second:
            cells += 1
            out_rows[cells], out_seconds[cells] = row, second
            out_amounts[cells], out_rates[cells] = 0.0, rate
            for kind in range(kinds + 1):
                out_figures[kind, cells] = 0
        for kind in range(kinds):
            out_figures[kind, cells] += figures[kind, events[place]]
        out_figures[kinds, cells] += 1
        out_amounts[cells] += amount
        out_rates[cells] = max(out_rates[cells], rate)
    return cells + 1
