"""A load test as a chart: every client's rate, the quotas as limits, and the throttle times below."""

from collections.abc import Sequence
from itertools import accumulate

from kafka_quotas.cli.charts.text_chart import Series, Style
from kafka_quotas.loadtest.result.result import ClientResult, LoadResult
from kafka_quotas.loadtest.result.verdict import ObservationKind


def load_series(result: LoadResult, *, limited_only: bool = False) -> list[Series]:
    """Return the series of the clients: rates averaged over a quota window, limits, throttle times.

    The throttle times are the longest of each second. `limited_only` leaves out clients that no quota held back, which
    leaves the chart to the others.
    """
    window_s = result.window_samples * result.window_size_s
    limited = [entity for entity in result.entities if entity.verdict.kind is ObservationKind.GREEDY]
    rates = [_rate(entity, window_s) for entity in (limited if limited_only else result.entities)]
    return [*rates, *(_limit(entity) for entity in limited), *_throttles(limited)]


def rolling_rates(entity: ClientResult, window_s: int) -> list[tuple[float, float]]:
    """Return the average of the last window at the end of every second, from the first whole window on.

    In shorter windows a burst after an empty past would tower over all that follows.
    """
    rates = [each.rate for each in entity.seconds]
    width = max(1, min(round(window_s / entity.sample_s), len(rates)))
    sums = list(accumulate(rates, initial=0.0))
    return [(end * entity.sample_s, (sums[end] - sums[end - width]) / width) for end in range(width, len(rates) + 1)]


def _rate(entity: ClientResult, window_s: int) -> Series:
    return Series(name=entity.name.label, points=rolling_rates(entity, window_s), unit=entity.unit.value)


def _limit(entity: ClientResult) -> Series:
    quota = entity.verdict.quota or 0.0
    points = [(0.0, quota), (len(entity.seconds) * entity.sample_s, quota)]
    name = f"quota of {entity.name.label}, {entity.unit.text(quota)}"
    return Series(name=name, points=points, unit=entity.unit.value, style=Style.LIMIT)


def _throttles(limited: Sequence[ClientResult]) -> list[Series]:
    longest: dict[int, int] = {}
    for entity in limited:
        for each in entity.seconds:
            longest[each.second] = max(each.throttle_max_ms, longest.get(each.second, 0))
    points = [(float(second), float(throttle_ms)) for second, throttle_ms in sorted(longest.items()) if throttle_ms]
    return [Series(name="longest throttle time", points=points, unit="ms", style=Style.BARS)] if points else []
