"""How many partitions a scenario makes, and the largest scale at which a machine can bear them."""

from typing import Final

from kafka_quotas.loadtest.host_limits import HostLimits
from kafka_quotas.loadtest.offered_rate import RateKind
from kafka_quotas.loadtest.scenario import Scenario, ScenarioEntity
from kafka_quotas.loadtest.scenario_scale import scaled
from kafka_quotas.loadtest.workload import MutationFlood

_STEPS: Final = 100


def partitions_needed(scenario: Scenario) -> int:
    """Partitions on all brokers at the end of the load, replicas counted; a flood without an end at its rate."""
    made = sum(topic.partitions * topic.replication_factor for topic in scenario.topics)
    flooded = sum(entity.count * _flooded(entity, scenario) for entity in scenario.entities)
    probed = sum(scenario.duration_s / probe.every_s for probe in scenario.probes)
    return int(made + flooded + probed)


def largest_scale(scenario: Scenario, limits: HostLimits) -> float:
    """The largest scale up to 1, in hundredths, at which a broker here can have all the partitions.

    Where not even the smallest fits it is the smallest, and a validation says what is missing.
    """
    if not scenario.scaling.multiplies:
        return 1.0
    for step in range(_STEPS, 1, -1):
        if partitions_needed(scaled(scenario, step / _STEPS)) <= limits.partitions:
            return step / _STEPS
    return 1 / _STEPS


def _flooded(entity: ScenarioEntity, scenario: Scenario) -> float:
    """Partitions that one client of a flood makes, or finds made so that it can delete them."""
    flood = entity.flood
    if not isinstance(flood, MutationFlood) or flood.validate_only:
        return 0
    topics: float = flood.total_topics or 0
    if flood.total_topics is None:
        rate = float(entity.rate.figure) if entity.rate.kind is RateKind.RECORDS else 0.0
        topics = rate * flood.topics_per_request * (scenario.duration_s + scenario.unjudged_s)
    return topics * flood.partitions_per_topic * flood.replication_factor
