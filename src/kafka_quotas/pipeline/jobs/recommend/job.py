"""The recommendation from recorded events: usage, two sweeps of limits, advice, and its replay.

Every step is a job of its own, `usage` or `replay`, over the same open events. What was used and tried stays where the
jobs ran: counts and bounds come here, and the clients that are named. Each step of a sweep has a default for every
quota type: one pass over the events answers for all of them. Steps are geometric. The first sweep finds the need to
within one ratio, and a second sweep between two steps refines it. Every client has a bucket of its own, and a row with
its throttle times under all steps.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, Proposal, ProposedQuotas
from kafka_quotas.pipeline.engine.events import Events
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, Recommendation
from kafka_quotas.pipeline.jobs.recommend.capacity import replication_of, within_capacity
from kafka_quotas.pipeline.jobs.recommend.clients import RECOMMENDED, Clients, Limits
from kafka_quotas.pipeline.jobs.recommend.findings import recommendation_rows, recommended_limits
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan
from kafka_quotas.pipeline.jobs.replay import Model, ReplayPlan, replay_job, replay_task
from kafka_quotas.pipeline.jobs.usage.job import UsagePlan, usage
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.results import REPLAYED, fields_of
from kafka_quotas.pipeline.tables.schemas import NAMES, RECOMMENDATION

STEPS: Final = 24
_LEAST_SHARE_OF_PEAK: Final = 1 / 10_000
"""Lowest limit by the largest peak: otherwise the smallest clients would set the steps of all."""
TRIED: Final = pa.schema([REPLAYED.field(name) for name in ("proposal", *NAMES, "quota", "throttle_ms")])
"""What a recommendation needs of a replay."""


def defaults(name: str, scope: DefaultScope, limits: Mapping[QuotaType, float]) -> Proposal:
    """Return the proposal with these limits as its only quotas, as defaults for every client."""
    return Proposal(
        name=name, entries=((scope.default_entity, {kind.key.name: value for kind, value in limits.items()}),)
    )


def unlimited_clients(scope: DefaultScope) -> Proposal:
    """Return the proposal that gives every client a bucket of its own and limits none."""
    return defaults("clients", scope, {kind: float(kind.key.unlimited) for kind in RECOMMENDED})


def spread(low: float, high: float) -> list[float]:
    """Return `STEPS` limits of equal ratio from `low` to `high`, or one if `low` is not below `high`."""
    if not low < high:
        return [high]
    ratio = (high / low) ** (1 / (STEPS - 1))
    return [low * ratio**step for step in range(STEPS - 1)] + [high]


def recommend(events: Events, plan: RecommendPlan, *, step: Callable[[str], None]) -> Recommendation:
    """Recommend the quotas of one cluster.

    `step` is called with the name of each step as it begins.

    Raises:
        UsageError: The cluster has no events, or none was named and there are several.
    """
    with events.errors("summing up what was tried"):
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
        chosen = events.tables.add("chosen", pa.table({"cluster": [cluster]}))
        clients = Clients(observed, plan, chosen, seconds=seconds)
        found = Recommendation(plan=plan, events=events.recorded, cluster=cluster, observed=observed)
        used = clients.used()
        if not used:
            return found
        step("a sweep over all limits")
        limits = {kind: spread(max(low, high * _LEAST_SHARE_OF_PEAK), high) for kind, (low, high) in used.items()}
        clients.add_sweep(limits, _swept(events, plan, limits))
        step("a sweep around the default")
        lowest = {kind: tier["lowest"] for kind, tier in clients.tiers().items()}
        finer = {
            kind: spread(max((each for each in limits[kind] if each < limit), default=limit), limit)
            for kind, limit in lowest.items()
        }
        clients.add_sweep(finer, _swept(events, plan, finer))
        advices = clients.advices(replication_of(events, chosen, seconds=seconds))
        advices = tuple(within_capacity(observed, chosen, each) for each in advices)
        step("a replay of the recommendation")
        return replace(found, clients=clients.count(), advices=_replayed(events, plan, clients, advices))


def _swept(events: Events, plan: RecommendPlan, limits: Limits) -> str:
    """Replay each step as a default, a quota type with fewer steps than others by its last one again."""
    steps = (
        defaults(f"step-{step:03}", plan.scope, {kind: each[min(step, len(each) - 1)] for kind, each in limits.items()})
        for step in range(max(map(len, limits.values())))
    )
    return _tried(events, plan, *steps)


def _tried(events: Events, plan: RecommendPlan, *proposals: Proposal, is_whole: bool = False) -> str:
    replayed = ReplayPlan(
        proposals=proposals, models=(Model.CLOSED,), window=plan.window, controller_window=plan.controller_window
    )
    task = partial(_throttled, plan=replayed, is_whole=is_whole)
    return events.run(replace(replay_job(replayed), task=task, schema=TRIED))


def _throttled(slices: Iterable[pa.Table], plan: ReplayPlan, *, is_whole: bool) -> pa.Table:
    rows = replay_task(slices, plan).select(TRIED.names)
    return rows if is_whole else rows.filter(pc.greater(rows["throttle_ms"], 0))


def _replayed(events: Events, plan: RecommendPlan, clients: Clients, advices: tuple[Advice, ...]) -> tuple[Advice, ...]:
    """Add what the advised quotas would do, alone and beside those in force."""
    proposal = Proposal(name="recommended", entries=tuple(recommended_limits(advices).items()))
    alone = defaults("defaults", plan.scope, {each.quota_type: each.default for each in advices})
    in_force = () if plan.in_force is None else (replace(plan.in_force, name="in force", groups=()),)
    replayed = _tried(events, plan, proposal, alone, *in_force, is_whole=True)
    advices = clients.outcomes(advices, replayed)
    if plan.in_force is None:
        return advices
    changes = clients.changes(replayed)
    alike = [each.quota_type for each in advices if _are_alike(plan.in_force, plan.scope, each.quota_type)]
    return tuple(
        replace(each, changes=changes.get(each.quota_type)) if each.quota_type in alike else each for each in advices
    )


def _are_alike(in_force: Proposal, scope: DefaultScope, kind: QuotaType) -> bool:
    """Check whether the quotas in force are of the same entities as the advice, or there are none."""
    stored, wanted = ProposedQuotas(in_force, kind), ProposedQuotas(unlimited_clients(scope), kind)
    return not stored.limits or stored.partition_columns == wanted.partition_columns


def _cluster(named: str | None, known: Sequence[str]) -> str:
    """Return the cluster to recommend for, and refuse an unknown or ambiguous one."""
    if not known:
        raise UsageError("there are no events", hint="kafka-quotas pipeline ingest reads them")
    if named is None and len(known) > 1:
        raise UsageError("the events are of several clusters", hint=f"--cluster, one of {', '.join(known)}")
    if named is not None and named not in known:
        raise UsageError(f"there are no events of cluster {named}", hint=f"there are events of {', '.join(known)}")
    return named or known[0]


def recommendation_table(found: Recommendation) -> pa.Table:
    """Return the rows of the table `recommendation`, without what all rows of a run have in common."""
    rows = [row | {"evidence": json.dumps(row["evidence"])} for row in recommendation_rows(found)]
    return pa.Table.from_pylist(rows, pa.schema(fields_of(RECOMMENDATION)))
