"""The report's page: a heading, the key figures, and a section for each question that its reader has."""

from collections.abc import Iterator
from datetime import UTC, datetime

from kafka_quotas.cli.charts.html_page import KeyFigure, Mood, ReportChart, ReportPage, ReportSection, ReportTable
from kafka_quotas.cli.charts.svg import Bar, Curve, Mark, bars_svg, curves_svg, heat_svg
from kafka_quotas.cli.pipeline.proposals import bucket_text
from kafka_quotas.core.model.value_format import format_bytes, format_count, format_duration_s, format_typed_rate
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.recommend.advice import Advice, Override, RecommendPlan
from kafka_quotas.pipeline.recommend.findings import default_outcome, outcome, warnings
from kafka_quotas.pipeline.recommend.job import Recommendation
from kafka_quotas.pipeline.report.job import Points, Report, WhatIf
from kafka_quotas.pipeline.report.traffic import NEARLY_FULL, LimitedTraffic, Traffic

_WHOLE_FROM = 0.1
"""Smaller shares have a decimal: 1.5 % is not within a tolerance of 1 %."""
_UNITS = {
    QuotaType.PRODUCE: "bytes/s",
    QuotaType.FETCH: "bytes/s",
    QuotaType.REQUEST: "% of a thread",
    QuotaType.CONTROLLER_MUTATION: "partitions/s",
    QuotaType.REQUEST_RATE: "requests/s",
}
_DOINGS = {
    QuotaType.PRODUCE: "Writing",
    QuotaType.FETCH: "Reading",
    QuotaType.REQUEST: "Broker time",
    QuotaType.CONTROLLER_MUTATION: "Creating and deleting topics",
    QuotaType.REQUEST_RATE: "Requests",
}
_EACH = {
    DefaultScope.USER: "each user",
    DefaultScope.CLIENT_ID: "each client-id",
    DefaultScope.PAIR: "each client-id of each user",
}


def report_page(result: Report, *, title: str) -> ReportPage:
    """Return the whole page."""
    return ReportPage(
        title=title,
        subtitle=subtitle(result),
        figures=key_figures(result),
        sections=(
            recommended_section(result.recommendation),
            _top(result),
            _when(result),
            _against_limits(result),
            _what_if(result),
            _method(result),
        ),
    )


def _top(result: Report) -> ReportSection:
    charts = []
    for kind in (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST):
        largest = result.clients.largest[kind]
        if largest:
            bars = [Bar(name=_name(each), value=each.average) for each in largest]
            total = result.clients.amounts[kind] / result.recommendation.events.seconds
            share = sum(each.average for each in largest) / total
            caption = f"{_DOINGS[kind]}{_in_unit(kind)}: the {len(largest)} largest clients, {share:.0%} of all"
            charts.append(ReportChart(svg=bars_svg(bars, unit=_UNITS[kind]), caption=caption))
    return ReportSection(
        title="Who uses the most?",
        paragraphs=(
            (
                "Averages over the whole recording, all brokers added up. Broker time is what requests cost the "
                "brokers' threads: 100 % is one thread that does nothing else."
            ),
        ),
        charts=tuple(charts),
    )


def _when(result: Report) -> ReportSection:
    heat = result.heat
    names = [bucket_text(user, client_id) for user, client_id in heat.clients]
    if not names:
        return ReportSection(title="When?", paragraphs=("Nothing was written or read.",))
    by_day = heat.slots.first is None
    caption = (
        "by the hour of the day (UTC)" if by_day else f"in steps of {format_duration_s(heat.slots.length_s)} (UTC)"
    )
    chart = heat_svg(names, heat.slots.names, heat.rates, unit="bytes/s")
    return ReportSection(
        title="When?",
        paragraphs=(
            "Bytes written and read per second. Where a whole column stands out, many clients were busy at once.",
        ),
        charts=(ReportChart(svg=chart, caption=f"The {len(names)} largest clients, {caption}"),),
    )


def _against_limits(result: Report) -> ReportSection:
    title = "How close are clients to the limits in force?"
    if not result.limited.count:
        answer = f"No limit in {result.quotas} concerns any of the recorded clients, and none was slowed down."
        return ReportSection(title=title, paragraphs=(answer,))
    charts = []
    for kind, unit in _UNITS.items():
        bars = [Bar(name=_name(each), value=each.p99, limit=each.limit) for each in result.limited.nearest_of[kind]]
        if bars:
            caption = f"{_DOINGS[kind]}: rate reached in busy times (bar) and the limit (line), per broker"
            charts.append(ReportChart(svg=bars_svg(bars, unit=unit), caption=caption))
    return ReportSection(
        title=title,
        paragraphs=(
            (
                f"Limits of {result.quotas}. The rate is the one that brokers themselves hold against the limit, an "
                "average over some seconds; it is shown for the broker where the client is nearest to its limit, "
                "and is exceeded in 1 % of the time only."
            ),
        ),
        charts=tuple(charts),
        tables=(_limits_table(result.limited),),
    )


