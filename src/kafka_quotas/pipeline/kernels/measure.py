"""The rates of many rings at once, each at a time of its own."""

from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.ring import HEAD, measure_sum, spanned_ms


@compiled
def measure_rates(rows, times_ms, clocks, sums, samples, window_ms, rates):
    """Nothing; `rates` has the rate per second of each row."""
    for position in range(rows.shape[0]):
        row, now_ms = rows[position], times_ms[position]
        c, s = row * (HEAD + 2 * (samples + 1)), row * (2 + samples)
        total = measure_sum(clocks, sums, c, s, now_ms, samples, window_ms)
        rates[position] = total / (spanned_ms(clocks, c, now_ms, samples, window_ms) / 1000.0)
