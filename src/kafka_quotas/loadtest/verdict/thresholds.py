"""The metrics of a client, by which thresholds are set and two runs are compared: one table.

Two of them are peak rates by the measures of Kafka's own system test of quotas. The broker's is the one-minute moving
average of its meters, on a broker that was quiet before. The client's is the average over the last 30 seconds, a sample
of its metrics. Both let the burst of the first window pass.

**Source:** kafkatest, `tests/client/quota_test.py`; `metrics.sample.window.ms` of Kafka's clients.
"""

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.metrics.rate import TICK_MS, EwmaMeter
from kafka_quotas.core.model.value_format import format_duration_ms, format_rounded, parse_bytes, parse_duration_ms
from kafka_quotas.loadtest.clients.engine import LoadClient
from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
from kafka_quotas.loadtest.measurement.delivery import Delivery
from kafka_quotas.loadtest.measurement.histogram import Histogram, LatencySummary
from kafka_quotas.loadtest.measurement.recorder import Recorder
from kafka_quotas.loadtest.measurement.traces import Slot
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import UNITS, RateUnit
from kafka_quotas.loadtest.results.result import ClientResult, LoadResult

CLIENT_SAMPLE_S: Final = 30.0


def peak_minute_rate(seconds: Sequence[Slot], *, sample_s: float) -> float:
    """Return the highest one-minute moving average of a client's rate, from samples in order."""
    meter = EwmaMeter(-TICK_MS)
    meter.rate(0)  # the meter was there before the load: its first interval was silent
    peak = 0.0
    for sample in seconds:
        end_ms = round((sample.second + sample_s) * 1000)
        meter.record(sample.rate * sample_s, end_ms - 1)
        peak = max(peak, meter.rate(end_ms))
    return peak


def peak_client_rate(seconds: Sequence[Slot], *, sample_s: float) -> float:
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
        """Parse a value, where durations become milliseconds."""
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
    running: Callable[[Recorder], float | None] | None = None
    """Returns the value during a run, None if it rests on too few latencies; None if it is known at the end only."""
    grows: bool = False
    """Whether the value of a client only grows during a run."""

    def text(self, value: float, unit: RateUnit) -> str:
        """Return a value for people, with `unit` as that of the client's rates."""
        if self.dimension is Dimension.RATE:
            return unit.text(value)
        if self.dimension is Dimension.DURATION:
            return format_duration_ms(float(f"{value:.4g}"))
        return format_rounded(value, 6)


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


_SETTLED: Final = 100
_SETTLED_P999: Final = 1000


def _latency(name: str, histogram_of: Callable[[Recorder], Histogram], statistic: str) -> Metric:
    attribute, share = _STATISTICS[statistic]

    def value(entity: ClientResult) -> float | None:
        summary: LatencySummary = getattr(entity, name)
        return float(getattr(summary, attribute)) / 1000 if summary.count else None

    return Metric(
        name=f"{name}.{statistic}",
        dimension=Dimension.DURATION,
        of=value,
        is_bound=lambda entity: bool(getattr(entity, name).is_bound(share)),
        running=_running(histogram_of, statistic),
    )


def _throttle(statistic: str) -> Metric:
    return Metric(
        name=f"throttle.{statistic}",
        dimension=Dimension.DURATION,
        of=lambda entity: float(getattr(entity.throttle, f"{statistic}_ms")),
        running=_running(lambda recorder: recorder.throttle_times, statistic),
    )


def _running(histogram_of: Callable[[Recorder], Histogram], statistic: str) -> Callable[[Recorder], float | None]:
    least = 1 if statistic == "max" else _SETTLED_P999 if statistic == "p999" else _SETTLED

    def value(recorder: Recorder) -> float | None:
        summary = histogram_of(recorder).snapshot().summary()
        return float(getattr(summary, _STATISTICS[statistic][0])) / 1000 if summary.count >= least else None

    return value


def _found(count_of: Callable[[Delivery], int]) -> Callable[[ClientResult], float | None]:
    def value(entity: ClientResult) -> float | None:
        delivery = entity.delivery
        return None if delivery is None or delivery.unchecked else float(count_of(delivery))

    return value


