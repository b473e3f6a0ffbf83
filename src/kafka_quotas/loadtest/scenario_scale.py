"""A scenario made smaller or larger: what it says `--scale` multiplies is multiplied, and nothing else."""

import math
from dataclasses import replace

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.scenario import Scaled, Scaling, Scenario, ScenarioEntity, ScenarioQuota, ScenarioTopic
from kafka_quotas.loadtest.workload import MutationFlood


def scaled(scenario: Scenario, factor: float) -> Scenario:
    """The scenario at this scale; counts are rounded up, so nothing falls to 0.

    Raises `UsageError` for a factor that is not above 0, and for any but 1 where the scenario says nothing of scale.
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
        topics=tuple(_topic(topic, factor, what) for topic in scenario.topics),
        quotas=tuple(_quota(quota, factor, what) for quota in scenario.quotas),
        scaling=Scaling(),
    )


def _entity(entity: ScenarioEntity, factor: float, what: frozenset[Scaled]) -> ScenarioEntity:
    flood = entity.flood
    if Scaled.TOPICS in what and isinstance(flood, MutationFlood) and flood.total_topics is not None:
        flood = replace(
            flood,
            total_topics=_count(flood.total_topics, factor),
            topics_per_request=min(flood.topics_per_request, _count(flood.total_topics, factor)),
        )
    rate = entity.rate
    if Scaled.RATE in what:
        rate = rate.scaled(factor)
    judge_by = entity.judge_by
    if Scaled.QUOTAS in what and judge_by is not None:
        judge_by *= factor
    return replace(
        entity,
        flood=flood,
        rate=rate,
        judge_by=judge_by,
        count=_count(entity.count, factor) if Scaled.COUNT in what else entity.count,
        connections=_count(entity.connections, factor) if Scaled.CONNECTIONS in what else entity.connections,
    )


def _topic(topic: ScenarioTopic, factor: float, what: frozenset[Scaled]) -> ScenarioTopic:
    if Scaled.FILL not in what or not topic.fill:
        return topic
    return replace(topic, fill=_count(topic.fill, factor))


def _quota(quota: ScenarioQuota, factor: float, what: frozenset[Scaled]) -> ScenarioQuota:
    if Scaled.QUOTAS not in what:
        return quota
    return replace(quota, values=tuple((key, max(1.0, value * factor)) for key, value in quota.values))


def _count(count: int, factor: float) -> int:
    return max(1, math.ceil(count * factor))
