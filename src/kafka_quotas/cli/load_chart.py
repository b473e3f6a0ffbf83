"""A load test as a chart: every client's rate, the quotas as limits, and the throttle times below."""

from kafka_quotas.cli.chart import Series, Style
from kafka_quotas.core.units import format_bytes
from kafka_quotas.loadtest.result import EntityResult, LoadResult
from kafka_quotas.loadtest.verdict import Kind


def load_series(result: LoadResult, *, limited_only: bool = False) -> list[Series]:
    """The series of the clients: bytes/s averaged over a quota window, limits, and the announced throttle times.

    `limited_only` leaves out clients that no quota held back, so that the others fill the chart.
    """
    window_s = result.window_samples * result.window_size_s
    limited = [entity for entity in result.entities if entity.verdict.kind is Kind.GREEDY]
    rates = [_rate(entity, window_s) for entity in (limited if limited_only else result.entities)]
    throttles = [_throttle(entity) for entity in limited if entity.throttle.count]
    return [*rates, *(_limit(entity) for entity in limited), *throttles]


def _rate(entity: EntityResult, window_s: int) -> Series:
    """The average of the last window at the end of every second: what the quota looks at."""
    sizes = [each.bytes_per_second for each in entity.seconds]
    points = [
        (float(second + 1), sum(sizes[max(0, second + 1 - window_s) : second + 1]) / min(second + 1, window_s))
        for second in range(len(sizes))
    ]
    return Series(name=entity.name.label, points=points, unit="bytes/s")


def _limit(entity: EntityResult) -> Series:
    quota = entity.verdict.quota_bytes_per_second or 0.0
    points = [(0.0, quota), (float(len(entity.seconds)), quota)]
    name = f"quota of {entity.name.label}, {format_bytes(quota)}/s"
    return Series(name=name, points=points, unit="bytes/s", style=Style.LIMIT)


def _throttle(entity: EntityResult) -> Series:
    points = [(float(each.second), float(each.throttle_ms)) for each in entity.seconds if each.throttle_ms]
    return Series(name=f"throttle of {entity.name.label}", points=points, unit="ms", style=Style.BARS)
