"""How high a client's rate ever was, by the two measures of Kafka's own system test of quotas.

The broker's is the one-minute moving average that its meters show, on a broker that was quiet before; the client's the
average over the last 30 seconds, a sample of its metrics. Both let the burst of the first window pass.

**Source:** kafkatest, `tests/client/quota_test.py`; `metrics.sample.window.ms` of Kafka's clients.
"""

from collections.abc import Sequence
from typing import Final

from kafka_quotas.core.ewma_meter import TICK_MS, EwmaMeter
from kafka_quotas.loadtest.result import SecondSample

CLIENT_SAMPLE_S: Final = 30.0


def peak_minute_rate(seconds: Sequence[SecondSample], *, sample_s: float) -> float:
    """The highest one-minute moving average of a client's rate; `seconds` are samples of `sample_s` each, in order."""
    meter = EwmaMeter(-TICK_MS)
    meter.rate(0)  # the meter was there before the load: its first interval was silent
    peak = 0.0
    for sample in seconds:
        end_ms = round((sample.second + sample_s) * 1000)
        meter.record(sample.rate * sample_s, end_ms - 1)
        peak = max(peak, meter.rate(end_ms))
    return peak


def peak_client_rate(seconds: Sequence[SecondSample], *, sample_s: float) -> float:
    """The highest average over 30 seconds on end of a client's rate; what a shorter run sent counts over 30 seconds."""
    length = max(round(CLIENT_SAMPLE_S / sample_s), 1)
    rates = [sample.rate for sample in seconds]
    ends = range(1, len(rates) + 1)
    return max((sum(rates[max(end - length, 0) : end]) / length for end in ends), default=0.0)