def _limits_table(limited: LimitedTraffic) -> ReportTable:
    rows = tuple(
        (
            _name(each),
            _DOINGS[each.quota_type],
            format_typed_rate(each.quota_type.value, each.p99),
            format_typed_rate(each.quota_type.value, each.limit) or "none here",
            "" if each.used is None else f"{each.used:.0%}",
            f"{each.throttled_share:.0%}",
            _standing(each),
        )
        for each in limited.nearest
    )
    columns = ("client", "what", "busy rate", "limit", "used", "slowed down in", "")
    left = limited.count - len(rows)
    return ReportTable(
        columns=columns,
        rows=rows,
        numeric=frozenset(columns[2:6]),
        caption=f"The {len(rows)} nearest to their limits; {left} more are not shown" if left else "",
    )


def _standing(traffic: Traffic) -> str:
    if traffic.limit is None:
        return "slowed down by a limit that is not among these"
    if traffic.throttle_ms:
        return "slowed down"
    return "near its limit" if (traffic.used or 0.0) >= NEARLY_FULL else "has room"


def _what_if(result: Report) -> ReportSection:
    charts = tuple(
        ReportChart(
            svg=curves_svg(
                list(_curves(each)),
                x_unit=_UNITS[each.quota_type],
                y_name="slowed down, %",
                log_x=True,
                mark=Mark(name="recommended default", x=each.default),
            ),
            caption=f"{_DOINGS[each.quota_type]}: the limit per broker{_in_unit(each.quota_type)} from left to right",
        )
        for each in result.what_ifs
        if len(each.throttled_clients) > 1
    )
    share = result.recommendation.plan.tolerance.time_share
    return ReportSection(
        title="What if the limit were lower, or higher?",
        paragraphs=(
            (
                "The recorded traffic was run through Kafka's own algorithm once for each limit. "
                "\u201cClients slowed down\u201d is the share of the clients that a limit would hold back for more "
                f"than {share:.0%} of their active time; the other lines are the neediest clients, one by one, with "
                "the share of their active time that they would wait. The dotted line is the recommended default."
            ),
        ),
        charts=charts,
    )


def _curves(found: WhatIf) -> Iterator[Curve]:
    yield Curve(name="clients slowed down", points=_percent(found.throttled_clients))
    for each in found.neediest:
        yield Curve(name=bucket_text(each.user, each.client_id), points=_percent(each.points))


def _percent(points: Points) -> Points:
    return tuple((limit, 100 * share) for limit, share in points)


def recommended_section(found: Recommendation) -> ReportSection:
    """Return the limits to set, what they do in the replay, and what to know before."""
    title = "Which limits to set"
    if not found.advices:
        return ReportSection(title=title, paragraphs=("Nothing that limits concern was used.",))
    tolerance = found.plan.tolerance
    rows = tuple(row for advice in found.advices for row in _advice_rows(advice, found.plan))
    warned = tuple(f"{line[0].upper()}{line[1:]}." for line in warnings(found))
    return ReportSection(
        title=title,
        paragraphs=(
            (
                f"One default for {_EACH[found.plan.scope]}, by the largest need of the many. The few who need far "
                "more get a limit of their own. Both have a headroom of "
                f"{tolerance.headroom - 1:.0%}. Every limit holds at each broker separately. A limit "
                "of broker time of 100 % lets a client keep one of a broker's threads busy."
            ),
            " ".join(outcome(found)),
            *warned,
        ),
        tables=(
            ReportTable(
                columns=("for", "what", "limit", "largest rate seen", "why"),
                rows=rows,
                numeric=frozenset({"limit", "largest rate seen"}),
            ),
        ),
    )


def _advice_rows(advice: Advice, plan: RecommendPlan) -> Iterator[tuple[str, ...]]:
    kind, doing = advice.quota_type.value, _DOINGS[advice.quota_type]
    peak = advice.peak or 0.0
    reason = default_outcome(advice, plan)
    if peak > advice.default and not advice.exceeding_default:
        reason += f"; they wait in at most {advice.largest_tolerated_share:.1%} of their time"
    if advice.default < advice.wanted_default:
        reason += f"; a fair share, {format_typed_rate(kind, advice.wanted_default)} was wanted"
    if advice.is_raised:
        reason += "; less might stop a consumer that meets a large record"
    yield (_EACH[plan.scope], doing, format_typed_rate(kind, advice.default), format_typed_rate(kind, peak), reason)
    for each in advice.overrides:
        yield (
            bucket_text(each.demand.user, each.demand.client_id),
            doing,
            format_typed_rate(kind, each.limit),
            format_typed_rate(kind, each.demand.peak),
            _why(each, advice),
        )


def _why(override: Override, advice: Advice) -> str:
    demand = override.demand
    if override.pays:
        return f"{format_typed_rate(advice.quota_type.value, override.wanted)} was wanted; this is its fair share"
    if demand.is_unknown and demand.implied is not None:
        return f"its demand is unknown: it was slowed down in {demand.implied.held_share:.0%} of its time"
    if demand.is_lower_bound:
        return "at least this much: it was slowed down while it was recorded, and may want more"
    busiest = demand.busiest.broker_id
    where = f", most of all at broker {busiest}" if len(demand.brokers) > 1 else ""
    share = override.throttled_share_at_default
    return f"the default would slow it down in {share:.{0 if share >= _WHOLE_FROM else 1}%} of its time{where}"


