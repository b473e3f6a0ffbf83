"""The average throttle time of a bucket's clients over the last half to whole minute.

As in Kafka, requests that were not throttled do not count. Kafka reports NaN while there is nothing to average.

**Source:** `ClientQuotaManager.throttle`, `Avg` of Kafka 4.3; `metrics.num.samples` and `metrics.sample.window.ms`,
whose defaults apply to all sensors but those of the quotas themselves.
"""

from typing import Final

from kafka_quotas.core.metrics.sampled_stat import WindowedCount, WindowedSum

METRIC_SAMPLES: Final = 2
METRIC_WINDOW_MS: Final = 30_000


class ThrottleAverage:
    """The throttle times of one bucket."""

    __slots__ = ("_sum", "_times")

    def __init__(self) -> None:
        self._sum = WindowedSum(METRIC_SAMPLES, METRIC_WINDOW_MS)
        self._times = WindowedCount(METRIC_SAMPLES, METRIC_WINDOW_MS)

    def record(self, throttle_ms: int, now_ms: int) -> None:
        """Add a throttle time."""
        self._sum.record(throttle_ms, now_ms)
        self._times.record(1.0, now_ms)

    def peek(self, now_ms: int) -> float:
        """Return the average in ms without changing the state, or 0 if there is nothing to average."""
        times = _kept(self._times, now_ms)
        return _kept(self._sum, now_ms) / times if times else 0.0


def _kept(ring: WindowedSum, now_ms: int) -> float:
    """Return the sum over the slots that have not expired."""
    return sum(slot.value for slot in ring.slots if now_ms - slot.last_ms < METRIC_SAMPLES * METRIC_WINDOW_MS)
