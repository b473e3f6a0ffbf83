"""The limits to replay, as steps of one sweep, and what replaying them makes of each client.

Each step has a default for every quota type: one pass over the events answers for all of them. Steps are geometric. The
first sweep finds the need to within one ratio, and a second sweep between two steps refines it. Under each proposal
every client has a bucket of its own.

A sweep leaves one row of each bucket with its throttle times under all steps, not a row of each bucket and step.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.entities import NAMES, bucket_schema
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, Proposal
from kafka_quotas.pipeline.engine.client_parts import ClientParts, client_parts
from kafka_quotas.pipeline.engine.job import Job, Tables
from kafka_quotas.pipeline.engine.runner import OpenEvents
from kafka_quotas.pipeline.recommend.demand_table import KEYS, NOT_LIMITED, TRIED
from kafka_quotas.pipeline.recommend.part_figures import RECOMMENDED
from kafka_quotas.pipeline.replay.job import BUCKETS, OUTCOMES, replay_job
from kafka_quotas.pipeline.replay.task import ReplayPlan, counted_task, replay_task
from kafka_quotas.pipeline.tables.arrow import compute as pc


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
