"""The recommendation from recorded events: usage, two sweeps of limits, advice, and its replay.

Every step is a job of its own, `usage` or `replay`, over the same open events. What was used and tried stays where the
jobs ran: counts and bounds come here, and the clients that are named.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.client_parts import ClientParts
from kafka_quotas.pipeline.engine.runner import OpenEvents, RecordedEvents
from kafka_quotas.pipeline.recommend.advice import Advice, RecommendPlan
from kafka_quotas.pipeline.recommend.all_clients import (
    advised,
    lowest_defaults,
    outcomes,
    used_by_clients,
    with_all_trials,
)
from kafka_quotas.pipeline.recommend.demand_table import Limits, demand_rows, with_sweep
from kafka_quotas.pipeline.recommend.findings import file_heading
from kafka_quotas.pipeline.recommend.limits import Supply
from kafka_quotas.pipeline.recommend.part_figures import with_outcomes
from kafka_quotas.pipeline.recommend.quota_file import recommended_limits, recommended_text
from kafka_quotas.pipeline.recommend.replication import replication_of
from kafka_quotas.pipeline.recommend.trials import (
    defaults,
    finer_limits,
    first_limits,
    sweep,
    tried,
    unlimited_clients,
)
from kafka_quotas.pipeline.replay.task import Model, ReplayPlan
from kafka_quotas.pipeline.usage.job import UsageTables, usage
from kafka_quotas.pipeline.usage.task import UsagePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The quotas to set, with the results of replaying all of them."""

    plan: RecommendPlan
    events: RecordedEvents
    cluster: str
    observed: UsageTables
    """Recorded usage, with a bucket for every client."""
    advices: tuple[Advice, ...] = ()
    """Advice for every quota type that was used."""
    clients: int = 0
    """Clients that used any of these quota types."""

    @property
    def is_short(self) -> bool:
        """Whether less was recorded than quotas should be set from."""
        return self.events.seconds < self.plan.min_recorded_s


def recommend(events: OpenEvents, plan: RecommendPlan, *, step: Callable[[str], None]) -> Recommendation:
    """Recommend the quotas of one cluster.

    `step` is called with the name of each step as it begins.

    Raises:
        UsageError: The cluster has no events, or none was named and there are several.
    """
    with events.errors("summing up what was tried"):
        return _recommend(events, plan, step)


def _recommend(events: OpenEvents, plan: RecommendPlan, step: Callable[[str], None]) -> Recommendation:
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
    clients = observed.by_client(partial(demand_rows, cluster=cluster, seconds=seconds))
    used = used_by_clients(clients, plan)
    found = Recommendation(plan=plan, events=events.recorded, cluster=cluster, observed=observed)
    if not used:
        return found
    supply = _supply(plan, replication_of(observed, cluster=cluster, seconds=seconds))
    step("a sweep over all limits")
    limits = first_limits(used)
    sweeps = [(limits, _tried(events, plan, cluster, limits))]
    clients = _with_sweep(clients, sweeps[0], plan)
    step("a sweep around the default")
    finer = finer_limits(limits, lowest_defaults(clients, list(limits), plan.tolerance))
    sweeps.append((finer, _tried(events, plan, cluster, finer)))
    clients = _with_sweep(clients, sweeps[1], plan)
    count, advices = advised(clients, [each for each, _ in sweeps], plan, supply)
    step("a replay of the recommendation")
    advices = with_all_trials(advices, sweeps)
    return _verified(events, clients, replace(found, clients=count, advices=advices))


def recommended_file(found: Recommendation) -> str:
    """Return the text of the file for `apply` with the recommended quotas."""
    return "".join(recommended_text(found.advices, found.plan, heading=file_heading(found)))


def _cluster(named: str | None, known: Sequence[str]) -> str:
    """Return the cluster to recommend for, and refuse an unknown or ambiguous one."""
    if not known:
        raise UsageError("there are no events", hint="kafka-quotas pipeline ingest reads them")
    if named is None and len(known) > 1:
        raise UsageError("the events are of several clusters", hint=f"--cluster, one of {', '.join(known)}")
    if named is not None and named not in known:
        raise UsageError(f"there are no events of cluster {named}", hint=f"there are events of {', '.join(known)}")
    return named or known[0]


def _tried(events: OpenEvents, plan: RecommendPlan, cluster: str, limits: Limits) -> ClientParts:
    return tried(events, _replay_plan(plan, sweep(plan.scope, limits)), cluster=cluster)


def _with_sweep(clients: ClientParts, tried_limits: tuple[Limits, ClientParts], plan: RecommendPlan) -> ClientParts:
    limits, found = tried_limits
    return clients.joined(found, partial(with_sweep, limits=limits, tolerated_share=plan.tolerance.time_share))


def _replay_plan(plan: RecommendPlan, proposals: tuple[Proposal, ...]) -> ReplayPlan:
    return ReplayPlan(
        proposals=proposals, models=(Model.CLOSED,), window=plan.window, controller_window=plan.controller_window
    )


def _supply(plan: RecommendPlan, replication: Mapping[int, tuple[float, float]]) -> Supply:
    return Supply(
        capacities=plan.capacities,
        replication=replication,
        priority=lambda demand: plan.priorities.get(plan.name_of(demand), 1.0),
    )


def _verified(events: OpenEvents, clients: ClientParts, found: Recommendation) -> Recommendation:
    """Replay the whole recommendation, and its defaults alone, and put the resulting shares into it."""
    plan = found.plan
    proposal = Proposal(name="recommended", entries=tuple(recommended_limits(found.advices, plan.scope).items()))
    alone = defaults("defaults", plan.scope, {each.quota_type: each.default for each in found.advices})
    replayed = tried(events, _replay_plan(plan, (proposal, alone)), cluster=found.cluster)
    return replace(found, advices=outcomes(clients.joined(replayed, with_outcomes), found.advices, plan.tolerance))
