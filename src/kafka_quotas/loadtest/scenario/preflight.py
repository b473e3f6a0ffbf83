"""Preflight: whether a scenario can run on its target, and at which scale, without contacting any server.

Contract: pure. It finds every problem, not only the first. What only a cluster can report (a missing topic, a refused
login) is reported by the run.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE
from kafka_quotas.core.model.value_format import format_bytes
from kafka_quotas.core.resolution.effective import ANONYMOUS
from kafka_quotas.loadtest.plan.plan import MAX_ENTITIES
from kafka_quotas.loadtest.plan.workload import ClientKind, Loop, MutationFlood, RateKind, RequestFlood, Workload
from kafka_quotas.loadtest.run.journal import quotas_in_force
from kafka_quotas.loadtest.scenario.model import (
    NO_SCALING,
    NUMBER,
    Scaled,
    Scenario,
    ScenarioClient,
    ScenarioQuota,
    Security,
    TargetNeed,
    Variant,
)
from kafka_quotas.loadtest.scenario.planning import client_names, own_plan
from kafka_quotas.loadtest.verdict.thresholds import parse_abort, parse_expectation

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
        entries = [each.entry for each in scenario.quotas]
        name = client_names(replace(scenario, entities=(replace(entity, count=1),)))[0]
        quota = quotas_in_force(entries, [name])[name, CONTROLLER_MUTATION_RATE].limit
    times = max((float(rate.figure) for rate in rates if rate.kind is RateKind.QUOTA_MULTIPLE), default=1.0)
    return max(fastest, (quota or 0.0) * times)


_MOST_OF: Final = {ClientKind.LIBRDKAFKA: (100, "each has four threads and megabytes of queues of its own")}
"""The most clients of each library in one run, and why there can't be more."""
_CAN: Final = {ClientKind.LIBRDKAFKA: (Workload.PRODUCE, Workload.CONSUME), ClientKind.RAW: tuple(Workload)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCapabilities:
    """The capabilities of a scenario's target, which is an existing cluster unless a flag is set."""

    embedded: bool = False
    """Whether it is the cluster inside this process."""
    own_broker: bool = False
    """Whether it is a broker that is started for the scenario, under the limits of this machine."""
    through_daemon: bool = False
    """Whether clients connect through our daemon."""
    limits: HostLimits | None = None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A reason why a scenario can't run, with a hint at a remedy."""

    message: str
    hint: str | None = None


def preflight(scenario: Scenario, target: TargetCapabilities, *, is_typed: bool = False) -> tuple[Mismatch, ...]:
    """Return all reasons why the scenario can't run on this target, none where it can be tried.

    A scenario that `is_typed`, on the command line, may be too short to judge, and its clients' logins are in
    properties that are not visible here.
    """
    found = [
        *_of_target(scenario, target),
        *_of_limits(scenario, target),
        *_of_times(scenario),
        *_of_restarts(scenario),
        *_of_steps(scenario),
        *_of_topics(scenario, target),
        *(each for entity in scenario.entities for each in _of_entity(entity, scenario, is_typed=is_typed)),
        *_of_expectations(scenario),
    ]
    if not found and not is_typed:
        try:
            own_plan(scenario)
        except KafkaQuotasError as error:
            return (Mismatch(error.message, error.hint),)
    return tuple(dict.fromkeys(found))


def _of_target(scenario: Scenario, target: TargetCapabilities) -> Iterator[Mismatch]:
    start = "--broker-jars DIR starts a broker for it; --bootstrap-server names a cluster"
    if target.embedded and scenario.needs is TargetNeed.REAL_BROKER:
        yield Mismatch(f"{scenario.name} needs a real broker, and the embedded cluster is none", start)
    elif target.embedded and scenario.security is not Security.PLAINTEXT:
        yield Mismatch(f"the embedded cluster knows no {scenario.security}", start)
    elif target.embedded and scenario.mutates:
        yield Mismatch("the embedded cluster makes no topics on request", start)
    if target.own_broker and target.through_daemon and scenario.security is Security.TLS:
        yield Mismatch(
            "the daemon that is started here speaks no TLS to clients",
            "leave --through-daemon out, or run one with --listener-config and name it with --bootstrap-server",
        )
    has_quotas = scenario.quotas or scenario.quota_steps or scenario.daemon.policy
    if target.embedded and not target.through_daemon and has_quotas:
        yield Mismatch("the embedded cluster keeps no quotas", "add --through-daemon, which does")
    if scenario.needs is TargetNeed.DAEMON and not target.through_daemon:
        yield Mismatch(f"{scenario.name} is about the daemon", "add --through-daemon")
    if scenario.daemon.count > 1 and not target.through_daemon:
        yield Mismatch(f"{scenario.name} is about several daemons", "add --through-daemon")
    if scenario.daemon.is_fleet and scenario.daemon.count == 1:
        yield Mismatch("a fleet takes several daemons", "daemon: {count: 2, fleet: true}")
    if scenario.daemon.count > 1 and scenario.variants != (Variant.WITH_QUOTAS,):
        yield Mismatch("there are several daemons, and it has variants", "leave variants out")
    if Variant.WITH_QUOTAS not in scenario.variants:
        yield Mismatch("a run without the quotas alone judges nothing", "variants: [without-quotas, with-quotas]")
    if Variant.WITHOUT_QUOTAS in scenario.variants and not (scenario.quotas or scenario.daemon.policy):
        yield Mismatch("there are no quotas to leave out", "remove without-quotas from its variants")


def _of_limits(scenario: Scenario, target: TargetCapabilities) -> Iterator[Mismatch]:
    if scenario.clients > MAX_ENTITIES:
        yield Mismatch(f"{scenario.clients} clients in one run", f"the most is {MAX_ENTITIES}")
    for kind, (most, why) in _MOST_OF.items():
        count = sum(entity.count for entity in scenario.entities if entity.client is kind)
        if count > most:
            yield Mismatch(
                f"{count} clients of {kind} in one run; the most is {most}, for {why}",
                "raw clients share one event loop: client: raw",
            )
    limits = target.limits
    if limits is None:
        return
    connections = sum(entity.count * entity.connections for entity in scenario.entities)
    if connections > limits.clients:
        yield Mismatch(
            f"{connections} connections, and this machine allows about {limits.clients}",
            "raise the hard limit of open files (ulimit -Hn)",
        )
    partitions = partitions_needed(scenario)
    if target.own_broker and partitions > limits.partitions:
        yield Mismatch(
            f"{partitions} partitions, and a broker on this machine can have about {limits.partitions}: "
            f"{limits.description}",
            "give a smaller --scale, or none: then the largest that fits is taken",
        )


def _of_times(scenario: Scenario) -> Iterator[Mismatch]:
    if scenario.duration_s <= 0:
        yield Mismatch("a duration must be above 0 s", "example: --duration 60s")
        return
    for entity in scenario.entities:
        if entity.start_s >= scenario.duration_s:
            yield Mismatch(
                f"{entity.client_id} joins at {entity.start_s:g} s, and the run ends at {scenario.duration_s:g} s"
            )
        if entity.stop_s is not None and entity.stop_s <= entity.start_s:
            yield Mismatch(f"{entity.client_id} leaves at {entity.stop_s:g} s, before it joins")


def _of_restarts(scenario: Scenario) -> Iterator[Mismatch]:
    for restart in scenario.restarts:
        if restart.at_s + restart.within_s > scenario.duration_s:
            yield Mismatch(
                f"{restart.server} is to be restarted until {restart.at_s + restart.within_s:g} s, and the run "
                f"ends at {scenario.duration_s:g} s",
                "a restart belongs into the measured time",
            )
    if scenario.daemon.restarts_s and scenario.daemon.count == 1:
        yield Mismatch("a rolling restart takes several daemons", "daemon: {count: 2, restarts: [...]}")
    late_s = max(scenario.daemon.restarts_s, default=0.0)
    if late_s >= scenario.duration_s:
        yield Mismatch(
            f"a daemon is to be restarted at {late_s:g} s, and the run ends at {scenario.duration_s:g} s",
            "a longer duration, or an earlier time",
        )


def _of_steps(scenario: Scenario) -> Iterator[Mismatch]:
    for step in scenario.quota_steps:
        if step.at_s >= scenario.duration_s:
            yield Mismatch(
                f"a quota changes at {step.at_s:g} s, and the run ends at {scenario.duration_s:g} s",
                "a longer duration, or an earlier time",
            )
    if scenario.quota_steps and scenario.variants != (Variant.WITH_QUOTAS,):
        yield Mismatch(
            "quotas change during the load, and it has variants",
            "leave variants out: the control run compares with a load without quotas",
        )


def _of_topics(scenario: Scenario, target: TargetCapabilities) -> Iterator[Mismatch]:
    names = [topic.name for topic in scenario.topics]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Mismatch(f"topic {name} is listed twice")
    for topic in scenario.topics:
        if topic.replication_factor > 1 and (target.embedded or target.own_broker):
            yield Mismatch(f"topic {topic.name} wants {topic.replication_factor} replicas, and there is one broker")


def _of_entity(entity: ScenarioClient, scenario: Scenario, *, is_typed: bool) -> Iterator[Mismatch]:
    who = entity.client_id if entity.client_id is not None else "the client without a client-id"
    if not is_typed:
        yield from _of_identity(entity, scenario, str(who))
    yield from _of_library(entity, str(who))
    yield from _of_work(entity, scenario, str(who))
    is_numbered = NUMBER in (entity.client_id or "") or NUMBER in (entity.user or "")
    if is_numbered != (entity.count > 1):
        yield Mismatch(f"{who}: count and {NUMBER} belong together", f"client-id: app-{NUMBER}, count: 10")


def _of_identity(entity: ScenarioClient, scenario: Scenario, who: str) -> Iterator[Mismatch]:
    if scenario.security is Security.PLAINTEXT and entity.user not in (None, ANONYMOUS):
        yield Mismatch(
            f"{who} is to be user {entity.user}, and on plaintext everybody is {ANONYMOUS}",
            "security: sasl-plain, sasl-scram or tls",
        )
    if scenario.security in (Security.SASL_PLAIN, Security.SASL_SCRAM) and entity.user is None:
        yield Mismatch(f"{who} has no user, and {scenario.security} has no connections without one")
    if entity.client_id is None and entity.client is not ClientKind.RAW:
        yield Mismatch(f"{entity.client} always sends a client-id", "client: raw")


def _of_library(entity: ScenarioClient, who: str) -> Iterator[Mismatch]:
    if entity.does not in _CAN[entity.client]:
        able = [kind.value for kind, does in _CAN.items() if entity.does in does]
        yield Mismatch(f"{who}: {entity.client} can't do {entity.does}", f"client: {' or '.join(able)}")
    if not entity.honor_throttle and entity.client is not ClientKind.RAW:
        yield Mismatch(f"{who}: only a raw client can be told to ignore throttle times", "client: raw")


def _of_work(entity: ScenarioClient, scenario: Scenario, who: str) -> Iterator[Mismatch]:
    wanted = {Workload.REQUESTS: RequestFlood, Workload.MUTATE: MutationFlood}.get(entity.does)
    if wanted is not None and not isinstance(entity.flood, wanted):
        section = "request" if entity.does is Workload.REQUESTS else "mutation"
        yield Mismatch(f"{who} does {entity.does}, and says not which", f"add {section}: {{...}}")
    elif wanted is None and entity.flood is not None:
        yield Mismatch(f"{who} has a flood, and does {entity.does}")
    if any(rate.kind is RateKind.BYTES for rate in entity.rates) and not entity.does.moves_records:
        yield Mismatch(f"{who}: a rate in bytes is no rate of {entity.does}", "example: 10req/s")
    if entity.stages:
        yield from _of_stages(entity, scenario, who)
    if entity.does.moves_records or entity.topic:
        yield from _of_its_topic(entity, scenario, who)


def _of_stages(entity: ScenarioClient, scenario: Scenario, who: str) -> Iterator[Mismatch]:
    if entity.first_rate.kind is RateKind.MAX:
        yield Mismatch(f"{who} has stages, which begin with a rate and not with max", "example: 1MB/s")
    if entity.loop is Loop.CLOSED:
        yield Mismatch(f"{who} has stages and a closed loop, whose rate follows the answers", "loop: open")
    if entity.control:
        yield Mismatch(
            f"{who} is a control client, whose latencies compare at one rate only",
            "leave its stages out, or give them to the others",
        )
    stages_s = sum(stage.duration_s for stage in entity.stages)
    left_s = min(entity.stop_s or scenario.duration_s, scenario.duration_s) - entity.start_s
    if stages_s > left_s:
        yield Mismatch(
            f"{who}: its stages take {stages_s:g} s, and {left_s:g} s of the run are measured",
            f"a duration of {entity.start_s + stages_s:g}s has room for them",
        )
    if not any(rate.figure for rate in entity.rates):
        yield Mismatch(f"{who} offers 0 in all of its stages", "example: target: 1MB/s")


def _of_its_topic(entity: ScenarioClient, scenario: Scenario, who: str) -> Iterator[Mismatch]:
    topic = next((topic for topic in scenario.topics if topic.name == entity.topic), None)
    if topic is None:
        there = ", ".join(topic.name for topic in scenario.topics) or "none"
        yield Mismatch(f"{who} wants topic {entity.topic or '(none)'}", f"topics listed: {there}")
    elif entity.does is Workload.CONSUME and not (topic.fill or topic.is_there):
        yield Mismatch(f"{who} reads topic {topic.name}, which is empty", "give it a fill")
    elif entity.does is Workload.CONSUME and entity.judge_by is not None:
        least = entity.judge_by * scenario.window_s
        if least < topic.record_size:
            yield Mismatch(
                f"{who} can never get a record of {format_bytes(topic.record_size)}: a whole quota window "
                f"holds {format_bytes(least)}"
            )


def _of_expectations(scenario: Scenario) -> Iterator[Mismatch]:
    for text in (*scenario.expect, *scenario.abort_on):
        try:
            (parse_abort if text in scenario.abort_on else parse_expectation)(text)
        except KafkaQuotasError as error:
            yield Mismatch(error.message, error.hint)
