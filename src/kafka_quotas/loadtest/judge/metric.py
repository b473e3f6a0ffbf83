"""The metrics of a client, by which thresholds are set and two runs are compared: one table.

Two of them are peak rates by the measures of Kafka's own system test of quotas. The broker's is the one-minute moving
average of its meters, on a broker that was quiet before. The client's is the average over the last 30 seconds, a sample
of its metrics. Both let the burst of the first window pass.

**Source:** kafkatest, `tests/client/quota_test.py`; `metrics.sample.window.ms` of Kafka's clients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.metrics.ewma import TICK_MS, EwmaMeter
from kafka_quotas.core.model.units import parse_bytes, parse_duration_ms
from kafka_quotas.core.model.value_format import format_duration_ms, format_rounded
from kafka_quotas.loadtest.plan.workload import RateUnit
from kafka_quotas.loadtest.record.delivery import Delivery
from kafka_quotas.loadtest.record.histogram import LatencySummary
from kafka_quotas.loadtest.result.result import ClientResult, SecondSample

CLIENT_SAMPLE_S: Final = 30.0


def peak_minute_rate(seconds: Sequence[SecondSample], *, sample_s: float) -> float:
    """Return the highest one-minute moving average of a client's rate, from samples in order."""
    meter = EwmaMeter(-TICK_MS)
    meter.rate(0)  # the meter was there before the load: its first interval was silent
    peak = 0.0
    for sample in seconds:
        end_ms = round((sample.second + sample_s) * 1000)
        meter.record(sample.rate * sample_s, end_ms - 1)
        peak = max(peak, meter.rate(end_ms))
    return peak


def peak_client_rate(seconds: Sequence[SecondSample], *, sample_s: float) -> float:
    """Return the highest average of a client's rate over 30 seconds, also for a shorter run."""
    length = max(round(CLIENT_SAMPLE_S / sample_s), 1)
    rates = [sample.rate for sample in seconds]
    ends = range(1, len(rates) + 1)
    return max((sum(rates[max(end - length, 0) : end]) / length for end in ends), default=0.0)


class Dimension(Enum):
    """The kind of a metric's values: a noun for one, and an example."""

    RATIO = ("a share", "write a plain number or a percentage: 0.9 or 90%")
    COUNT = ("a number", "write a plain number: 0")
    DURATION = ("a length of time", "write it with its unit: 250us, 50ms, 1.5s")
    RATE = ("a rate", "write a plain number, or bytes: 200, 5MB/s")

    def __init__(self, noun: str, example: str) -> None:
        self.noun = noun
        self.example = example

    def parse(self, text: str) -> float:
        """Parse a value, where durations become milliseconds.

        Raises:
            UsageError: The text is no such value.
        """
        try:
            if self is Dimension.DURATION:
                return float(parse_duration_ms(text))
            if self is Dimension.RATE:
                return float(parse_bytes(text))
            percent = self is Dimension.RATIO and text.endswith("%")
            return float(Fraction(text.removesuffix("%")) / 100 if percent else Fraction(text))
        except (ValueError, ZeroDivisionError, KafkaQuotasError) as error:
            raise UsageError(f"not {self.noun}: {text!r}", hint=self.example) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure of a client, by name."""

    name: str
    dimension: Dimension
    of: Callable[[ClientResult], float | None]
    """Returns the value for a client, None for a client that has none."""
    is_bound: Callable[[ClientResult], bool] = lambda _entity: False
    """Returns whether the value of a client is only a lower bound."""

    def text(self, value: float, unit: RateUnit) -> str:
        """Return a value for people, with `unit` as that of the client's rates."""
        if self.dimension is Dimension.RATE:
            return unit.text(value)
        if self.dimension is Dimension.DURATION:
            return format_duration_ms(float(f"{value:.4g}"))
        return format_rounded(value, 6)


_LATENCIES: Final[dict[str, Callable[[ClientResult], LatencySummary]]] = {
    "service": lambda entity: entity.service,
    "schedule_delay": lambda entity: entity.schedule_delay,
    "response": lambda entity: entity.response,
}
_STATISTICS: Final = {
    "min": ("min_us", 0.0),
    "mean": ("mean_us", 0.99),
    "p50": ("p50_us", 0.5),
    "p90": ("p90_us", 0.9),
    "p99": ("p99_us", 0.99),
    "p999": ("p999_us", 0.999),
    "max": ("max_us", 0.999),
}
"""The figure of each statistic, and the share of latencies that have to be known for it.

Every run ends with some requests on their way, so mean and maximum don't need them all.
"""


