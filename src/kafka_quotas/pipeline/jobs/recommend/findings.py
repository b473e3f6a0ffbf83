"""What is shown of a recommendation: sentences, quotas by entity, the file for `apply`, and rows with their evidence.

Invariant: every sentence comes from figures of the replay or of the recording. Table, page and file take theirs here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from kafka_quotas.core.clock import format_instant
from kafka_quotas.core.described import document_of
from kafka_quotas.core.model.entity import Entity, shown_name
from kafka_quotas.core.model.value_format import format_count, format_duration_s, format_rate, format_typed_rate
from kafka_quotas.core.quota_files.writer import FileFormat, file_text
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, Demand, Override, Recommendation

_NAMED: Final = 5
"""Clients that a sentence names, before it counts the others."""
_WHOLE_FETCH: Final = "it is one whole fetch per second, for under less a consumer may get nothing at all"
_WHOLE_FROM: Final = 0.1
"""Smaller shares have a decimal: 1.5 % is not within a tolerance of 1 %."""


def outcome(found: Recommendation) -> tuple[str, ...]:
    """Return sentences on whom the recommended quotas throttle, and of whom that is unknown."""
    tolerated = f"{found.plan.time_share:.2%}"
    exceeding = sorted(
        ((advice, *each) for advice in found.advices for each in advice.exceeding),
        key=lambda each: (-each[2], each[1].quota_type.value, each[1].name),
    )
    count = sum(each.exceeding_clients for each in found.advices)
    unknown = [
        _who(advice, demand)
        for advice in found.advices
        for demand in (*advice.unknown, *(each.demand for each in advice.overrides if each.demand.is_unknown))
    ]
    unnamed = sum(each.unknown_default - len(each.unknown) for each in found.advices)
    sentences = []
    if count:
        names = [f"{_who(advice, demand)} for {share:.1%}" for advice, demand, share in exceeding]
        sentences.append(
            f"In the replay under these quotas, {_listed(names, count)} of the active time "
            f"{'is' if count == 1 else 'are'} throttled, more than the tolerated {tolerated}."
        )
    elif found.advices:
        whom = "nobody whose demand is known is" if unknown else "nobody is"
        sentences.append(
            f"In the replay under these quotas, {whom} throttled for more than {tolerated} of its active time."
        )
    if unknown:
        sentences.append(
            f"Whether they are enough is unknown for {_listed(unknown, len(unknown) + unnamed)}, throttled too long "
            "while recorded to show what they want."
        )
    return tuple(sentences)


def default_outcome(advice: Advice) -> str:
    """Return for how many of its clients a default was enough in the replay, and for whom it was not."""
    plan = advice.plan
    parts = [f"enough for {advice.fitting} of {format_count(advice.without_override, 'client')}"]
    if advice.unknown_default:
        names = [plan.shown_name(each) for each in advice.unknown]
        parts.append(f"unknown for {_listed(names, advice.unknown_default)}")
    if advice.exceeding_default:
        names = [
            f"{plan.shown_name(demand)} for {share:.1%}"
            for demand, share in advice.exceeding
            if advice.override(demand) is None
        ]
        parts.append(f"throttles {_listed(names, advice.exceeding_default)} of the active time")
    return "; ".join(parts)


def default_reason(advice: Advice) -> str:
    """Return the reason for a default in one line."""
    rate, reason = partial(format_rate, advice.quota_type.key.name), default_outcome(advice)
    if advice.default < advice.wanted_default:
        wanted = rate(advice.wanted_default)
        return f"{reason}; {wanted} was wanted, but a broker's capacity is shared, see the warnings"
    if advice.is_raised:
        return f"{reason}; {rate(advice.lowest_default)} would do for what was used; {_WHOLE_FETCH}"
    return reason


def override_reason(advice: Advice, override: Override) -> str:
    """Return the reason for a client's override in one line."""
    demand, rate = override.demand, partial(format_rate, advice.quota_type.key.name)
    if override.pays:
        unknown = "; its demand is unknown" if demand.is_unknown else ""
        wanted = rate(override.wanted)
        return f"{wanted} was wanted; a broker's capacity is shared, and this is the client's share{unknown}"
    if demand.implied.is_held:
        known = "is what it got, for its demand is unknown" if demand.is_unknown else "its throttle times imply"
        held = f"it was held back for {demand.implied.held_share:.0%} of its time while it was recorded"
        return f"at least {rate(demand.needed)}, which {known}; {held}"
    share = override.throttled_share_at_default or 0.0
    return (
        f"needs {rate(demand.needed)} at broker {demand.busiest.broker_id}, its peak is {rate(demand.peak)}; the "
        f"default would hold it back for {share:.{0 if share >= _WHOLE_FROM else 1}%} of its active time"
    )


