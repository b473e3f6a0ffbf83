"""The recommendation from recorded events: usage, two sweeps of limits, advice, and its replay.

Every step is a job of its own, `usage` or `replay`, over the same open events. What was used and tried stays where the
jobs ran: counts and bounds come here, and the clients that are named. Each step of a sweep has a default for every
quota type: one pass over the events answers for all of them. Steps are geometric. The first sweep finds the need to
within one ratio, and a second sweep between two steps refines it. Every client has a bucket of its own, and a row with
its throttle times under all steps.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, Proposal, ProposedQuotas
from kafka_quotas.pipeline.engine.runner import Events, RecordedEvents
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, RecommendPlan
from kafka_quotas.pipeline.jobs.recommend.capacity import replication_of
from kafka_quotas.pipeline.jobs.recommend.clients import RECOMMENDED, Clients, Limits
from kafka_quotas.pipeline.jobs.recommend.findings import file_heading
from kafka_quotas.pipeline.jobs.recommend.limits import (
    Supply,
    advise,
    coincident_loads,
    default_of,
    within_capacity,
)
from kafka_quotas.pipeline.jobs.recommend.quota_file import recommended_limits, recommended_text
from kafka_quotas.pipeline.jobs.replay.task import Model, ReplayPlan, replay_job, replay_task
from kafka_quotas.pipeline.jobs.usage.job import UsageTables, usage
from kafka_quotas.pipeline.jobs.usage.task import UsagePlan
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.results import NAMES, REPLAYED


def defaults(name: str, scope: DefaultScope, limits: Mapping[QuotaType, float]) -> Proposal:
    """Return the proposal with these limits as its only quotas, as defaults for every client."""
    return Proposal(
        name=name, entries=((scope.default_entity, {kind.key.name: value for kind, value in limits.items()}),)
    )


def unlimited_clients(scope: DefaultScope) -> Proposal:
    """Return the proposal that gives every client a bucket of its own and limits none."""
    return defaults("clients", scope, {kind: float(kind.key.unlimited) for kind in RECOMMENDED})


STEPS: Final = 24
_LEAST_SHARE_OF_PEAK: Final = 1 / 10_000
"""Lowest limit by the largest peak: otherwise the smallest clients would set the steps of all."""


def first_limits(ranges: Mapping[QuotaType, tuple[float, float]], steps: int = STEPS) -> dict[QuotaType, list[float]]:
    """Return limits from the smallest median rate to the largest peak, given both of each quota type."""
    return {kind: spread(max(low, high * _LEAST_SHARE_OF_PEAK), high, steps) for kind, (low, high) in ranges.items()}


def finer_limits(
    tried: Mapping[QuotaType, Sequence[float]], found: Mapping[QuotaType, float], steps: int = STEPS
) -> dict[QuotaType, list[float]]:
    """Return limits between the one found and the next lower tried one.

    The lowest tried limit has none below it and is returned alone.
    """
    finer = {}
    for kind, limit in found.items():
        lower = [each for each in tried[kind] if each < limit]
        finer[kind] = spread(lower[-1], limit, steps) if lower else [limit]
    return finer


def spread(low: float, high: float, steps: int) -> list[float]:
    """Return limits of equal ratio from `low` to `high`, both included, ascending.

    Returns:
        `steps` limits, or one where `low` is not below `high`.
    """
    if not low < high:
        return [high]
    ratio = (high / low) ** (1 / (steps - 1))
    return [low * ratio**step for step in range(steps - 1)] + [high]


def sweep(scope: DefaultScope, limits: Mapping[QuotaType, Sequence[float]]) -> tuple[Proposal, ...]:
    """Return the steps as proposals for one pass.

    A quota type with fewer limits ends with its last one.
    """
    count = max((len(each) for each in limits.values()), default=0)
    return tuple(
        defaults(f"step-{step:03}", scope, {kind: each[min(step, len(each) - 1)] for kind, each in limits.items()})
        for step in range(count)
    )


def tried(events: Events, plan: ReplayPlan, *, is_whole: bool = False) -> str:
    """Replay a plan of one model, and name the rows of throttled clients, or of all.

    Raises:
        KafkaQuotasError: A file can't be read, or Spark does not start or fails.
    """
    return events.run(replace(replay_job(plan), task=partial(_throttled, plan=plan, is_whole=is_whole), schema=TRIED))


TRIED: Final = pa.schema([REPLAYED.field(name) for name in ("proposal", *NAMES, "quota", "throttle_ms")])
"""What a recommendation needs of a replay."""


def _throttled(slices: Iterable[pa.Table], plan: ReplayPlan, *, is_whole: bool) -> pa.Table:
    rows = replay_task(slices, plan).select(TRIED.names)
    return rows if is_whole else rows.filter(pc.greater(rows["throttle_ms"], 0))


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


def recommend(events: Events, plan: RecommendPlan, *, step: Callable[[str], None]) -> Recommendation:
    """Recommend the quotas of one cluster.

    `step` is called with the name of each step as it begins.

    Raises:
        UsageError: The cluster has no events, or none was named and there are several.
    """
    with events.errors("summing up what was tried"):
        return _recommend(events, plan, step)


def _recommend(events: Events, plan: RecommendPlan, step: Callable[[str], None]) -> Recommendation:
    seconds = events.recorded.seconds
    step("usage of each client")
    observed = usage(
        events,
        UsagePlan(
            quotas=unlimited_clients(plan.scope),
            seconds=seconds,
            window=plan.window,
            horizon_days=plan.horizon_days,
            windows_s=plan.windows_s,
        ),
    )
    cluster = _cluster(plan.cluster, observed.clusters())
    clients = Clients(observed, plan, cluster=cluster, seconds=seconds)
    used = clients.used()
    found = Recommendation(plan=plan, events=events.recorded, cluster=cluster, observed=observed)
    if not used:
        return found
    step("a sweep over all limits")
    limits = first_limits(used)
    clients.add_sweep(limits, _tried(events, plan, limits))
    step("a sweep around the default")
    finer = finer_limits(limits, {kind: each.lowest for kind, each in clients.tiers().items()})
    clients.add_sweep(finer, _tried(events, plan, finer))
    supply = _supply(plan, replication_of(events, cluster=cluster, seconds=seconds))
    advices = advised(clients, plan, supply)
    if plan.capacities is not None:
        advices = tuple(_within_capacity(observed, each, supply, cluster=cluster) for each in advices)
    step("a replay of the recommendation")
    found = replace(found, clients=clients.count(), advices=clients.with_trials(advices))
    proposal = Proposal(name="recommended", entries=tuple(recommended_limits(found.advices, plan.scope).items()))
    alone = defaults("defaults", plan.scope, {each.quota_type: each.default for each in found.advices})
    in_force = () if plan.in_force is None else (replace(plan.in_force, name="in force"),)
    replayed = tried(events, _replay_plan(plan, (proposal, alone, *in_force)), is_whole=True)
    advices = clients.outcomes(found.advices, replayed)
    if plan.in_force is not None:
        changes = clients.changes(replayed)
        advices = tuple(
            replace(each, changes=changes.get(each.quota_type) if _are_alike(plan, each.quota_type) else None)
            for each in advices
        )
    return replace(found, advices=advices)


def _are_alike(plan: RecommendPlan, kind: QuotaType) -> bool:
    """Check whether the quotas in force are of the same entities as the advice, or there are none."""
    if plan.in_force is None:
        return False
    in_force = ProposedQuotas(plan.in_force, kind)
    wanted = ProposedQuotas(unlimited_clients(plan.scope), kind)
    return not in_force.limits or in_force.partition_columns == wanted.partition_columns


def advised(clients: Clients, plan: RecommendPlan, supply: Supply) -> tuple[Advice, ...]:
    """Return the advice for each quota type that was used, whatever the capacity, once limits were tried."""
    tiers, advices = clients.tiers(), []
    wanted = {kind: default_of(kind, each.lowest, plan.tolerance) for kind, each in tiers.items()}
    own, curves = clients.kinds(wanted), clients.curves()
    for kind, each in tiers.items():
        advice = advise(kind, own[kind], lowest=each.lowest, tolerance=plan.tolerance, supply=supply)
        choices = ((number, default_of(kind, need, plan.tolerance)) for number, need in each.needs.items())
        explained = next((named for named in own[kind].named if plan.name_of(named) == plan.explained), None)
        advices.append(replace(advice, explained=explained, curve=curves[kind], choices=tuple(choices)))
    return tuple(advices)


def _within_capacity(observed: UsageTables, advice: Advice, supply: Supply, *, cluster: str) -> Advice:
    if all(load.capacity is None for load in advice.loads):
        return advice
    return within_capacity(advice, coincident_loads(observed, advice, cluster=cluster), supply)


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


def _tried(events: Events, plan: RecommendPlan, limits: Limits) -> str:
    return tried(events, _replay_plan(plan, sweep(plan.scope, limits)))


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
