"""The findings of a recommendation: whom its quotas throttle, whose demand is unknown, warnings.

Invariant: every sentence comes from figures of the replay or of the recording. Table, page and file take theirs here.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from kafka_quotas.core.clock import format_instant
from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.model.value_format import format_count, format_duration_s, format_rate, format_typed_rate
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, Demand, Override, RecommendPlan, is_nameable

if TYPE_CHECKING:  # help texts of the commands need this module, and no Arrow
    from kafka_quotas.pipeline.jobs.recommend.job import Recommendation

_NAMED: Final = 5
"""Clients that a sentence names, before it counts the others."""
_WHOLE_FETCH: Final = "it is one whole fetch per second, for under less a consumer may get nothing at all"
_WHOLE_FROM: Final = 0.1
"""Smaller shares have a decimal: 1.5 % is not within a tolerance of 1 %."""


def outcome(found: "Recommendation") -> tuple[str, ...]:
    """Return sentences on whom the recommended quotas throttle, and of whom that is unknown."""
    plan, tolerated = found.plan, f"{found.plan.tolerance.time_share:.2%}"
    exceeding = sorted(
        (each for advice in found.advices for each in advice.exceeding),
        key=lambda each: (-each[1], each[0].quota_type.value, each[0].name),
    )
    count = sum(each.exceeding_clients for each in found.advices)
    unknown = [_who(plan, demand) for advice in found.advices for demand in _unknown(advice)]
    unnamed = sum(each.unknown_default - len(each.unknown) for each in found.advices)
    sentences = []
    if count:
        names = [f"{_who(plan, demand)} for {share:.1%}" for demand, share in exceeding]
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


def default_outcome(advice: Advice, plan: RecommendPlan) -> str:
    """Return for how many of its clients a default was enough in the replay, and for whom it was not."""
    total = advice.without_override
    parts = [f"enough for {advice.fitting} of {format_count(total, 'client')}"]
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


def default_reason(advice: Advice, plan: RecommendPlan) -> str:
    """Return the reason for a default in one line."""
    rate, reason = partial(format_rate, advice.quota_type.key.name), default_outcome(advice, plan)
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
    if demand.is_lower_bound:
        known = "is what it got, for its demand is unknown" if demand.is_unknown else "its throttle times imply"
        held = f"it was held back for {demand.implied.held_share:.0%} of its time while it was recorded"
        return f"at least {rate(demand.needed)}, which {known}; {held}"
    share = override.throttled_share_at_default or 0.0
    return (
        f"needs {rate(demand.needed)} at broker {demand.busiest.broker_id}, its peak is {rate(demand.peak)}; the "
        f"default would hold it back for {share:.{0 if share >= _WHOLE_FROM else 1}%} of its active time"
    )


def changes(found: "Recommendation") -> Iterator[str]:
    """Yield what the recommended quotas do beside those in force: to how many clients, and to whom."""
    plan = found.plan
    if plan.in_force is None:
        return
    for advice in found.advices:
        kind, own = advice.quota_type.value, advice.changes
        if own is None:
            yield f"{kind}: the quotas in force ({plan.in_force.name}) are of other entities and can't be compared"
            continue
        names = [
            f"{shown_name('/'.join(filter(None, (each.user, each.client_id)))) or '(no name)'} "
            f"from {'no limit' if each.quota_before is None else format_typed_rate(kind, each.quota_before)} "
            f"to {format_typed_rate(kind, each.quota_after)} "
            f"(throttled {each.held_before:.1%}, then {each.held_after:.1%})"
            for each in own.first
        ]
        count = own.tightened + own.loosened
        text = f"{kind}: beside the quotas in force ({plan.in_force.name}) {own.tightened:,} limits are tightened, "
        text += f"{own.loosened:,} loosened, {own.unchanged:,} unchanged"
        yield f"{text}: {_listed(names, count)}" if names else text


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


def _unknown(advice: Advice) -> Iterator[Demand]:
    """Yield the clients of unknown demand, under the default or with a limit of their own."""
    yield from advice.unknown
    yield from (each.demand for each in advice.overrides if each.demand.is_unknown)


def _who(plan: RecommendPlan, demand: Demand) -> str:
    return f"{plan.shown_name(demand)} ({demand.quota_type.value})"


def _listed(names: list[str], count: int) -> str:
    """Return names in a row, with the number of those that are left out."""
    shown = names[:_NAMED]
    if count > len(shown):
        shown.append(f"{count - len(shown):,} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def warnings(found: "Recommendation") -> Iterator[str]:
    """Yield one line for each thing to know before setting the quotas."""
    plan = found.plan
    for advice in found.advices:
        kind = advice.quota_type.value
        yield from _capacities(advice, plan)
        yield from _partial(advice, plan)
        yield from _held_while_recorded(advice, plan)
        if advice.is_raised:
            yield (
                f"note: {kind}: {format_typed_rate(kind, advice.lowest_default)} would do as the default for what was "
                f"used; {_WHOLE_FETCH}"
            )
        if not all(is_nameable(each, plan.scope) for each in advice.overrides):
            yield f"warning: {kind}: a client without a name needs more than the default, and can have no other quota"
    for advice in found.advices:
        yield from _exceeding(advice, plan)
    if found.is_short:
        yield (
            f"warning: not enough data: {found.events.seconds:,} s are recorded, {plan.min_recorded_s:,} s are "
            "wanted (--min-recorded); busier days and hours are unknown"
        )
    if not found.advices:
        yield "note: nothing that quotas limit was used"


def file_heading(found: "Recommendation") -> Iterable[str]:
    """Yield the lines above the quotas in the file for `apply`."""
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


def _words(advice: Advice, plan: RecommendPlan) -> tuple[str, Callable[[float], str], Callable[[Demand], str]]:
    """Return the name of a quota type, and how its values and its clients are shown."""
    kind = advice.quota_type.value
    return kind, partial(format_typed_rate, kind), lambda demand: f"{plan.scope.value} {plan.shown_name(demand)}"


def _capacities(advice: Advice, plan: RecommendPlan) -> Iterator[str]:
    kind, rate, who = _words(advice, plan)
    for load in advice.loads:
        if load.at_ms is not None:
            taken = (
                f"{kind}: at broker {load.broker_id} clients would take {rate(load.wanted)} in the busiest minute, "
                f"{format_instant(load.at_ms)}, and it has {rate(load.available)} for them "
                f"({load.capacity_share:.0%} of its capacity, replication taken off)"
            )
            if load.fits:
                yield f"note: {taken}; the limits add up to {rate(load.limits)}"
            else:
                yield f"warning: {taken}; who wants more than a fair share in such a minute is cut to it"
    if advice.default < min(advice.wanted_default, advice.tolerance.least(advice.quota_type)):
        yield (
            f"warning: {kind}: that leaves the default below one whole fetch per second, and a consumer may get nothing"
        )
    if advice.default < advice.wanted_default:
        payers = f"{format_count(advice.without_override, 'client')} under the default"
        yield f"warning: {kind}: {payers} pay: {rate(advice.default)} instead of {rate(advice.wanted_default)}"
    for each in advice.overrides:
        if each.pays:
            yield f"warning: {kind}: {who(each.demand)} pays: {rate(each.limit)} instead of {rate(each.wanted)}"


def _partial(advice: Advice, plan: RecommendPlan) -> Iterator[str]:
    kind, rate, who = _words(advice, plan)
    if advice.partial > len(advice.most_partial):
        left = f"{advice.partial} clients had an incident or have declined; the largest {len(advice.most_partial)}:"
        yield f"note: {kind}: {left}"
    for demand in advice.most_partial:
        found = demand.left_out
        assert found is not None
        if found.incident_ms is not None and found.incident_rate is not None:
            yield (
                f"note: {kind}: {who(demand)} reached {rate(found.incident_rate)} from "
                f"{format_instant(found.incident_ms)} on for {format_duration_s(found.incident_s or 0)}, far above its "
                f"{rate(found.rate)} on other days: an incident, left out"
            )
        if found.declined_from is not None:
            yield (
                f"note: {kind}: {who(demand)} has declined from {rate(found.declined_from)} to {rate(found.rate)}: "
                "recommended by the second half of the days"
            )


def _exceeding(advice: Advice, plan: RecommendPlan) -> Iterator[str]:
    kind, _, who = _words(advice, plan)
    if advice.exceeding_clients > len(advice.exceeding):
        yield (
            f"warning: {kind}: {advice.exceeding_clients:,} clients would be held back for longer than tolerated under "
            f"these quotas; the {len(advice.exceeding)} that wait longest:"
        )
    for demand, share in advice.exceeding:
        way_out = "a larger --headroom or more --overrides avoid it"
        if advice.pays(demand):
            way_out = "a broker's capacity is short, and it pays for that"
        held = f"{who(demand)} would be held back for {share:.1%} of its active time under these quotas"
        yield f"warning: {kind}: {held}; {way_out}"


def _held_while_recorded(advice: Advice, plan: RecommendPlan) -> Iterator[str]:
    kind, rate, who = _words(advice, plan)
    if advice.held > len(advice.most_held):
        yield (
            f"warning: {kind}: {advice.held} clients were held back while they were recorded, and their demands are "
            f"lower bounds; the largest {len(advice.most_held)}:"
        )
    for demand in advice.most_held:
        implied = demand.implied
        if demand.is_unknown:
            yield (
                f"warning: {kind}: the demand of {who(demand)} is unknown: it was held back for "
                f"{implied.held_share:.0%} of its time, and {rate(implied.rate)} is what it got; raise its limit, "
                "record again, and ask again"
            )
        else:
            yield (
                f"warning: {kind}: {who(demand)} was held back for {implied.held_share:.0%} of its time while it was "
                f"recorded; its throttle times imply a demand of at least {rate(implied.rate)}"
            )
