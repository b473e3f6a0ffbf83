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

import numpy as np
import pyarrow as pa

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.entities import NAMES, bucket_schema
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, Proposal
from kafka_quotas.pipeline.engine.client_parts import ClientParts, client_parts
from kafka_quotas.pipeline.engine.job import Job, Tables
from kafka_quotas.pipeline.engine.runner import OpenEvents, RecordedEvents
from kafka_quotas.pipeline.recommend.advice import Advice, RecommendPlan
from kafka_quotas.pipeline.recommend.all_clients import (
    advised,
    outcomes,
    tiers,
    used_by_clients,
    with_all_trials,
)
from kafka_quotas.pipeline.recommend.capacity import replication_of
from kafka_quotas.pipeline.recommend.demand_table import KEYS, NOT_LIMITED, TRIED, Limits, demand_rows, with_sweep
from kafka_quotas.pipeline.recommend.findings import file_heading
from kafka_quotas.pipeline.recommend.limits import Supply, coincident_loads, within_capacity
from kafka_quotas.pipeline.recommend.part_figures import RECOMMENDED, with_outcomes
from kafka_quotas.pipeline.recommend.quota_file import recommended_limits, recommended_text
from kafka_quotas.pipeline.replay.job import BUCKETS, OUTCOMES, replay_job
from kafka_quotas.pipeline.replay.task import Model, ReplayPlan, counted_task, replay_task
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.usage.job import UsageTables, usage
from kafka_quotas.pipeline.usage.task import UsagePlan


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


_TRIALS: Final = "trials"


def tried(events: OpenEvents, plan: ReplayPlan, *, cluster: str) -> ClientParts:
    """Replay a plan of one model, and return each client's throttle times under each proposal.

    Raises:
        KafkaQuotasError: A file can't be read, or Spark does not start or fails.
    """
    whole, steps = replay_job(plan), len(plan.proposals)
    columns = [*(bucket_schema().field(name) for name in NAMES), (TRIED, pa.list_(pa.int64(), steps))]
    job = Job(
        name=whole.name,
        partition_columns=whole.partition_columns,
        columns=whole.columns,
        task=partial(_replayed, plan=plan),
        schemas={_TRIALS: pa.schema(columns)},
        suffices=whole.suffices,
        counted=partial(_counted, plan=plan),
    )
    tasks, left = events.run_leaving(job, (_TRIALS,))
    return client_parts(job, _TRIALS, tasks, left, partial(_of_cluster, cluster=cluster))


def _replayed(slices: Iterable[pa.Table], plan: ReplayPlan) -> Tables:
    return _by_step(replay_task(slices, plan), len(plan.proposals))


def _counted(figures: pa.Table, plan: ReplayPlan) -> Tables:
    return _by_step(counted_task(figures, plan), len(plan.proposals))


def _by_step(tables: Tables, steps: int) -> Tables:
    """Return the table of a sweep from those of a task of a replay."""
    buckets, outcomes = tables[BUCKETS], tables[OUTCOMES]
    times_ms = np.full((buckets.num_rows, steps), NOT_LIMITED)
    limited = outcomes.filter(pc.is_valid(outcomes["quota"]))
    places = limited["bucket"].to_numpy(), limited["proposal"].to_numpy()
    times_ms[places] = limited["throttle_ms"].to_numpy()
    tried_ms = pa.FixedSizeListArray.from_arrays(pa.array(times_ms.ravel()), steps)
    return {_TRIALS: buckets.select(list(NAMES)).append_column(TRIED, tried_ms)}


def _of_cluster(rows: pa.Table, *, cluster: str) -> pa.Table:
    return rows.filter(pc.equal(rows["cluster"], cluster)).select([*KEYS, TRIED])


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
    parted = tiers(clients, list(limits), plan.tolerance.overrides)
    finer = finer_limits(limits, {kind: each.lowest for kind, each in parted.items()})
    sweeps.append((finer, _tried(events, plan, cluster, finer)))
    clients = _with_sweep(clients, sweeps[1], plan)
    count, own, advices = advised(clients, [each for each, _ in sweeps], plan, supply)
    if plan.capacities is not None:
        advices = tuple(
            within_capacity(
                each,
                coincident_loads(observed, each, own[each.quota_type].at_broker, cluster=cluster),
                supply,
            )
            if any(load.capacity is not None for load in each.loads)
            else each
            for each in advices
        )
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
