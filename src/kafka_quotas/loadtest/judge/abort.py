"""Thresholds that end a run as soon as they are broken, as k6's `abortOnFail` does.

They are written as other thresholds are, and judged with them at the end. While the load runs only figures that grow or
settle with it can be known: latencies, throttle times, and counts of records. A percentile counts from 100 latencies
on (p999: from 1,000), so that no single record ends a run.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.engine import LoadClient
from kafka_quotas.loadtest.judge.expectation import Expectation, parse_expectation
from kafka_quotas.loadtest.plan.workload import UNITS
from kafka_quotas.loadtest.record.histogram import Histogram
from kafka_quotas.loadtest.record.recorder import Recorder

_SETTLED: Final = 100
_SETTLED_P999: Final = 1000
_HISTOGRAMS: Final[dict[str, Callable[[Recorder], Histogram]]] = {
    "service": lambda recorder: recorder.service_times,
    "schedule_delay": lambda recorder: recorder.schedule_delays,
    "response": lambda recorder: recorder.response_times,
}
_COUNTS: Final[dict[str, Callable[[Recorder], float]]] = {
    "throttle.count": lambda recorder: recorder.throttle_count,
    "throttle.sum": lambda recorder: recorder.throttle_sum_us / 1000,
    "records.sent": lambda recorder: recorder.sent,
    "records.acked": lambda recorder: recorder.acked,
    "records.dropped": lambda recorder: recorder.dropped_count,
    "records.failed": lambda recorder: recorder.failures.total(),
}
_THROTTLES: Final = ("p50", "p90", "p99", "max")


def parse_abort(text: str) -> Expectation:
    """Parse a threshold that ends the run.

    Raises:
        UsageError: It is no threshold, its figure is known at the end only, or it can still be met by a longer run.
    """
    threshold = parse_expectation(text)
    name, _, statistic = threshold.metric.name.partition(".")
    is_count = threshold.metric.name in _COUNTS
    if not is_count and name not in _HISTOGRAMS and not (name == "throttle" and statistic in _THROTTLES):
        raise UsageError(
            f"{threshold.metric.name} is known at the end of a run only, so {text!r} can't end it",
            hint="latencies, throttle times, records.sent, .acked, .dropped and .failed are known while it runs",
        )
    if is_count and threshold.comparison in (">", ">=", "!="):
        raise UsageError(
            f"{text!r} can't end a run: it is met sooner or later, as the figure grows",
            hint="give an upper bound, such as 'throttle.count < 10', or write it with --expect",
        )
    return threshold


class AbortCheck:
    """The thresholds that end one run, and which of them did."""

    def __init__(self, thresholds: Sequence[Expectation]) -> None:
        self._thresholds = tuple(thresholds)
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
        is_meant = threshold.entity in (None, entity.name.label, entity.name.client_id)
        if not is_meant and not (threshold.entity == "control" and entity.control):
            continue
        value = _figure(threshold.metric.name, client.recorder)
        if value is not None and not _holds(threshold, value):
            return f"{threshold.text}: {entity.name.label} {threshold.metric.text(value, UNITS[entity.workload])}"
    return None


def _holds(threshold: Expectation, value: float) -> bool:
    """Return whether a threshold is met, or a figure that grows has not yet come to it."""
    is_growing = threshold.metric.name in _COUNTS
    return threshold.met_by(value) or (is_growing and value < threshold.low and threshold.comparison in ("in", "=="))


def _figure(name: str, recorder: Recorder) -> float | None:
    """Return a figure as it is now (times in ms), None while it rests on too few latencies."""
    if name in _COUNTS:
        return float(_COUNTS[name](recorder))
    kind, _, statistic = name.partition(".")
    histogram = recorder.throttle_times if kind == "throttle" else _HISTOGRAMS[kind](recorder)
    summary = histogram.snapshot().summary()
    least = 1 if statistic == "max" else _SETTLED_P999 if statistic == "p999" else _SETTLED
    if summary.count < least:
        return None
    return float(getattr(summary, f"{statistic}_us")) / 1000