def _latency(
    summary_of: Callable[[ClientResult], LatencySummary], attribute: str
) -> Callable[[ClientResult], float | None]:
    def value(entity: ClientResult) -> float | None:
        summary = summary_of(entity)
        return float(getattr(summary, attribute)) / 1000 if summary.count else None

    return value


def _found(count_of: Callable[[Delivery], int]) -> Callable[[ClientResult], float | None]:
    """Return the accessor of a figure from reading the topic back, None where that could not be done."""

    def value(entity: ClientResult) -> float | None:
        delivery = entity.delivery
        return None if delivery is None or delivery.unchecked else float(count_of(delivery))

    return value


def _peak(peak_of: Callable[..., float]) -> Callable[[ClientResult], float | None]:
    """Return the accessor of the peak rate as a share of the quota, None where there is no quota."""

    def value(entity: ClientResult) -> float | None:
        quota = entity.verdict.quota
        return None if quota is None else peak_of(entity.seconds, sample_s=entity.sample_s) / quota

    return value


def _metrics() -> list[Metric]:
    count, duration, rate = Dimension.COUNT, Dimension.DURATION, Dimension.RATE
    figures: list[tuple[str, Dimension, Callable[[ClientResult], float | None]]] = [
        ("achieved", rate, lambda entity: entity.verdict.achieved),
        ("offered", rate, lambda entity: entity.verdict.offered),
        ("quota", rate, lambda entity: entity.verdict.quota),
        ("achieved/quota", Dimension.RATIO, lambda entity: entity.verdict.ratio),
        ("achieved/offered", Dimension.RATIO, _of_offer),
        ("peak_minute/quota", Dimension.RATIO, _peak(peak_minute_rate)),
        ("peak_client/quota", Dimension.RATIO, _peak(peak_client_rate)),
        ("settled", duration, lambda entity: entity.verdict.settled_ms),
        ("throttle.count", count, lambda entity: float(entity.throttle.count)),
        ("throttle.sum", duration, lambda entity: entity.throttle.sum_ms),
        ("throttle.avg", duration, lambda entity: entity.throttle.avg_ms),
        ("throttle.p50", duration, lambda entity: entity.throttle.p50_ms),
        ("throttle.p90", duration, lambda entity: entity.throttle.p90_ms),
        ("throttle.p99", duration, lambda entity: entity.throttle.p99_ms),
        ("throttle.max", duration, lambda entity: entity.throttle.max_ms),
        ("records.sent", count, lambda entity: float(entity.sent)),
        ("records.acked", count, lambda entity: float(entity.acked)),
        ("records.unfinished", count, lambda entity: float(entity.unfinished)),
        ("records.dropped", count, lambda entity: float(entity.dropped)),
        ("records.due", count, lambda entity: float(entity.books.due)),
        ("records.unsent", count, lambda entity: float(entity.books.unsent)),
        ("records.failed", count, lambda entity: float(sum(number for _, number in entity.failures))),
        ("records.lost", count, _found(lambda delivery: delivery.lost)),
        ("records.duplicated", count, _found(lambda delivery: delivery.duplicated)),
    ]
    latencies = [
        Metric(
            name=f"{name}.{statistic}",
            dimension=duration,
            of=_latency(summary_of, attribute),
            is_bound=partial(_is_bound, summary_of, share),
        )
        for name, summary_of in _LATENCIES.items()
        for statistic, (attribute, share) in _STATISTICS.items()
    ]
    return [*(Metric(name=name, dimension=dimension, of=of) for name, dimension, of in figures), *latencies]


def _is_bound(summary_of: Callable[[ClientResult], LatencySummary], share: float, entity: ClientResult) -> bool:
    return summary_of(entity).is_bound(share)


def _of_offer(entity: ClientResult) -> float | None:
    offered = entity.verdict.offered
    return entity.verdict.achieved / offered if offered else None


METRICS: Final = {metric.name: metric for metric in _metrics()}
"""Every metric by its name."""
