"""The report's page: a heading, the key figures, and a section for each question that its reader has."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

from kafka_quotas.cli.charts.html_page import KeyFigure, Mood, ReportPage, ReportSection
from kafka_quotas.cli.charts.plot import Bar, bars_svg, curves_svg, heat_svg
from kafka_quotas.cli.charts.text_chart import Series
from kafka_quotas.cli.output.listing import Table
from kafka_quotas.cli.pipeline.options import bucket_text
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.model.value_format import format_bytes, format_count, format_duration_s, format_typed_rate
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, Recommendation
from kafka_quotas.pipeline.jobs.recommend.findings import changes, default_reason, outcome, override_reason, warnings
from kafka_quotas.pipeline.jobs.report import NEARLY_FULL, Traffic, TrafficReport

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


_BYTES = (QuotaType.PRODUCE, QuotaType.FETCH)


def report_page(result: TrafficReport, *, title: str) -> ReportPage:
    """Return the whole page."""
    events = result.recommendation.events
    first, last = (
        datetime.fromtimestamp((time_ms or 0) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        for time_ms in (events.first_ms, events.last_ms)
    )
    return ReportPage(
        title=title,
        subtitle=f"Cluster {result.recommendation.cluster}, {first} to {last} UTC "
        f"({format_duration_s(events.seconds)}), {events.count:,} recorded events",
        figures=tuple(_key_figures(result)),
        sections=(
            recommended_section(result.recommendation),
            _top(result),
            _when(result),
            _against_limits(result),
            _what_if(result),
            _method(result),
        ),
    )


def _top(result: TrafficReport) -> ReportSection:
    charts = []
    for kind in (*_BYTES, QuotaType.REQUEST):
        largest = result.clients.largest[kind]
        if largest:
            bars = [Bar(name=_name(each), value=each.average) for each in largest]
            share = sum(bar.value for bar in bars) / (
                result.clients.amounts[kind] / result.recommendation.events.seconds
            )
            caption = f"{_DOINGS[kind]}{_in_unit(kind)}: the {len(largest)} largest clients, {share:.0%} of all"
            charts.append((bars_svg(bars, unit=kind.key.unit.value), caption))
    return ReportSection(
        "Who uses the most?",
        "Averages over the whole recording, all brokers added up. Broker time is what requests cost the "
        "brokers' threads: 100 % is one thread that does nothing else.",
        charts=charts,
    )


def _when(result: TrafficReport) -> ReportSection:
    slots, names = result.slots, [bucket_text(*each) for each in result.clients.busiest]
    if not names:
        return ReportSection("When?", "Nothing was written or read.")
    steps = "by the hour of the day" if slots.first is None else f"in steps of {format_duration_s(slots.length_s)}"
    chart = heat_svg(names, slots.names, result.rates, unit="bytes/s")
    return ReportSection(
        "When?",
        "Bytes written and read per second. Where a whole column stands out, many clients were busy at once.",
        charts=((chart, f"The {len(names)} largest clients, {steps} (UTC)"),),
    )


def _against_limits(result: TrafficReport) -> ReportSection:
    title, limited = "How close are clients to the limits in force?", result.limited
    if not limited.count:
        answer = f"No limit in {result.quotas} concerns any of the recorded clients, and none was slowed down."
        return ReportSection(title, answer)
    charts = []
    for kind in QuotaType:
        bars = [Bar(name=_name(each), value=each.p99, limit=each.quota) for each in limited.nearest_of[kind]]
        if bars:
            caption = f"{_DOINGS[kind]}: rate reached in busy times (bar) and the limit (line), per broker"
            charts.append((bars_svg(bars, unit=kind.key.unit.value), caption))
    left = limited.count - len(limited.nearest)
    return ReportSection(
        title,
        f"Limits of {result.quotas}. The rate is the one that brokers themselves hold against the limit, an "
        "average over some seconds; it is shown for the broker where the client is nearest to its limit, "
        "and is exceeded in 1 % of the time only.",
        charts=charts,
        tables=(
            Table.of(
                "client, what, busy rate>, limit>, used>, slowed down in>, ",
                list(map(_limit_row, limited.nearest)),
                f"The {len(limited.nearest)} nearest to their limits; {left} more are not shown" * bool(left),
            ),
        ),
    )


def _limit_row(traffic: Traffic) -> tuple[str, ...]:
    kind = traffic.quota_type.value
    state = "near its limit" if (traffic.used or 0.0) >= NEARLY_FULL else "has room"
    if traffic.quota is None:
        state = "slowed down by a limit that is not among these"
    elif traffic.throttle_ms:
        state = "slowed down"
    return (
        _name(traffic),
        _DOINGS[traffic.quota_type],
        format_typed_rate(kind, traffic.p99),
        format_typed_rate(kind, traffic.quota) or "none here",
        "" if traffic.used is None else f"{traffic.used:.0%}",
        f"{traffic.throttled_share:.0%}",
        state,
    )


def _what_if(result: TrafficReport) -> ReportSection:
    charts = []
    for each in result.recommendation.advices:
        if len(each.curve) > 1:
            slowed = tuple((limit, 100 * clients / each.clients) for limit, clients in each.curve)
            curves = [Series(name="clients slowed down", points=slowed)]
            for demand in each.neediest:
                points = tuple((limit, 100 * demand.throttled_share(limit)) for limit, _ in each.curve)
                curves.append(Series(name=bucket_text(demand.user, demand.client_id), points=points))
            mark = ("recommended default", each.default)
            unit, doing = each.quota_type.key.unit.value, _DOINGS[each.quota_type]
            svg = curves_svg(curves, x_unit=unit, y_name="slowed down, %", mark=mark)
            caption = f"{doing}: the limit per broker{_in_unit(each.quota_type)} from left to right"
            charts.append((svg, caption))
    share = result.recommendation.plan.time_share
    return ReportSection(
        "What if the limit were lower, or higher?",
        "The recorded traffic was run through Kafka's own algorithm once for each limit. "
        "\u201cClients slowed down\u201d is the share of the clients that a limit would hold back for more "
        f"than {share:.0%} of their active time; the other lines are the neediest clients, one by one, with "
        "the share of their active time that they would wait. The dotted line is the recommended default.",
        charts=charts,
    )


def recommended_section(found: Recommendation) -> ReportSection:
    """Return the limits to set, what they do in the replay, and what to know before."""
    title = "Which limits to set"
    if not found.advices:
        return ReportSection(title, "Nothing that limits concern was used.")
    return ReportSection(
        title,
        f"One default for {_EACH[found.plan.scope]}, by the largest need of the many. The few who need far "
        "more get a limit of their own. Both have a headroom of "
        f"{found.plan.headroom - 1:.0%}. Every limit holds at each broker separately. A limit "
        "of broker time of 100 % lets a client keep one of a broker's threads busy.",
        " ".join(outcome(found)),
        *(f"{line[0].upper()}{line[1:]}." for line in (*changes(found), *warnings(found))),
        tables=(
            Table.of(
                "for, what, limit>, largest rate seen>, why",
                [row for advice in found.advices for row in _advice_rows(advice)],
            ),
        ),
    )


def _advice_rows(advice: Advice) -> Iterator[tuple[str, ...]]:
    rate, doing = partial(format_typed_rate, advice.quota_type.value), _DOINGS[advice.quota_type]
    peak, reason = advice.peak or 0.0, default_reason(advice)
    if peak > advice.default and not advice.exceeding_default:
        reason += f"; they wait in at most {advice.largest_tolerated_share:.1%} of their time"
    yield (_EACH[advice.plan.scope], doing, rate(advice.default), rate(peak), reason)
    for each in advice.overrides:
        name = bucket_text(each.demand.user, each.demand.client_id)
        yield (name, doing, rate(each.limit), rate(each.demand.peak), override_reason(advice, each))


def _method(result: TrafficReport) -> ReportSection:
    events = result.recommendation.events
    return ReportSection(
        "How these figures came about",
        f"From {events.count:,} events that brokers or the daemon recorded in "
        f"{format_duration_s(events.seconds)}. What happens at other times is not in them: record a "
        "whole working day, or better a week, before limits are set for good.",
        "Request logs have the size of records, not of requests; what frames them is estimated. Broker time "
        "leaves out the network threads. Times are UTC.",
    )


def _in_unit(kind: QuotaType) -> str:
    return "" if kind in _BYTES else f" in {kind.key.unit.value}"


def _name(traffic: Traffic) -> str:
    return bucket_text(traffic.user, traffic.client_id)


def _key_figures(result: TrafficReport) -> Iterator[KeyFigure]:
    clients, limited, advices = result.clients, result.limited, result.recommendation.advices
    loads = [load for each in advices for load in each.loads]
    brokers = len({load.broker_id for load in loads})
    note = f"on {brokers} broker{'s' if brokers > 1 else ''}"
    yield KeyFigure(label="Clients", value=f"{clients.clients:,}", note=note)
    written, read = (clients.amounts[kind] for kind in _BYTES)
    note = f"{format_bytes(written)} in, {format_bytes(read)} out"
    yield KeyFigure(label="Traffic", value=format_bytes(written + read), note=note)
    label = "Slowed down by limits"
    if clients.throttled:
        note = f"the longest in {clients.longest_share:.0%} of its active seconds"
        yield KeyFigure(label=label, value=_client_count(clients.throttled), note=note, mood=Mood.WATCH)
    else:
        yield KeyFigure(label=label, value="nobody", mood=Mood.GOOD)
    if limited.limited:
        note = f"limited clients that use {NEARLY_FULL:.0%} of theirs or more"
        near, mood = f"{limited.near} of {limited.limited}", Mood.WATCH if limited.near else Mood.GOOD
        yield KeyFigure(label="At or near a limit", value=near, note=note, mood=mood)
    else:
        note = "any client may take all it can"
        yield KeyFigure(label="Limits in force", value="none", note=note, mood=Mood.WATCH)
    yield from (limit_figure(each) for each in advices if each.quota_type in _BYTES)
    known = [load for load in loads if load.fits is not None]
    over = sorted({load.broker_id for load in known if not load.fits})
    if over:
        note = f"broker {', '.join(map(str, over))}"
        yield KeyFigure(label="Limits cut to what brokers have", value="yes", note=note, mood=Mood.BAD)
    elif known:
        note = f"within {known[0].capacity_share:.0%} of what they can take"
        yield KeyFigure(label="Brokers can carry it", value="yes", note=note, mood=Mood.GOOD)


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


def _client_count(count: int) -> str:
    return format_count(count, "client", separator=",")
