"""The decisions of a recommendation over all clients, from figures of each part of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.engine.client_parts import ClientParts
from kafka_quotas.pipeline.recommend.advice import Advice, Override, RecommendPlan, Tolerance
from kafka_quotas.pipeline.recommend.demand import ClientName, Demand, Trial
from kafka_quotas.pipeline.recommend.demand_table import Limits, demands_of
from kafka_quotas.pipeline.recommend.limits import KindClients, Supply, advise, default_of
from kafka_quotas.pipeline.recommend.part_figures import (
    CHOICES,
    EXCEEDING_SHOWN,
    RECOMMENDED,
    Bracket,
    KindFigures,
    OutcomeFigures,
    largest_needs,
    narrowed,
    need_samples,
    outcome_figures,
    part_figures,
    trials_of,
    used_figures,
)


def used_by_clients(clients: ClientParts, plan: RecommendPlan) -> dict[QuotaType, tuple[float, float]]:
    """Return the smallest median rate and the largest peak of each recommended quota type that was used.

    Raises:
        UsageError: A client that was given a priority has no events.
    """
    found = clients.of_each(partial(used_figures, scope=plan.scope, names=frozenset(plan.priorities)))
    known = frozenset().union(*(each.names for each in found))
    if unknown := sorted(set(plan.priorities) - known):
        raise UsageError(
            f"no events of {plan.scope.value} {unknown[0]}, who was given a priority",
            hint="kafka-quotas pipeline usage lists the clients",
        )
    ranges = {kind: [each.ranges[kind] for each in found if kind in each.ranges] for kind in RECOMMENDED}
    return {kind: (min(low for low, _ in own), max(high for _, high in own)) for kind, own in ranges.items() if own}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """The need that parts the many clients of a quota type, who get the default, from the few."""

    lowest: float
    """The largest need of the many."""
    needs: Mapping[int, float]
    """The largest need but those of some numbers of clients."""


def tiers(clients: ClientParts, kinds: Sequence[QuotaType], overrides: int | None) -> dict[QuotaType, Tiers]:
    """Part the many clients of each quota type from the few, `overrides` of them or those far above most.

    These need more than a fence above the upper quartile of the needs: twice its distance from the median, on a
    scale of ratios, and twice the quartile at least.
    """
    numbers: list[int] = sorted({*CHOICES, *([] if overrides is None else [overrides])})
    needs = _ranked_needs(clients, [(kind, label) for kind in kinds for label in (*_QUARTILES, *numbers)])
    if overrides is None:
        ends = {kind: [needs[kind, each] for each in _QUARTILES] for kind in kinds}
        fences = {kind: high * max((high / max(median, 1e-9)) ** 2, 2.0) for kind, (median, high) in ends.items()}
        within = clients.of_each(partial(largest_needs, fences=fences))
        lowest = {kind: max(each[kind] for each in within) for kind in kinds}
    else:
        least = {kind: min(need for (own, _), need in needs.items() if own is kind) for kind in kinds}  # never nobody
        lowest = {kind: needs.get((kind, overrides), least[kind]) for kind in kinds}
    return {
        kind: Tiers(lowest=lowest[kind], needs={each: needs[kind, each] for each in CHOICES if (kind, each) in needs})
        for kind in kinds
    }


_QUARTILES: Final = (0.5, 0.75)
_Label = tuple[QuotaType, float]


def _ranked_needs(clients: ClientParts, labels: Sequence[_Label]) -> dict[_Label, float]:
    """Return the need at a share of the clients below 1, or the largest but a number of them."""
    brackets: dict[_Label, Bracket] = dict.fromkeys(labels, Bracket())
    ranks: dict[_Label, int] = {}
    found = {}
    while brackets:
        parts = clients.of_each(partial(need_samples, brackets=brackets))
        for label, bracket in list(brackets.items()):
            samples, (_, place) = [each[label] for each in parts], label
            count = sum(each.up_to_high for each in samples)
            rank = ranks.setdefault(label, math.ceil(place * count) if 0 < place < 1 else count - int(place))
            if rank < 1:
                del brackets[label]
                continue
            brackets[label], is_found = narrowed(bracket, samples, rank)
            if is_found:
                found[label] = brackets.pop(label).high
    return found


def advised(
    clients: ClientParts, tried: Sequence[Limits], plan: RecommendPlan, supply: Supply
) -> tuple[int, dict[QuotaType, KindClients], tuple[Advice, ...]]:
    """Return the number of clients, those of each quota type, and its advice whatever the capacity.

    `tried` are the limits of each sweep.
    """
    parted = tiers(clients, list(tried[0]), plan.tolerance.overrides)
    limits = {kind: sorted({limit for each in tried for limit in each[kind]}) for kind in parted}
    names = {*plan.priorities, *([] if plan.explained is None else [plan.explained])}
    wanted = {kind: default_of(kind, each.lowest, plan.tolerance) for kind, each in parted.items()}
    found = clients.of_each(
        partial(part_figures, defaults=wanted, limits=limits, scope=plan.scope, names=frozenset(names))
    )
    own, advices = {}, []
    for kind, each in parted.items():
        figures = [part.kinds[kind] for part in found]
        own[kind] = _kind_clients(figures)
        advice = advise(kind, own[kind], lowest=each.lowest, tolerance=plan.tolerance, supply=supply)
        explained = next((named for named in own[kind].named if plan.name_of(named) == plan.explained), None)
        counts = np.sum([part.curve for part in figures], axis=0).tolist()
        choices = ((number, default_of(kind, need, plan.tolerance)) for number, need in each.needs.items())
        advices.append(
            replace(
                advice,
                explained=explained,
                curve=tuple(zip(limits[kind], counts, strict=True)),
                choices=tuple(choices),
            )
        )
    return sum(each.clients for each in found), own, tuple(advices)


def _kind_clients(figures: Sequence[KindFigures]) -> KindClients:
    brokers = {broker_id for each in figures for broker_id in each.at_broker}
    return KindClients(
        clients=sum(each.clients for each in figures),
        held=sum(each.held for each in figures),
        partial=sum(each.partial for each in figures),
        at_broker={each: sum(part.at_broker.get(each, 0) for part in figures) for each in sorted(brokers)},
        named=[demand for each in figures for demand in demands_of(each.named)],
    )


def with_all_trials(advices: Sequence[Advice], sweeps: Sequence[tuple[Limits, ClientParts]]) -> tuple[Advice, ...]:
    """Add all that was tried to the clients that are shown with it."""
    shown = [each for advice in advices for each in (*advice.neediest, advice.explained) if each is not None]
    names = frozenset(each.name for each in shown)
    shares: dict[tuple[str, ClientName, int], dict[float, int]] = {}
    for limits, found in sweeps:
        for row in (row for each in found.of_each(partial(trials_of, names=names)) for row in each):
            steps = limits.get(QuotaType(row["quota_type"]), ())
            own = shares.setdefault((row["quota_type"], (row["user"], row["client_id"]), row["broker_id"]), {})
            own |= dict(zip(steps, row["throttle_ms"], strict=False))

    def with_trials(demand: Demand) -> Demand:
        brokers = []
        for each in demand.brokers:
            tried = shares.get((demand.quota_type.value, demand.name, each.broker_id), {})
            trials = (
                Trial(limit=limit, throttled_share=min(tried[limit] / 1000 / each.active_s, 1.0))
                for limit in sorted(tried)
            )
            brokers.append(replace(each, trials=tuple(trials)))
        return replace(demand, brokers=tuple(brokers))

    return tuple(
        replace(
            each,
            neediest=tuple(map(with_trials, each.neediest)),
            explained=None if each.explained is None else with_trials(each.explained),
        )
        for each in advices
    )


def outcomes(clients: ClientParts, advices: Sequence[Advice], tolerance: Tolerance) -> tuple[Advice, ...]:
    """Add what a replay of the advised quotas, and of their defaults alone, does to each client."""
    own = {each.quota_type: each.own for each in advices}
    found = clients.of_each(partial(outcome_figures, own=own, tolerated_share=tolerance.time_share))
    return tuple(_with_outcomes(each, [part[each.quota_type] for part in found], tolerance) for each in advices)


def _with_outcomes(advice: Advice, found: Sequence[OutcomeFigures], tolerance: Tolerance) -> Advice:
    shares: Mapping[ClientName, tuple[float, float]] = {name: own for each in found for name, own in each.own.items()}
    overrides = tuple(_replayed(each, *shares[each.demand.name]) for each in advice.overrides)
    exceeding = [
        (each.demand, each.throttled_share)
        for each in overrides
        if each.demand.left_out is None and each.throttled_share > tolerance.time_share
    ]
    under_default = sum(each.exceeding for each in found)
    count = len(exceeding) + under_default
    for each in found:
        exceeding += zip(demands_of(each.named), each.shares, strict=True)
    longest = sorted(exceeding, key=lambda each: (-each[1], -each[0].needed, each[0].name))
    return replace(
        advice,
        overrides=overrides,
        largest_tolerated_share=max((each.largest_share for each in found), default=0.0),
        peak=max((each.peak for each in found if each.peak is not None), default=None),
        exceeding=tuple(longest[:EXCEEDING_SHOWN]),
        exceeding_clients=count,
        exceeding_default=under_default,
        unknown_default=sum(each.unknown for each in found),
    )


def _replayed(override: Override, throttled_share: float, throttled_share_at_default: float) -> Override:
    return replace(override, throttled_share=throttled_share, throttled_share_at_default=throttled_share_at_default)
