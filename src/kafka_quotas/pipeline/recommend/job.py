"""The recommendation from recorded events: usage, two sweeps of limits, advice, and its replay.

Every step is a job of its own, `usage` or `replay`, over the same open events. What was tried stays where the jobs ran:
of each client only the trials that decide come here, and all trials of the few that are shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.runner import OpenEvents, RecordedEvents
from kafka_quotas.pipeline.recommend.advice import NEEDIEST_SHOWN, Advice, RecommendPlan, Supply, advise
from kafka_quotas.pipeline.recommend.demand import Demand
from kafka_quotas.pipeline.recommend.observed import (
    demands_of,
    replication_of,
    throttled_shares,
    with_all_trials,
    with_deciding_trials,
)
from kafka_quotas.pipeline.recommend.quota_file import recommended_limits, recommended_text
from kafka_quotas.pipeline.recommend.trials import (
    RECOMMENDED,
    defaults,
    finer_limits,
    first_limits,
    sweep,
    unlimited_clients,
)
from kafka_quotas.pipeline.replay.job import replay
from kafka_quotas.pipeline.replay.outcomes import ReplayOutcomes
from kafka_quotas.pipeline.replay.task import Model, ReplayPlan
from kafka_quotas.pipeline.usage.job import usage
from kafka_quotas.pipeline.usage.tables import UsageTables
from kafka_quotas.pipeline.usage.task import UsagePlan

Demands = tuple[Demand, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The quotas to set, with the results of replaying all of them."""

    plan: RecommendPlan
    cluster: str
    observed: UsageTables
    """Recorded usage, with a bucket for every client."""
    advices: tuple[Advice, ...]
    """Advice for every quota type that was used."""
    exceeding: tuple[Demand, ...]
    """Clients that the advised quotas together would throttle for longer than tolerated, though they pay nothing."""

    @property
    def lower_bounds(self) -> tuple[Demand, ...]:
        """The clients that were held back while they were recorded."""
        return tuple(each for advice in self.advices for each in advice.demands if each.is_lower_bound)


def recommend(events: OpenEvents, plan: RecommendPlan, *, step: Callable[[str], None]) -> Recommendation:
    """Recommend the quotas of one cluster.

    `step` is called with the name of each step as it begins.

    Raises:
        UsageError: The cluster has no events, or none was named and there are several.
    """
    seconds = events.recorded.seconds
    step("usage of each client")
    observed = usage(
        events,
        UsagePlan(
            quotas=unlimited_clients(plan.scope),
            seconds=seconds,
            window=plan.window,
            horizon_days=plan.horizon_days,
        ),
    )
    cluster = _cluster(plan.cluster, observed.clusters())
    demands = demands_of(observed, cluster=cluster, seconds=seconds)
    supply = _supply(plan, demands, replication_of(observed, cluster=cluster, seconds=seconds))
    step("a sweep over all limits")
    limits = first_limits(demands)
    sweeps = [_tried(events, plan, limits)]
    share = plan.tolerance.time_share
    demands = with_deciding_trials(demands, sweeps[0], cluster=cluster, tolerated_share=share)
    step("a sweep around the default")
    lowest = {each.quota_type: each.lowest_default for each in _advices(demands, plan, supply)}
    sweeps.append(_tried(events, plan, finer_limits(limits, lowest)))
    demands = with_deciding_trials(demands, sweeps[1], cluster=cluster, tolerated_share=share)
    for each in sweeps:
        demands = with_all_trials(demands, each, cluster=cluster, chosen=_shown(demands, plan))
    step("a replay of the recommendation")
    unverified = Recommendation(
        plan=plan, cluster=cluster, observed=observed, advices=_advices(demands, plan, supply), exceeding=()
    )
    return _verified(events, unverified)


def recommended_file(found: Recommendation, events: RecordedEvents) -> str:
    """Return the text of the file for `apply` with the quotas recommended from these events."""
    plan, tolerance = found.plan, found.plan.tolerance
    paying = ", but who pays for a short capacity" if any(each.is_cut for each in found.advices) else ""
    heading = [
        f"Recommended from {events.count:,} events of {events.seconds:,} seconds, cluster {found.cluster}.",
        f"At most {tolerance.clients_share:.2%} of the clients need more than the default.",
        f"Nobody is held back for more than {tolerance.time_share:.2%} of its active time{paying}.",
        "Every limit holds at each broker for itself.",
        *([f"They suffice for {plan.horizon_days:g} days of growth."] if plan.horizon_days else []),
        *(["A limit that says 'at least' is of a client whose demand was held back."] if found.lower_bounds else []),
        "First in shadow: kafka-quotas daemon run --mode shadow with these quotas; then kafka-quotas apply.",
    ]
    return "".join(recommended_text(found.advices, plan.scope, heading=heading))


