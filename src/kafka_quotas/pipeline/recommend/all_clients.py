"""The decisions of a recommendation over all clients, from figures of each part of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.engine.client_parts import ClientParts
from kafka_quotas.pipeline.recommend.advice import Advice, Override, RecommendPlan, Tolerance
from kafka_quotas.pipeline.recommend.demand import ClientName, Demand, Trial
from kafka_quotas.pipeline.recommend.demand_table import Limits, demands_of
from kafka_quotas.pipeline.recommend.limits import KindClients, Supply, advise, default_of
from kafka_quotas.pipeline.recommend.part_figures import (
    EXCEEDING_SHOWN,
    RECOMMENDED,
    Bracket,
    KindFigures,
    OutcomeFigures,
    OwnLimits,
    narrowed,
    need_samples,
    outcome_figures,
    part_figures,
    raised_clients,
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


def lowest_defaults(clients: ClientParts, kinds: Sequence[QuotaType], tolerance: Tolerance) -> dict[QuotaType, float]:
    """Return for each quota type the limit that all but the tolerated clients need no more than."""
    brackets = dict.fromkeys(kinds, Bracket())
    ranks: dict[QuotaType, int] = {}
    lowest = {}
    while brackets:
        found = clients.of_each(partial(need_samples, brackets=brackets))
        for kind, bracket in list(brackets.items()):
            samples = [each[kind] for each in found]
            count = sum(each.up_to_high for each in samples)
            rank = ranks.setdefault(kind, count - tolerance.outliers(count))
            brackets[kind], is_found = narrowed(bracket, samples, rank)
            if is_found:
                lowest[kind] = brackets.pop(kind).high
    return {kind: lowest[kind] for kind in kinds}


def advised(
    clients: ClientParts, tried: Sequence[Limits], plan: RecommendPlan, supply: Supply
) -> tuple[int, tuple[Advice, ...]]:
    """Return how many clients there are, and the advice for each quota type.

    `tried` are the limits of each sweep.
    """
    lowest = lowest_defaults(clients, list(tried[0]), plan.tolerance)
    limits = {kind: sorted({limit for each in tried for limit in each[kind]}) for kind in lowest}
    names = {*plan.priorities, *([] if plan.explained is None else [plan.explained])}
    wanted = {kind: default_of(kind, each, plan.tolerance) for kind, each in lowest.items()}
    found = clients.of_each(
        partial(part_figures, defaults=wanted, limits=limits, scope=plan.scope, names=frozenset(names))
    )
    advices = []
    for kind in lowest:
        figures = [each.kinds[kind] for each in found]
        own = _kind_clients(figures)
        advice = advise(
            kind,
            own,
            lowest=lowest[kind],
            tolerance=plan.tolerance,
            supply=supply,
            raised=partial(_raised, clients, kind),
        )
        explained = next((each for each in own.named if plan.name_of(each) == plan.explained), None)
        counts = np.sum([each.curve for each in figures], axis=0).tolist()
        advices.append(replace(advice, explained=explained, curve=tuple(zip(limits[kind], counts, strict=True))))
    return sum(each.clients for each in found), tuple(advices)


def _kind_clients(figures: Sequence[KindFigures]) -> KindClients:
    brokers = {broker_id for each in figures for broker_id in each.at_broker}
    return KindClients(
        clients=sum(each.clients for each in figures),
        held=sum(each.held for each in figures),
        at_broker={each: sum(part.at_broker.get(each, 0) for part in figures) for each in sorted(brokers)},
        named=[demand for each in figures for demand in demands_of(each.named)],
    )


def _raised(clients: ClientParts, kind: QuotaType, own: OwnLimits) -> list[Demand]:
    found = clients.of_each(partial(raised_clients, own={kind: own}))
    return [demand for each in found for demand in demands_of(each[kind])]


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
        (each.demand, each.throttled_share) for each in overrides if each.throttled_share > tolerance.time_share
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