def changes(found: Recommendation) -> Iterator[str]:
    """Yield what the recommended quotas do beside those in force: to how many clients, and to whom."""
    proposal = found.plan.in_force
    if proposal is None:
        return
    for advice in found.advices:
        kind, own, in_force = advice.quota_type.value, advice.changes, f"the quotas in force ({proposal.name})"
        if own is None:
            yield f"{kind}: {in_force} are of other entities and can't be compared"
            continue
        names = [
            f"{shown_name('/'.join(filter(None, (each.user, each.client_id)))) or '(no name)'} "
            f"from {'no limit' if each.quota_before is None else format_typed_rate(kind, each.quota_before)} "
            f"to {format_typed_rate(kind, each.quota_after)} "
            f"(throttled {each.held_before:.1%}, then {each.held_after:.1%})"
            for each in own.first
        ]
        tightened, loosened, unchanged = own.counts.values()
        text = f"{kind}: beside {in_force} {tightened:,} limits are tightened, {loosened:,} loosened, "
        text += f"{unchanged:,} unchanged"
        yield f"{text}: {_listed(names, tightened + loosened)}" if names else text


def choice_text(advice: Advice) -> str:
    """Return the defaults of other numbers of overrides, an empty text if all are the same."""
    kind = advice.quota_type.value
    parts = [
        f"{format_typed_rate(kind, default)} with {number}"
        for number, default in advice.choices
        if number != len(advice.overrides)
    ]
    is_choice = len({default for _, default in advice.choices}) > 1
    return f"the default would be {', '.join(parts)} overrides (--overrides)" if parts and is_choice else ""


def _who(advice: Advice, demand: Demand) -> str:
    return f"{advice.plan.shown_name(demand)} ({demand.quota_type.value})"