def _peak(peak_of: Callable[..., float]) -> Callable[[ClientResult], float | None]:
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
        ("throttle.avg", duration, lambda entity: entity.throttle.avg_ms),
        ("records.unfinished", count, lambda entity: float(entity.unfinished)),
        ("records.due", count, lambda entity: float(entity.books.due)),
        ("records.unsent", count, lambda entity: float(entity.books.unsent)),
        ("records.lost", count, _found(lambda delivery: delivery.lost)),
        ("records.duplicated", count, _found(lambda delivery: delivery.duplicated)),
    ]
    growing: list[tuple[str, Dimension, Callable[[ClientResult], float], Callable[[Recorder], float]]] = [
        ("throttle.count", count, lambda entity: float(entity.throttle.count), lambda now: now.throttle_count),
        ("throttle.sum", duration, lambda entity: entity.throttle.sum_ms, lambda now: now.throttle_sum_us / 1000),
        ("records.sent", count, lambda entity: float(entity.sent), lambda now: now.sent),
        ("records.acked", count, lambda entity: float(entity.acked), lambda now: now.acked),
        ("records.dropped", count, lambda entity: float(entity.dropped), lambda now: now.dropped_count),
        (
            "records.failed",
            count,
            lambda each: float(sum(dict(each.failures).values())),
            lambda now: now.failures.total(),
        ),
    ]
    histograms: dict[str, Callable[[Recorder], Histogram]] = {
        "service": lambda now: now.service_times,
        "schedule_delay": lambda now: now.schedule_delays,
        "response": lambda now: now.response_times,
    }
    return [
        *(Metric(name=name, dimension=dimension, of=of) for name, dimension, of in figures),
        *(Metric(name=name, dimension=kind, of=of, running=now, grows=True) for name, kind, of, now in growing),
        *map(_throttle, ("p50", "p90", "p99", "max")),
        *(_latency(*each, statistic) for each in histograms.items() for statistic in _STATISTICS),
    ]


def _of_offer(entity: ClientResult) -> float | None:
    offered = entity.verdict.offered
    return entity.verdict.achieved / offered if offered else None


METRICS: Final = {metric.name: metric for metric in _metrics()}