def _method(result: Report) -> ReportSection:
    events = result.recommendation.events
    return ReportSection(
        title="How these figures came about",
        paragraphs=(
            (
                f"From {events.count:,} events that brokers or the daemon recorded in "
                f"{format_duration_s(events.seconds)}. What happens at other times is not in them: record a "
                "whole working day, or better a week, before limits are set for good."
            ),
            (
                "Request logs have the size of records, not of requests; what frames them is estimated. Broker time "
                "leaves out the network threads. Times are UTC."
            ),
        ),
    )


def _in_unit(kind: QuotaType) -> str:
    """Return the unit for a caption, where the axis does not show it."""
    return "" if _UNITS[kind] == "bytes/s" else f" in {_UNITS[kind]}"


def _name(traffic: Traffic) -> str:
    return bucket_text(traffic.user, traffic.client_id)


def subtitle(result: Report) -> str:
    """Return the period and the place of the recording."""
    events = result.recommendation.events
    return (
        f"Cluster {result.recommendation.cluster}, {_moment(events.first_ms or 0)} to {_moment(events.last_ms or 0)} "
        f"UTC ({format_duration_s(events.seconds)}), {events.count:,} recorded events"
    )


def key_figures(result: Report) -> tuple[KeyFigure, ...]:
    """Return the figures at the top."""
    found = [_clients(result), _traffic(result), _held_back(result), _near(result)]
    found += [limit_figure(each) for each in result.recommendation.advices if each.quota_type in _BYTES]
    return (*found, *_capacity(result))


_BYTES = (QuotaType.PRODUCE, QuotaType.FETCH)


def _clients(result: Report) -> KeyFigure:
    brokers = {load.broker_id for each in result.recommendation.advices for load in each.loads}
    note = f"on {len(brokers)} broker{'s' if len(brokers) > 1 else ''}"
    return KeyFigure(label="Clients", value=f"{result.clients.clients:,}", note=note)


def _traffic(result: Report) -> KeyFigure:
    written, read = (result.clients.amounts[kind] for kind in _BYTES)
    return KeyFigure(
        label="Traffic",
        value=format_bytes(written + read),
        note=f"{format_bytes(written)} in, {format_bytes(read)} out",
    )


def _held_back(result: Report) -> KeyFigure:
    clients = result.clients
    if not clients.throttled:
        return KeyFigure(label="Slowed down by limits", value="nobody", mood=Mood.GOOD)
    note = f"the longest in {clients.longest_share:.0%} of its active seconds"
    return KeyFigure(label="Slowed down by limits", value=_client_count(clients.throttled), note=note, mood=Mood.WATCH)


def _near(result: Report) -> KeyFigure:
    near, limited = result.limited.near, result.limited.limited
    if not limited:
        return KeyFigure(label="Limits in force", value="none", note="any client may take all it can", mood=Mood.WATCH)
    return KeyFigure(
        label="At or near a limit",
        value=f"{near} of {limited}",
        note=f"limited clients that use {NEARLY_FULL:.0%} of theirs or more",
        mood=Mood.WATCH if near else Mood.GOOD,
    )


def limit_figure(advice: Advice) -> KeyFigure:
    """Return a recommended default, and for how many clients it is enough."""
    verb = "Write" if advice.quota_type is QuotaType.PRODUCE else "Read"
    own = len(advice.overrides)
    note = f"is enough for {advice.fitting:,} of {_client_count(advice.clients)}"
    note += f", {advice.unknown_default:,} unknown" if advice.unknown_default else ""
    note += f", {advice.exceeding_default:,} slowed down" if advice.exceeding_default else ""
    note += f", {own:,} with {'a limit of its own' if own == 1 else 'limits of their own'}" if own else ""
    return KeyFigure(
        label=f"{verb} limit to set, per broker",
        value=format_typed_rate(advice.quota_type.value, advice.default),
        note=note,
    )


def _capacity(result: Report) -> tuple[KeyFigure, ...]:
    """Return whether the brokers can carry the load, nothing if their capacity is unknown."""
    loads = [load for each in result.recommendation.advices for load in each.loads if load.fits is not None]
    if not loads:
        return ()
    over = {load.broker_id for load in loads if not load.fits}
    if over:
        note = f"broker {', '.join(map(str, sorted(over)))}"
        return (KeyFigure(label="Limits cut to what brokers have", value="yes", note=note, mood=Mood.BAD),)
    note = f"within {loads[0].capacity_share:.0%} of what they can take"
    return (KeyFigure(label="Brokers can carry it", value="yes", note=note, mood=Mood.GOOD),)


def _client_count(count: int) -> str:
    return format_count(count, "client", separator=",")


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