def _listed(names: list[str], count: int) -> str:
    """Return names in a row, with the number of those that are left out."""
    shown = names[:_NAMED]
    if count > len(shown):
        shown.append(f"{count - len(shown):,} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def warnings(found: Recommendation) -> Iterator[str]:
    """Yield one line for each thing to know before setting the quotas."""
    for advice in found.advices:
        yield from (f"{weight}: {advice.quota_type.value}: {text}" for weight, text in _remarks(advice))
    for advice in found.advices:
        yield from (f"warning: {advice.quota_type.value}: {text}" for text in _exceeding(advice))
    if found.is_short:
        yield (
            f"warning: not enough data: {found.events.seconds:,} s are recorded, {found.plan.min_recorded_s:,} s are "
            "wanted (--min-recorded); busier days and hours are unknown"
        )
    if not found.advices:
        yield "note: nothing that quotas limit was used"


def _remarks(advice: Advice) -> Iterator[tuple[str, str]]:
    """Yield what to know of one quota type, each a note or a warning."""
    rate, _ = _words(advice)
    yield from _capacities(advice)
    yield from (("note", text) for text in _partial(advice))
    yield from (("warning", text) for text in _held_while_recorded(advice))
    if advice.is_raised:
        lowest = rate(advice.lowest_default)
        yield "note", f"{lowest} would do as the default for what was used; {_WHOLE_FETCH}"
    if not all(each.demand.has_name for each in advice.overrides):
        yield "warning", "a client without a name needs more than the default, and can have no other quota"


def _words(advice: Advice) -> tuple[Callable[[float], str], Callable[[Demand], str]]:
    """Return how values and clients of a quota type are shown."""
    plan = advice.plan
    rate = partial(format_typed_rate, advice.quota_type.value)
    return rate, lambda demand: f"{plan.scope.value} {plan.shown_name(demand)}"


def _capacities(advice: Advice) -> Iterator[tuple[str, str]]:
    rate, who = _words(advice)
    for load in advice.loads:
        if load.at_ms is not None:
            taken = (
                f"at broker {load.broker_id} clients would take {rate(load.wanted)} in the busiest minute, "
                f"{format_instant(load.at_ms)}, and it has {rate(load.available)} for them "
                f"({load.capacity_share:.0%} of its capacity, replication taken off)"
            )
            if load.fits:
                yield "note", f"{taken}; the limits add up to {rate(load.limits)}"
            else:
                yield "warning", f"{taken}; who wants more than a fair share in such a minute is cut to it"
    if advice.default < min(advice.wanted_default, advice.plan.least(advice.quota_type)):
        yield "warning", "that leaves the default below one whole fetch per second, and a consumer may get nothing"
    if advice.default < advice.wanted_default:
        payers = f"{format_count(advice.without_override, 'client')} under the default"
        yield "warning", f"{payers} pay: {rate(advice.default)} instead of {rate(advice.wanted_default)}"
    for each in advice.overrides:
        if each.pays:
            yield "warning", f"{who(each.demand)} pays: {rate(each.limit)} instead of {rate(each.wanted)}"


def _partial(advice: Advice) -> Iterator[str]:
    rate, who = _words(advice)
    if advice.partial > len(advice.most_partial):
        yield f"{advice.partial} clients had an incident or have declined; the largest {len(advice.most_partial)}:"
    for demand in advice.most_partial:
        found = demand.left_out
        assert found is not None
        if found.incident_ms is not None and found.incident_rate is not None:
            yield (
                f"{who(demand)} reached {rate(found.incident_rate)} from {format_instant(found.incident_ms)} on for "
                f"{format_duration_s(found.incident_s or 0)}, far above its {rate(found.rate)} on other days: an "
                "incident, left out"
            )
        if found.declined_from is not None:
            yield (
                f"{who(demand)} has declined from {rate(found.declined_from)} to {rate(found.rate)}: recommended by "
                "the second half of the days"
            )


def _exceeding(advice: Advice) -> Iterator[str]:
    _, who = _words(advice)
    if advice.exceeding_clients > len(advice.exceeding):
        yield (
            f"{advice.exceeding_clients:,} clients would be held back for longer than tolerated under these quotas; "
            f"the {len(advice.exceeding)} that wait longest:"
        )
    for demand, share in advice.exceeding:
        way_out = "a larger --headroom or more --overrides avoid it"
        if advice.pays(demand):
            way_out = "a broker's capacity is short, and it pays for that"
        yield f"{who(demand)} would be held back for {share:.1%} of its active time under these quotas; {way_out}"


def _held_while_recorded(advice: Advice) -> Iterator[str]:
    rate, who = _words(advice)
    if advice.held > len(advice.most_held):
        yield (
            f"{advice.held} clients were held back while they were recorded, and their demands are lower bounds; the "
            f"largest {len(advice.most_held)}:"
        )
    for demand in advice.most_held:
        share, known = f"{demand.implied.held_share:.0%} of its time", rate(demand.implied.rate)
        if demand.is_unknown:
            yield (
                f"the demand of {who(demand)} is unknown: it was held back for {share}, and {known} is what it got; "
                "raise its limit, record again, and ask again"
            )
        else:
            yield (
                f"{who(demand)} was held back for {share} while it was recorded; its throttle times imply a demand of "
                f"at least {known}"
            )


def recommended_limits(advices: Sequence[Advice]) -> dict[Entity, dict[str, float]]:
    """Return the quotas to set by entity, sorted, without clients that have no name.

    Kafka sets no quota on an empty name.
    """
    limits: dict[Entity, dict[str, float]] = defaultdict(dict)
    for advice, entity, own in _entities(advices):
        limits[entity][advice.quota_type.key.name] = advice.default if own is None else own.limit
    return {entity: limits[entity] for entity in sorted(limits, key=lambda each: each.sort_key)}


def _entities(advices: Sequence[Advice]) -> Iterator[tuple[Advice, Entity, Override | None]]:
    """Yield the entities to set quotas on: the default one, and each client with a name and its override."""
    for advice in advices:
        scope = advice.plan.scope
        yield advice, scope.default_entity, None
        for each in advice.overrides:
            if each.demand.has_name:
                yield advice, scope.entity(each.demand.user, each.demand.client_id), each


def recommended_file(found: Recommendation) -> Iterator[str]:
    """Yield the YAML file for `apply` piece by piece, every entry below a comment with its reason."""
    yield from (f"# {line}\n" for line in _heading(found))
    reasons: dict[Entity, list[str]] = defaultdict(list)
    for advice, entity, own in _entities(found.advices):
        reason = default_reason(advice) if own is None else override_reason(advice, own)
        reasons[entity].append(f"{advice.quota_type.key.name}: {reason}")
    limits = recommended_limits(found.advices)
    pieces = iter(file_text(limits.items(), FileFormat.YAML))
    yield next(pieces)
    for entity in limits:
        yield from (f"\n  # {line}" for line in reasons[entity])
        yield next(pieces)
    yield from pieces


def _heading(found: Recommendation) -> Iterator[str]:
    events = found.events
    yield f"Recommended from {events.count:,} events of {events.seconds:,} seconds, cluster {found.cluster}."
    yield from outcome(found)
    for advice in found.advices:
        name = advice.quota_type.key.name
        yield f"{name}: {len(advice.overrides)} of {format_count(advice.clients, 'client')} get a limit of their own."
        if choices := choice_text(advice):
            yield f"{name}: {choices}."
    yield from changes(found)
    yield "Every limit holds at each broker for itself."
    if found.plan.horizon_days:
        yield f"Growth until {found.plan.horizon_days:g} days after the recording is included, as far as it showed."
    yield from warnings(found)
    yield "First in shadow: kafka-quotas daemon run --mode shadow with these quotas; then kafka-quotas apply."


def recommendation_rows(found: Recommendation) -> list[dict[str, Any]]:
    """Return the rows of the table `recommendation`, whose evidence is JSON there.

    Clients without a name are in it as overrides that can't be set.
    """
    rows: list[dict[str, Any]] = []
    for advice in found.advices:
        common = {"cluster": found.cluster, "quota_type": advice.quota_type.value}
        of_default = {"kind": "default", "user": None, "client_id": None, "value": advice.default}
        shares = {
            "throttled_share": advice.largest_tolerated_share,
            "headroom": 1.0 if advice.peak is None else advice.default / advice.peak,
        }
        rows.append(common | of_default | {"evidence": document_of(advice)} | shares)
        for each in advice.overrides:
            names = {"user": each.demand.user, "client_id": each.demand.client_id}
            own = {"kind": "override", **names, "value": each.limit, "evidence": document_of(each)}
            shares = {"throttled_share": each.throttled_share, "headroom": each.limit / each.demand.peak}
            rows.append(common | own | shares)
    return rows
