"""The limits of a process on this machine: open files and memory maps, needed for every partition."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE
from kafka_quotas.loadtest.plan.workload import MutationFlood, RateKind
from kafka_quotas.loadtest.run.journal import quotas_in_force
from kafka_quotas.loadtest.scenario.model import NO_SCALING, Scaled, Scenario, ScenarioClient, ScenarioQuota
from kafka_quotas.loadtest.scenario.planning import client_names
from kafka_quotas.stores.store import QuotaEntry

FILES_PER_PARTITION: Final = 2
"""Open files of a broker per partition: the log (measured: 1, Kafka 4.3.1), and one more during a roll."""
MAPS_PER_PARTITION: Final = 2
"""Memory maps of a broker per partition: its two indices (measured: 2)."""
FILES_OF_A_BROKER: Final = 500
"""Open files of a broker without partitions (measured: 170), with room for connections."""
MAPS_OF_A_BROKER: Final = 1500
"""Memory maps of a broker without partitions (measured: some 450)."""
FILES_PER_CLIENT: Final = 4
"""Sockets and pipes of one client in this process."""
FILES_OF_THIS: Final = 200
_MAX_MAPS: Final = Path("/proc/sys/vm/max_map_count")
_UNKNOWN: Final = 1 << 30
_Quota = TypeVar("_Quota", bound=ScenarioQuota)
_Factors = dict[Scaled, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """The limits of one process on this machine."""

    open_files: int
    max_maps: int

    @property
    def partitions(self) -> int:
        """The most partitions that one broker can have on this machine."""
        by_files = (self.open_files - FILES_OF_A_BROKER) // FILES_PER_PARTITION
        by_maps = (self.max_maps - MAPS_OF_A_BROKER) // MAPS_PER_PARTITION
        return max(0, min(by_files, by_maps))

    @property
    def clients(self) -> int:
        """The most client connections that this process can have."""
        return max(0, (self.open_files - FILES_OF_THIS) // FILES_PER_CLIENT)

    @property
    def description(self) -> str:
        """The two limits as text for a message."""
        maps = "any number of" if self.max_maps == _UNKNOWN else str(self.max_maps)
        return f"{self.open_files} open files (ulimit -n) and {maps} mapped regions (vm.max_map_count)"


def host_limits() -> HostLimits:
    """Return the limits of this machine, as far as a process without root can raise them."""
    import resource  # noqa: PLC0415 - not on every system; only a validation asks

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        maps = int(_MAX_MAPS.read_text("ascii"))
    except (OSError, ValueError):
        maps = _UNKNOWN  # systems without /proc have no such limit
    return HostLimits(open_files=_UNKNOWN if hard == resource.RLIM_INFINITY else hard, max_maps=maps)


def raise_open_files() -> None:
    """Raise this process's limit of open files to its hard limit, because every client needs sockets."""
    import resource  # noqa: PLC0415 - as above

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def scaled(scenario: Scenario, factor: float) -> Scenario:
    """Return the scenario at this scale.

    Counts are rounded up, so that none falls to 0.
    """
    if not (factor > 0 and math.isfinite(factor)):
        raise UsageError(f"a scale must be above 0, not {factor:g}", hint="0.1 is a tenth of the scenario's figures")
    if factor == 1:
        return scenario
    if not scenario.scaling.multiplies:
        raise UsageError(f"{scenario.name} has nothing to scale", hint="leave --scale out")
    by = {what: factor if what in scenario.scaling.multiplies else 1.0 for what in Scaled}
    return replace(
        scenario,
        duration_s=scenario.duration_s * by[Scaled.DURATION],
        entities=tuple(_entity(entity, by) for entity in scenario.entities),
        topics=tuple(
            replace(topic, fill=_count(topic.fill, by[Scaled.FILL])) if topic.fill else topic
            for topic in scenario.topics
        ),
        quotas=tuple(_quota(quota, by[Scaled.QUOTAS]) for quota in scenario.quotas),
        quota_steps=tuple(
            replace(_quota(step, by[Scaled.QUOTAS]), at_s=step.at_s * by[Scaled.DURATION])
            for step in scenario.quota_steps
        ),
        scaling=NO_SCALING,
    )


def _entity(entity: ScenarioClient, by: _Factors) -> ScenarioClient:
    flood, times = entity.mutation, by[Scaled.DURATION]
    if flood is not None and flood.total_topics is not None:
        total = _count(flood.total_topics, by[Scaled.TOPICS])
        flood = replace(flood, total_topics=total, topics_per_request=min(flood.topics_per_request, total))
    stages = (
        replace(stage, duration_s=stage.duration_s * times, target=stage.target.scaled(by[Scaled.RATE]))
        for stage in entity.stages
    )
    return replace(
        entity,
        mutation=flood,
        stages=tuple(stages),
        rate=entity.first_rate.scaled(by[Scaled.RATE]),
        judge_by=None if entity.judge_by is None else entity.judge_by * by[Scaled.QUOTAS],
        start_s=entity.start_s * times,
        stop_s=None if entity.stop_s is None else entity.stop_s * times,
        count=_count(entity.count, by[Scaled.COUNT]),
        connections=_count(entity.connections, by[Scaled.CONNECTIONS]),
    )


def _quota(quota: _Quota, factor: float) -> _Quota:
    if factor == 1:
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
    flood = entity.mutation
    if flood is None or flood.validate_only:
        return 0
    created: float = (flood.total_topics or 0) * flood.partitions_per_topic
    if flood.total_topics is None:
        created = _partitions_per_second(entity, flood, scenario) * (scenario.duration_s + scenario.unjudged_s)
    return created * flood.replication_factor


def _partitions_per_second(entity: ScenarioClient, flood: MutationFlood, scenario: Scenario) -> float:
    """Return the highest rate of a flood without an end.

    As fast as possible is the rate of its quota, since the brokers accept no more, and unknown (0) without one.
    """
    rates = entity.rates
    counted = [rate.figure for rate in rates if rate.kind is RateKind.RECORDS]
    fastest = float(max(counted, default=0)) * flood.topics_per_request * flood.partitions_per_topic
    if len(counted) == len(rates):
        return fastest
    quota = entity.judge_by
    if quota is None or math.isinf(quota):
        entries = [QuotaEntry(entity=each.entity, quotas=dict(each.values)) for each in scenario.quotas]
        name = client_names(replace(scenario, entities=(replace(entity, count=1),)))[0]
        quota = quotas_in_force(entries, [name])[name, CONTROLLER_MUTATION_RATE].limit
    times = max((float(rate.figure) for rate in rates if rate.kind is RateKind.QUOTA_MULTIPLE), default=1.0)
    return max(fastest, (quota or 0.0) * times)
