"""A client's past replayed through the shipped rate, for figures of Kafka rather than a formula's."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.metrics.rate import Rate
from kafka_quotas.core.metrics.throttle_time import throttle_time_ms
from kafka_quotas.core.model.quota_window import QuotaWindow

REQUESTS_PER_SAMPLE: Final = 10
"""Equal requests per sample of steady traffic."""

MOST_SAMPLES: Final = 100_000
"""Most samples of a window: a longer history would take longer than a person waits."""


class Moment(StrEnum):
    """The place of the last request within a sample."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The state after the last request."""

    rate: float
    """Rate per second."""
    window_ms: int
    """Window that the rate was measured over, in ms."""
    throttle_ms: int
    """Unbounded delay in ms."""


def after_steady_traffic(*, bound: float, window: QuotaWindow, steady: float, amount: float, moment: Moment) -> Found:
    """Measure Kafka's `Rate` after a full window of `steady` traffic per second and a request of `amount`.

    `moment` is START for a request that begins a new sample, END for the last, and only, one of its sample.

    Raises:
        UsageError: The window has more than `MOST_SAMPLES` samples.
    """
    if window.samples > MOST_SAMPLES:
        raise UsageError(
            f"the calculator takes at most {MOST_SAMPLES} samples, not {window.samples}",
            hint="fewer and longer samples measure the same time",
        )
    rate = Rate(window.samples, window.window_ms)
    between_ms = window.window_ms // REQUESTS_PER_SAMPLE
    start_ms = (window.samples + 1) * window.window_ms
    if steady:
        for now_ms in range(0, start_ms, between_ms):
            rate.record(steady * between_ms / 1000, now_ms)
    now_ms = start_ms if moment is Moment.START else start_ms + window.window_ms - between_ms
    rate.record(amount, now_ms)
    measured = rate.measure(now_ms)
    window_ms = rate.window_ms(now_ms)
    return Found(rate=measured, window_ms=window_ms, throttle_ms=max(0, throttle_time_ms(measured, bound, window_ms)))
