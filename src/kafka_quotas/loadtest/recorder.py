"""What one client of a run saw: exact counts, latencies in histograms, throttle times, the trace of acknowledgements.

Three latencies are kept apart, because a throttled run is meant to fall behind: *service* (sent to acknowledged),
*schedule delay* (intended to sent) and *response* (intended to acknowledged). Only the last tells what an application
would feel; none is corrected afterwards. Latencies may be sampled, and with them the first failures; nothing else is.

Written by the client's thread alone; other threads read plain counters.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.loadtest.ack_trace import AckTrace

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

LOWEST_US = 1
HIGHEST_US = 3_600_000_000
"""One hour in microseconds: no throttle of a sane quota is longer."""
DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """A histogram's figures, in microseconds; all 0 where nothing was recorded."""

    count: int
    min_us: int
    mean_us: float
    p50_us: int
    p90_us: int
    p99_us: int
    p999_us: int
    max_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSummary:
    """Throttle times above 0 that the server announced, in milliseconds."""

    count: int
    sum_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float


class Recorder:
    """The record of one client. Times are nanoseconds of one monotonic clock; `start_ns` is the start of the load."""

    def __init__(self, *, start_ns: int, measure_from_ns: int) -> None:
        self._start_ns = start_ns
        self._measure_from_ns = measure_from_ns
        self._service = _histogram()
        self._schedule_delay = _histogram()
        self._response = _histogram()
        self._throttle = _histogram()
        self.trace = AckTrace()
        self.worst_throttle_ms: dict[int, int] = {}  # by whole second since the start
        self.failures: Counter[str] = Counter()
        self.sent = 0
        self.acked = 0
        self.acked_bytes = 0
        self.throttle_count = 0
        self.throttle_sum_us = 0

    def acknowledged(self, now_ns: int, *, records: int, size: int) -> None:
        """Nothing; `records` more records of `size` bytes together were acknowledged (or received) by `now_ns`."""
        self.acked += records
        self.acked_bytes += size
        self.trace.add((now_ns - self._start_ns) // 1_000_000, size)

    def latency(self, *, intended_ns: int, sent_ns: int, acked_ns: int) -> None:
        """Nothing; one record's times were recorded, unless it belongs to the warm-up."""
        if intended_ns < self._measure_from_ns:
            return
        _record(self._service, acked_ns - sent_ns)
        _record(self._schedule_delay, sent_ns - intended_ns)
        _record(self._response, acked_ns - intended_ns)

    def arrival(self, *, intended_ns: int, arrived_ns: int) -> None:
        """Nothing; a record that was due to be read at `intended_ns` was read, unless it belongs to the warm-up."""
        if intended_ns >= self._measure_from_ns:
            _record(self._response, arrived_ns - intended_ns)

    def throttled(self, now_ns: int, throttle_ms: int) -> None:
        """Nothing; the server announced this throttle time. 0 ends a throttle and is not counted."""
        if throttle_ms <= 0:
            return
        second = (now_ns - self._start_ns) // 1_000_000_000
        self.worst_throttle_ms[second] = max(throttle_ms, self.worst_throttle_ms.get(second, 0))
        self.throttle_count += 1
        self.throttle_sum_us += throttle_ms * 1000
        _record(self._throttle, throttle_ms * 1_000_000)

    def failed(self, error: str) -> None:
        """Nothing; one record was given up with this error."""
        self.failures[error] += 1

    @property
    def service(self) -> LatencySummary:
        """Sent to acknowledged."""
        return _summary(self._service)

    @property
    def schedule_delay(self) -> LatencySummary:
        """Intended to sent."""
        return _summary(self._schedule_delay)

    @property
    def response(self) -> LatencySummary:
        """Intended to acknowledged."""
        return _summary(self._response)

    @property
    def throttle(self) -> ThrottleSummary:
        """The throttle times of the whole run, warm-up included."""
        summary = _summary(self._throttle)
        return ThrottleSummary(
            count=self.throttle_count,
            sum_ms=self.throttle_sum_us / 1000,
            p50_ms=summary.p50_us / 1000,
            p99_ms=summary.p99_us / 1000,
            max_ms=summary.max_us / 1000,
        )


def _histogram() -> "HdrHistogram":
    from hdrh.histogram import HdrHistogram  # noqa: PLC0415 - only a run needs it

    return HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)


def _record(histogram: "HdrHistogram", elapsed_ns: int) -> None:
    histogram.record_value(min(max(elapsed_ns // 1000, LOWEST_US), HIGHEST_US))


def _summary(histogram: "HdrHistogram") -> LatencySummary:
    if not histogram.get_total_count():
        return LatencySummary(count=0, min_us=0, mean_us=0.0, p50_us=0, p90_us=0, p99_us=0, p999_us=0, max_us=0)
    p50, p90, p99, p999 = (int(histogram.get_value_at_percentile(share)) for share in (50, 90, 99, 99.9))
    return LatencySummary(
        count=int(histogram.get_total_count()),
        min_us=int(histogram.get_min_value()),
        mean_us=float(histogram.get_mean_value()),
        p50_us=p50,
        p90_us=p90,
        p99_us=p99,
        p999_us=p999,
        max_us=int(histogram.get_max_value()),
    )