def _cluster(named: str | None, known: Sequence[str]) -> str:
    """Return the cluster to recommend for, and refuse an unknown or ambiguous one."""
    if not known:
        raise UsageError("there are no events", hint="kafka-quotas pipeline ingest reads them")
    if named is None and len(known) > 1:
        raise UsageError("the events are of several clusters", hint=f"--cluster, one of {', '.join(known)}")
    if named is not None and named not in known:
        raise UsageError(f"there are no events of cluster {named}", hint=f"there are events of {', '.join(known)}")
    return named or known[0]


def _tried(events: OpenEvents, plan: RecommendPlan, limits: Mapping[QuotaType, Sequence[float]]) -> ReplayOutcomes:
    return replay(events, _replay_plan(plan, sweep(plan.scope, limits)))


def _shown(demands: Demands, plan: RecommendPlan) -> list[Demand]:
    """Return the clients that are shown with all that was tried: the neediest, and the one to explain."""
    share = plan.tolerance.time_share
    ranked = sorted(demands, key=lambda each: (each.needed(share), each.user or "", each.client_id or ""))
    found = [each for each in demands if plan.name_of(each) == plan.explained]
    for kind in RECOMMENDED:
        found += [each for each in ranked if each.quota_type is kind][-NEEDIEST_SHOWN:]
    return found


def _replay_plan(plan: RecommendPlan, proposals: tuple[Proposal, ...]) -> ReplayPlan:
    return ReplayPlan(
        proposals=proposals, models=(Model.CLOSED,), window=plan.window, controller_window=plan.controller_window
    )


def _supply(plan: RecommendPlan, demands: Demands, replication: Mapping[int, tuple[float, float]]) -> Supply:
    """Return what brokers have, and refuse priorities of clients without events."""
    known = {plan.name_of(each) for each in demands}
    if unknown := sorted(set(plan.priorities) - known):
        raise UsageError(
            f"no events of {plan.scope.value} {unknown[0]}, who was given a priority",
            hint="kafka-quotas pipeline usage lists the clients",
        )
    return Supply(
        capacities=plan.capacities,
        replication=replication,
        priority=lambda demand: plan.priorities.get(plan.name_of(demand), 1.0),
    )


def _advices(demands: Demands, plan: RecommendPlan, supply: Supply) -> tuple[Advice, ...]:
    found = (advise(kind, demands, tolerance=plan.tolerance, supply=supply) for kind in RECOMMENDED)
    return tuple(each for each in found if each is not None)


def _verified(events: OpenEvents, found: Recommendation) -> Recommendation:
    """Replay the whole recommendation, and its defaults alone, and put the resulting shares into it."""
    if not found.advices:
        return found
    plan = found.plan
    proposal = Proposal(name="recommended", entries=tuple(recommended_limits(found.advices, plan.scope).items()))
    alone = defaults("defaults", plan.scope, {each.quota_type: each.default for each in found.advices})
    replayed = replay(events, _replay_plan(plan, (proposal, alone)))
    demands = [demand for advice in found.advices for demand in advice.demands]
    by_proposal = throttled_shares(demands, replayed, cluster=found.cluster)
    shares, at_default = by_proposal[proposal.name], by_proposal[alone.name]
    paying = {id(each) for advice in found.advices for each in advice.demands if advice.pays(each)}
    exceeding = tuple(
        each for each in demands if shares.get(id(each), 0.0) > plan.tolerance.time_share and id(each) not in paying
    )
    return replace(
        found, advices=tuple(_with_shares(each, shares, at_default) for each in found.advices), exceeding=exceeding
    )


def _with_shares(advice: Advice, shares: Mapping[int, float], at_default: Mapping[int, float]) -> Advice:
    """Return the advice with the shares of active time that it throttles, and that its default alone does."""
    overrides = tuple(
        replace(
            each,
            throttled_share=shares.get(id(each.demand), 0.0),
            throttled_share_at_default=at_default.get(id(each.demand), 0.0),
        )
        for each in advice.overrides
    )
    largest = max((shares.get(id(each), 0.0) for each in advice.without_override), default=0.0)
    return replace(advice, overrides=overrides, largest_tolerated_share=largest)