_FORM: Final = re.compile(
    r"(?:entity\((?P<entity>[^()]+)\)\.)?(?P<metric>[a-z_]+(?:/[a-z]+)?(?:\.[a-z0-9_]+)?)\s*"
    r"(?:(?P<operator><=|>=|==|!=|<|>)\s*(?P<value>\S+)|in\s+(?P<low>[^\s.]+(?:\.\d+[^\s.]*)?)\.\.(?P<high>\S+))"
)
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_EXAMPLES: Final = "examples: 'achieved/quota in 0.9..1.05', 'entity(app).response.p99 < 50ms', 'throttle.count > 0'"
_CONTROL: Final = "control"
_MOST_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A threshold on a metric, for one client or all."""

    text: str
    entity: str | None
    """The name of the client, None for all."""
    metric: Metric
    comparison: str
    """The operator, or `in` for a range."""
    low: float
    """The value, or the lower bound of the range."""
    high: float
    """The upper bound of the range."""

    def names(self, client: ClientName) -> bool:
        """Return whether it is about a client of this name."""
        return self.entity in (None, client.label, client.client_id)

    def met_by(self, value: float) -> bool:
        """Return whether a value of the metric meets it."""
        if self.comparison == "in":
            return self.low <= value <= self.high
        return _COMPARISONS[self.comparison](value, self.low)

    def judge(self, result: LoadResult) -> Judgement:
        """Return the judgement, which is met where all clients in question meet it, and there is one.

        A latency of which too many requests had no answer is a lower bound. Where a longer one would decide otherwise,
        the threshold is not checked.
        """
        values = self._values(result)
        # A lower bound, of which a higher one would be judged otherwise.
        open_ones = [
            (entity, value)
            for entity, value in values
            if self.metric.is_bound(entity) and self.met_by(value) is not self.met_by(math.inf)
        ]
        failed = [(entity, value) for entity, value in values if not self.met_by(value)]
        failed = [each for each in failed if each not in open_ones]
        state = State.NOT_MET if failed or not values else State.UNCHECKED if open_ones else State.MET
        evidence = self._evidence(values, failed or open_ones)
        if state is State.UNCHECKED:
            evidence += "; too many requests had no answer by the end, and may take longer"
        return Judgement(aspect=Aspect.EXPECTATION, state=state, evidence=evidence)

    def _values(self, result: LoadResult) -> list[tuple[ClientResult, float]]:
        named = [each for each in result.entities if self.names(each.name)]
        if not named and self.entity == _CONTROL:
            named = [each for each in result.entities if each.control]
        return [(entity, value) for entity in named if (value := self.metric.of(entity)) is not None]

    def _evidence(self, values: list[tuple[ClientResult, float]], failed: list[tuple[ClientResult, float]]) -> str:
        if not values:
            return f"{self.text}: no client of the run has that figure"
        shown = (failed or values)[:_MOST_SHOWN]
        figures = ", ".join(f"{entity.name.label} {self.metric.text(value, entity.unit)}" for entity, value in shown)
        more = len(failed or values) - len(shown)
        return f"{self.text}: {figures}" + (f", and {more} more" if more > 0 else "")


def parse_expectation(text: str) -> Expectation:
    """Parse a threshold.

    Raises:
        UsageError: The text is no threshold. The message has the part that was not understood.
    """
    match = _FORM.fullmatch(" ".join(text.split()))
    if match is None:
        raise UsageError(f"not an expectation: {text!r}", hint=_EXAMPLES)
    metric = METRICS.get(match["metric"])
    if metric is None:
        names = ", ".join(sorted({name.partition(".")[0] for name in METRICS}))
        raise UsageError(f"no such metric in {text!r}: {match['metric']}", hint=f"there are {names}; {_EXAMPLES}")
    if match["operator"]:
        low = high = _value(match["value"], metric, text)
    else:
        low, high = _value(match["low"], metric, text), _value(match["high"], metric, text)
        if low > high:
            raise UsageError(f"an empty range in {text!r}", hint=f"write the smaller bound first; {_EXAMPLES}")
    return Expectation(
        text=" ".join(text.split()),
        entity=match["entity"],
        metric=metric,
        comparison=match["operator"] or "in",
        low=low,
        high=high,
    )


def check_entities(expectations: Sequence[Expectation], labels: Sequence[str], *, has_control: bool) -> None:
    """Check before a run that every named client takes part."""
    for each in expectations:
        known = any(each.entity in (label, label.rpartition("/")[2]) for label in labels)
        if each.entity is not None and not known and not (has_control and each.entity == _CONTROL):
            raise UsageError(
                f"no client is named {each.entity} in {each.text!r}", hint=f"the run has {', '.join(labels[:5])}"
            )


def _value(text: str, metric: Metric, whole: str) -> float:
    try:
        return metric.dimension.parse(text)
    except UsageError as error:
        raise UsageError(
            f"{text!r} in {whole!r} is not {metric.dimension.noun}", hint=metric.dimension.example
        ) from error


def parse_abort(text: str) -> Expectation:
    """Parse a threshold that ends the run, whose figure is known before, and which no longer run can meet."""
    threshold = parse_expectation(text)
    if threshold.metric.running is None:
        raise UsageError(
            f"{threshold.metric.name} is known at the end of a run only, so {text!r} can't end it",
            hint="latencies, throttle times, records.sent, .acked, .dropped and .failed are known while it runs",
        )
    if threshold.metric.grows and threshold.comparison in (">", ">=", "!="):
        raise UsageError(
            f"{text!r} can't end a run: it is met sooner or later, as the figure grows",
            hint="give an upper bound, such as 'throttle.count < 10', or write it with --expect",
        )
    return threshold


class AbortCheck:
    """The thresholds that end one run, and which of them did."""

    def __init__(self, thresholds: Sequence[str]) -> None:
        self._thresholds = tuple(map(parse_abort, thresholds))
        self.broken: str | None = None
        """The broken threshold with the figure that broke it, None for none."""

    def is_broken(self, clients: Sequence[LoadClient]) -> bool:
        """Return whether the clients of the run break a threshold now."""
        found = (text for threshold in self._thresholds if (text := _broken(threshold, clients)))
        self.broken = next(found, None)
        return self.broken is not None


def _broken(threshold: Expectation, clients: Sequence[LoadClient]) -> str | None:
    for client in clients:
        entity = client.entity
        if not threshold.names(entity.name) and not (threshold.entity == _CONTROL and entity.control):
            continue
        value = threshold.metric.running(client.recorder) if threshold.metric.running else None
        if value is None or threshold.met_by(value):
            continue
        is_low = value < threshold.low and threshold.comparison in ("in", "==")
        if not (threshold.metric.grows and is_low):
            return f"{threshold.text}: {entity.name.label} {threshold.metric.text(value, UNITS[entity.workload])}"
    return None
