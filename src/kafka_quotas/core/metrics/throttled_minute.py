"""The throttle times of one bucket's clients: their average as Kafka reports it, and those of the last minute.

The average is over the last half to whole minute. As in Kafka, requests that were not throttled do not count. Kafka
reports NaN while there is nothing to average.

A sliding window of quotas has an unthrottled phase in each cycle, so that one instant says nothing about a client. The
minute is kept in slices, of which the oldest is left out as a whole: a reading covers the last 55 to 60 seconds.
Invariants: at most `SLICES` slices are kept; only those with a throttle time take memory.

**Source:** `ClientQuotaManager.throttle`, `Avg` of Kafka 4.3; `metrics.num.samples` and `metrics.sample.window.ms`,
whose defaults apply to all sensors but those of the quotas.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.metrics.rate import WindowedCount, WindowedSum
from kafka_quotas.core.model.quota_window import MINUTE_MS, NOT_THROTTLED, RecentThrottling

METRIC_SAMPLES: Final = 2
METRIC_WINDOW_MS: Final = 30_000
SLICES: Final = 12
_SLICE_MS: Final = MINUTE_MS // SLICES


@dataclass(slots=True, kw_only=True)
class _Slice:
    number: int
    times: int = 0
    total_ms: int = 0
    held_ms: int = 0


class ThrottledMinute:
    """The throttle times of one bucket, kept for a minute."""

    __slots__ = ("_slices", "_until_ms")

    def __init__(self) -> None:
        self._slices: deque[_Slice] = deque(maxlen=SLICES)
        self._until_ms = 0

    def record(self, throttle_ms: int, now_ms: int) -> None:
        """Add a throttle time that begins now."""
        number = now_ms // _SLICE_MS
        if not self._slices or self._slices[-1].number < number:
            self._slices.append(_Slice(number=number))
        current = self._slices[-1]
        current.times += 1
        current.total_ms += throttle_ms
        end_ms = now_ms + throttle_ms
        current.held_ms += max(0, end_ms - max(now_ms, self._until_ms))
        self._until_ms = max(self._until_ms, end_ms)

    def peek(self, now_ms: int) -> RecentThrottling:
        """Return the throttle times of the last minute without changing the state."""
        oldest = now_ms // _SLICE_MS - SLICES
        recent = [each for each in self._slices if each.number > oldest]
        if not recent:
            return NOT_THROTTLED
        yet_to_come_ms = max(0, self._until_ms - now_ms)
        return RecentThrottling(
            times=sum(each.times for each in recent),
            total_ms=sum(each.total_ms for each in recent),
            held_ms=max(0, sum(each.held_ms for each in recent) - yet_to_come_ms),
        )


class ThrottleAverage:
    """The average throttle time of one bucket."""

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
    return sum(slot.value for slot in ring.slots if now_ms - slot.last_ms < METRIC_SAMPLES * METRIC_WINDOW_MS)
