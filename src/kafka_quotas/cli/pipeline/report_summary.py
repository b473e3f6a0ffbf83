"""The top of the report: the figures that a reader needs first, in plain words."""

from datetime import UTC, datetime

from kafka_quotas.cli.charts.html_page import KeyFigure, Mood
from kafka_quotas.core.model.value_format import format_bytes, format_count, format_duration_s, format_typed_rate
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.recommend.advice import Advice
from kafka_quotas.pipeline.report.job import Report
from kafka_quotas.pipeline.report.traffic import NEARLY_FULL


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
    """Return whether the brokers can carry the load, nothing where their capacity is unknown."""
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
