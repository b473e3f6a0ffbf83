"""Scaling of a scenario by the figures that it names, and the largest scale that a machine can bear."""

import math
from dataclasses import replace
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE
from kafka_quotas.loadtest.plan.offered_rate import RateKind
from kafka_quotas.loadtest.plan.workload import MutationFlood
from kafka_quotas.loadtest.run.host_limits import HostLimits
from kafka_quotas.loadtest.run.quotas_in_force import quotas_in_force
from kafka_quotas.loadtest.scenario.model import Scaled, Scaling, Scenario, ScenarioClient, ScenarioQuota
from kafka_quotas.loadtest.scenario.planning import client_names
from kafka_quotas.stores.store import QuotaEntry


def scaled(scenario: Scenario, factor: float) -> Scenario:
    """Return the scenario at this scale.

    Counts are rounded up, so that none falls to 0.

    Raises:
        UsageError: The factor is not above 0, or is not 1 for a scenario without figures to scale.
    """
    if not (factor > 0 and math.isfinite(factor)):
        raise UsageError(f"a scale must be above 0, not {factor:g}", hint="0.1 is a tenth of the scenario's figures")
    what = frozenset(scenario.scaling.multiplies)
    if factor == 1:
        return scenario
    if not what:
        raise UsageError(f"{scenario.name} has nothing to scale", hint="leave --scale out")
    return replace(
        scenario,
        duration_s=scenario.duration_s * factor if Scaled.DURATION in what else scenario.duration_s,
        entities=tuple(_entity(entity, factor, what) for entity in scenario.entities),
        topics=tuple(
            replace(topic, fill=_count(topic.fill, factor)) if Scaled.FILL in what and topic.fill else topic
            for topic in scenario.topics
        ),
        quotas=tuple(_quota(quota, factor, what) for quota in scenario.quotas),
        quota_steps=tuple(
            replace(
                step,
                at_s=step.at_s * (factor if Scaled.DURATION in what else 1.0),
                quota=_quota(step.quota, factor, what),
            )
            for step in scenario.quota_steps
        ),
        scaling=Scaling(),
    )


def _entity(entity: ScenarioClient, factor: float, what: frozenset[Scaled]) -> ScenarioClient:
    flood = entity.flood
    if Scaled.TOPICS in what and isinstance(flood, MutationFlood) and flood.total_topics is not None:
        flood = replace(
            flood,
            total_topics=_count(flood.total_topics, factor),
            topics_per_request=min(flood.topics_per_request, _count(flood.total_topics, factor)),
        )
    judge_by, stop_s = entity.judge_by, entity.stop_s
    times = factor if Scaled.DURATION in what else 1.0
    return replace(
        entity,
        flood=flood,
        stages=tuple(
            replace(
                stage,
                duration_s=stage.duration_s * times,
                target=stage.target.scaled(factor) if Scaled.RATE in what else stage.target,
            )
            for stage in entity.stages
        ),
        rate=entity.rate.scaled(factor) if Scaled.RATE in what else entity.rate,
        judge_by=judge_by if judge_by is None or Scaled.QUOTAS not in what else judge_by * factor,
        start_s=entity.start_s * times,
        stop_s=None if stop_s is None else stop_s * times,
        count=_count(entity.count, factor) if Scaled.COUNT in what else entity.count,
        connections=_count(entity.connections, factor) if Scaled.CONNECTIONS in what else entity.connections,
    )


def _quota(quota: ScenarioQuota, factor: float, what: frozenset[Scaled]) -> ScenarioQuota:
    if Scaled.QUOTAS not in what:
        return quota
    return replace(quota, values=tuple((key, max(1.0, value * factor)) for key, value in quota.values))


def _count(count: int, factor: float) -> int:
    return max(1, math.ceil(count * factor))


_STEPS: Final = 100


def partitions_needed(scenario: Scenario) -> int:
    """Return the number of partitions at the end of the load, on all brokers and with replicas."""
    made = sum(topic.partitions * topic.replication_factor for topic in scenario.topics)
    flooded = sum(entity.count * _flooded(entity, scenario) for entity in scenario.entities)
    probed = sum(scenario.duration_s / probe.every_s for probe in scenario.probes)
    return int(made + flooded + probed)


def largest_scale(scenario: Scenario, limits: HostLimits) -> float:
    """Return the largest scale up to 1, in hundredths, at which a broker here can have all partitions.

    Where not even the smallest scale fits, that is the result, and the preflight reports what is missing.
    """
    if not scenario.scaling.multiplies:
        return 1.0
    for step in range(_STEPS, 1, -1):
        if partitions_needed(scaled(scenario, step / _STEPS)) <= limits.partitions:
            return step / _STEPS
    return 1 / _STEPS


def _flooded(entity: ScenarioClient, scenario: Scenario) -> float:
    """Return the partitions that one client of a flood creates, or deletes after they were created for it."""
    flood = entity.flood
    if not isinstance(flood, MutationFlood) or flood.validate_only:
        return 0
    created: float = (flood.total_topics or 0) * flood.partitions_per_topic
    if flood.total_topics is None:
        created = _partitions_per_second(entity, flood, scenario) * (scenario.duration_s + scenario.unjudged_s)
    return created * flood.replication_factor


def _partitions_per_second(entity: ScenarioClient, flood: MutationFlood, scenario: Scenario) -> float:
    """Return the highest rate of a flood without an end.

    As fast as possible is the rate of its quota, since the brokers accept no more, and unknown (0) without one.
    """
    rates = (entity.rate, *(stage.target for stage in entity.stages))
    counted = [rate.figure for rate in rates if rate.kind is RateKind.RECORDS]
    fastest = float(max(counted, default=0)) * flood.topics_per_request * flood.partitions_per_topic
    if len(counted) == len(rates):
        return fastest
    quota = entity.judge_by
    if quota is None:
        entries = [QuotaEntry(entity=each.entity, quotas=dict(each.values)) for each in scenario.quotas]
        name = client_names(replace(scenario, entities=(replace(entity, count=1),)))[0]
        quota = quotas_in_force(entries, [name])[name, CONTROLLER_MUTATION_RATE].limit
    times = max((float(rate.figure) for rate in rates if rate.kind is RateKind.QUOTA_MULTIPLE), default=1.0)
    return max(fastest, (quota or 0.0) * times)
