"""A load test drawn: as one chart, and as the sections of its report."""

from collections.abc import Sequence
from itertools import accumulate

from kafka_quotas import loadtest
from kafka_quotas.cli.charts.html_page import ReportChart, ReportSection
from kafka_quotas.cli.charts.plot import Bar, bars_svg, curves_svg, series_svg
from kafka_quotas.cli.charts.text_chart import Series, Style
from kafka_quotas.cli.load_test.views.view import achieved_text, quota_text
from kafka_quotas.cli.output.listing import Table
from kafka_quotas.core.model.value_format import format_duration_us

_MOST_CHARTS = 8
_MOST_CURVES = 6
_SHARES = (("min_us", 0.0), ("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999), ("max_us", 1.0))
_LONGEST_SHARE = 0.999
"""The share of latencies that have to be known for the longest, as every run ends with some requests on their way."""


def load_series(result: loadtest.LoadResult, *, limited_only: bool = False) -> list[Series]:
    """Return the series of the clients: rates averaged over a quota window, limits, throttle times.

    The throttle times are the longest of each second. `limited_only` leaves out clients that no quota held back, which
    leaves the chart to the others.
    """
    window_s = result.window.samples * result.window.window_s
    limited = [entity for entity in result.entities if entity.verdict.kind is loadtest.ObservationKind.GREEDY]
    series = [
        Series(name=each.name.label, points=_rolling_rates(each, window_s), unit=each.unit.value)
        for each in (limited if limited_only else result.entities)
    ]
    series += (_limit(each, f"quota of {each.name.label}, ") for each in limited)
    longest: dict[int, int] = {}
    for each in (second for entity in limited for second in entity.seconds):
        longest[each.second] = max(each.throttle_max_ms, longest.get(each.second, 0))
    points = [(float(second), float(throttle_ms)) for second, throttle_ms in sorted(longest.items()) if throttle_ms]
    return series + ([_bars("longest throttle time", points)] if points else [])


def _rolling_rates(entity: loadtest.ClientResult, window_s: int) -> list[tuple[float, float]]:
    """Return the average of the last window at the end of every second, from the first whole window on.

    In shorter windows a burst after an empty past would tower over all that follows.
    """
    rates = [each.rate for each in entity.seconds]
    width = max(1, min(round(window_s / entity.sample_s), len(rates)))
    sums = list(accumulate(rates, initial=0.0))
    return [(end * entity.sample_s, (sums[end] - sums[end - width]) / width) for end in range(width, len(rates) + 1)]


def _bars(name: str, points: Sequence[tuple[float, float]]) -> Series:
    return Series(name=name, points=points, unit="ms", style=Style.BARS)


def _limit(entity: loadtest.ClientResult, name: str) -> Series:
    quota = entity.verdict.quota or 0.0
    points = [(0.0, quota), (len(entity.seconds) * entity.sample_s, quota)]
    return Series(name=name + entity.unit.text(quota), points=points, unit=entity.unit.value, style=Style.LIMIT)


def against_bounds(result: loadtest.LoadResult) -> ReportSection:
    """Chart each client's rate over time against its quota."""
    chosen = _most_telling(result)
    left_out = len(result.entities) - len(chosen)
    more = f" {left_out} more clients are in run.json and samples.parquet." if left_out else ""
    return ReportSection(
        "Rate against quota",
        "The area is the rate of every second, the line the average over a quota window, which is what a "
        "quota limits; the dashed line is the quota." + more,
        charts=tuple(_rate_chart(entity, result) for entity in chosen),
    )


def throttling(result: loadtest.LoadResult) -> ReportSection | None:
    """Chart when and for how long the server throttled clients, None where it throttled none."""
    throttled = [entity for entity in result.entities if entity.throttle.count]
    throttled.sort(key=lambda entity: -entity.throttle.sum_ms)
    if not throttled:
        return None
    charts = []
    for entity in throttled[:_MOST_CURVES]:
        longest = [(each.second + entity.sample_s, float(each.throttle_max_ms)) for each in entity.seconds]
        caption = f"{entity.name.label}: the longest throttle time announced in each second"
        charts.append((series_svg([_bars("longest throttle time", longest)]), caption))
    return ReportSection(
        "Throttling over time",
        "What the server announced in its responses. Averages are over all responses of a window, as a "
        "client's throttle-time-avg is, and 0 where none was throttled.",
        charts=charts,
        tables=(_window_table(throttled[:_MOST_CURVES]),),
    )


def latencies(result: loadtest.LoadResult) -> ReportSection | None:
    """Chart the distributions of response and service time, None where none was recorded."""
    timed = [entity for entity in _most_telling(result) if entity.response.count][:_MOST_CURVES]
    if not timed:
        return None
    uncertain, curves = "at least: no answer by the end", [_latency_curve(entity) for entity in timed]
    svg = curves_svg(curves, x_unit="ms", y_name="% answered", uncertain=uncertain)
    caption = (
        "How many were answered within which time, by all percentiles. Dotted: lower bounds, because too many "
        "requests had no answer when the run ended"
    )
    return ReportSection(
        "Latency",
        "From the moment a record was due until it was acknowledged (or read), without the warm-up.",
        charts=((svg, caption),),
        tables=(_latency_table(timed),),
    )


def isolation(result: loadtest.LoadResult) -> ReportSection | None:
    """Compare the control clients beside the others with their solo runs, None where there are none."""
    controls = [entity for entity in result.entities if entity.control and entity.solo is not None]
    if not controls:
        return None
    bars = []
    for entity in controls[:_MOST_CHARTS]:
        alone = entity.solo or entity.response
        limit_ms = loadtest.allowed_us(alone, result.control_factor) / 1000
        bars.append(Bar(name=f"{entity.name.label} alone", value=alone.p99_us / 1000))
        bars.append(Bar(name=f"{entity.name.label} beside others", value=entity.response.p99_us / 1000, limit=limit_ms))
    return ReportSection(
        "Isolation: were the neighbours left in peace?",
        "A control client keeps within its quota and runs twice: alone first, then beside the others. "
        f"The mark is what it was judged by: {result.control_factor:g} times its p99 alone, plus 10 ms.",
        charts=((bars_svg(bars, unit="ms"), "p99 from due to acknowledged"),),
    )


def later_topics(result: loadtest.LoadResult) -> ReportSection | None:
    """Chart how long topics created during the load took to become visible, None without probes."""
    waits = [(probe.at_s, probe.wait_ms) for probe in result.probes if probe.wait_ms is not None]
    if not result.probes:
        return None
    charts = []
    if waits:
        svg = series_svg([_bars("wait", waits)])
        charts.append((svg, "The wait of each topic, by when it was asked for"))
    unseen = len(result.probes) - len(waits)
    return ReportSection(
        "How long a later topic takes",
        "While the load ran, topics of one partition were made one after the other, each awaited until it "
        f"could be seen. {unseen} of {len(result.probes)} did not appear in time.",
        charts=charts,
    )


def _most_telling(result: loadtest.LoadResult) -> Sequence[loadtest.ClientResult]:
    troubled = {judgement.entity for judgement in result.judgements if not judgement.ok}
    ordered = sorted(
        result.entities,
        key=lambda each: (each.name.label not in troubled, each.verdict.quota is None, -each.verdict.achieved),
    )
    return ordered[:_MOST_CHARTS]


def _rate_chart(entity: loadtest.ClientResult, result: loadtest.LoadResult) -> ReportChart:
    unit, quota = entity.unit.value, entity.verdict.quota
    window_s = result.window.samples * result.window.window_s
    per_second = [(each.second + entity.sample_s, each.rate) for each in entity.seconds]  # at the end of each
    series = [
        Series(name="each second", points=per_second, unit=unit, style=Style.AREA),
        Series(name=f"average of {window_s} s", points=_rolling_rates(entity, window_s), unit=unit),
    ]
    if quota is not None and per_second:
        series.append(_limit(entity, "quota "))
    against = f"quota {quota_text(entity)}" if quota is not None or entity.quotas else "no quota"
    caption = f"{entity.name.label}, {entity.workload.value}: {achieved_text(entity)}, {against}"
    return (series_svg(series), caption)


def _window_table(entities: Sequence[loadtest.ClientResult]) -> Table:
    rows = []
    for entity in entities:
        for name, windows in (("first", entity.windows[:1]), ("later", entity.windows[1:])):
            if windows:
                length_s = sum(window.length_s for window in windows)
                rate = sum(window.rate * window.length_s for window in windows) / length_s
                averages = [window.throttle_avg_ms for window in windows]
                known = [each for each in averages if each is not None]
                average = f"{sum(known) / len(known):.1f} ms" if len(known) == len(averages) else "not reported"
                longest = max(window.throttle_max_ms for window in windows)
                rows.append((entity.name.label, name, entity.unit.text(rate), average, f"{longest} ms"))
    return Table.of(
        "Client, Windows, Rate>, Average throttle time>, Longest>",
        rows,
        "The first quota window, which fills from nothing, apart from the steady state",
    )


def _latency_curve(entity: loadtest.ClientResult) -> Series:
    """Return a client's response times by share, from the summary if the run was read from a file."""
    response = entity.response
    summary = [
        loadtest.LatencyPoint(getattr(response, name), share, response.is_bound(min(share, _LONGEST_SHARE)))
        for name, share in _SHARES
    ]
    points = summary if entity.recorder is None else list(entity.recorder.response_times.percentiles())
    return Series(
        name=entity.name.label,
        points=tuple((max(each.value_us, 1) / 1000, 100 * each.share) for each in points),
        uncertain=tuple(each.is_bound for each in points),
    )


def _latency_table(entities: Sequence[loadtest.ClientResult]) -> Table:
    rows = []
    for entity in entities:
        kinds = (("response", entity.response), ("service", entity.service), ("schedule delay", entity.schedule_delay))
        for kind, summary in kinds:
            if summary.count:
                bounds = [summary.is_bound(min(share, _LONGEST_SHARE)) for _, share in _SHARES[1:]]
                values = [format_duration_us(getattr(summary, name)) for name, _ in _SHARES[1:]]
                texts = (f"{'> ' * is_bound}{value}" for value, is_bound in zip(values, bounds, strict=True))
                rows.append((entity.name.label, kind, *texts))
    names = ("p50", "p90", "p99", "p99.9", "Longest")
    return Table.of(", ".join(("Client", "What", *(f"{name}>" for name in names))), rows)
