"""Planning: from a scenario and the quotas in force to clients and rates as figures."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from itertools import cycle
from typing import Final

from kafka_quotas.core.model.quota_key import REQUEST_PERCENTAGE
from kafka_quotas.loadtest.plan.plan import (
    ClientLoad,
    ClientName,
    ClientSettings,
    LaterQuota,
    LoadPlan,
    PlannedRestart,
    RampPhase,
    request_size,
)
from kafka_quotas.loadtest.plan.workload import MutationFlood, Workload
from kafka_quotas.loadtest.run.journal import KEY_OF, InForce, quotas_in_force
from kafka_quotas.loadtest.scenario.model import NUMBER, Scenario, ScenarioClient
from kafka_quotas.loadtest.verdict.judging import REFUSED_FOR_QUOTA

_REFUSING: Final = ("error", "delay-then-error", "--on-violation=error", "--on-violation=delay-then-error")
"""The options of a daemon that refuses requests over a quota."""
_RESTART_S: Final = 20.0  # a busy machine takes that long to start an interpreter
Credentials = Callable[[ClientName], tuple[tuple[str, str], ...]]
"""Returns the client properties with which a connection is authenticated as a client's user."""


def no_credentials(_name: ClientName) -> tuple[tuple[str, str], ...]:
    """Return no properties, for connections without authentication."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of a run: the address for its clients, the prefix of its topics and its properties."""

    bootstrap: str
    prefix: str
    addresses: tuple[str, ...] = ()
    """The address of each of several daemons, empty where all clients use one."""
    restarts: tuple[Callable[[], None], ...] = field(default=(), repr=False)
    """Restarts each of these daemons, and returns when it listens again."""
    is_fleet: bool = False
    enforcers: int | None = None
    """The number of brokers that keep the quotas, None for those that lead a topic."""
    connect_timeout_s: float = 10.0
    credentials: Credentials = field(default=no_credentials, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties by librdkafka's names, which may be secrets."""


def client_names(scenario: Scenario) -> tuple[ClientName, ...]:
    """Return the clients of a scenario in order, once for each workload, with numbers filled in."""
    return tuple(_name(entity, number) for entity, number in _expanded(scenario))


def scenario_plan(
    scenario: Scenario, in_force: InForce, environment: Environment, *, run_id: int, later: InForce | None = None
) -> LoadPlan:
    """Return the plan of a run of the scenario under the quotas in force.

    `later` has the quotas after the scenario's quota steps, None where the run makes none.
    """
    loads = _spread(
        [_load(entity, number, scenario, in_force, environment) for entity, number in _expanded(scenario)], environment
    )
    restarts = [*scenario.restarts]
    for at_s, address in zip(sorted(scenario.daemon.restarts_s), cycle(environment.addresses), strict=False):
        restarts.append(PlannedRestart(server=address, at_s=at_s, within_s=_RESTART_S))
    if later is not None:
        loads = [replace(load, later=_later(load, scenario, later)) for load in loads]
    return LoadPlan(
        bootstrap=environment.bootstrap,
        entities=tuple(_sized(_marked(loads, in_force, is_fleet=environment.is_fleet), scenario)),
        duration_s=scenario.duration_s,
        warmup_s=scenario.unjudged_s,
        window=scenario.window,
        enforcers=environment.enforcers,
        restarts=tuple(replace(each, at_s=each.at_s + scenario.unjudged_s) for each in restarts),
        connect_timeout_s=environment.connect_timeout_s,
        run_id=run_id,
        properties=tuple(environment.properties.items()),
    )


def own_plan(scenario: Scenario) -> LoadPlan:
    """Return the plan of a scenario under no other quotas than its own, which touches no server."""
    in_force = quotas_in_force([each.entry for each in scenario.quotas], client_names(scenario))
    return scenario_plan(scenario, in_force, Environment(bootstrap="", prefix=""), run_id=0)


def long_enough(plan: LoadPlan) -> LoadPlan:
    """Return the plan with the time that verdicts on its clients take, where it has less."""
    return replace(plan, duration_s=max(plan.duration_s, math.ceil(plan.needed_s)))


def at_environment(plan: LoadPlan, environment: Environment) -> LoadPlan:
    """Return the plan with its clients connected to another environment of the same kind."""
    return replace(plan, bootstrap=environment.bootstrap, entities=tuple(_spread(plan.entities, environment)))


def _spread(loads: Sequence[ClientLoad], environment: Environment) -> list[ClientLoad]:
    addresses = environment.addresses
    if not addresses:
        return list(loads)
    return [replace(load, bootstrap=addresses[index % len(addresses)]) for index, load in enumerate(loads)]


def expected_errors(scenario: Scenario, load: ClientLoad) -> frozenset[str]:
    """Return the errors that belong to a scenario, with refusals where its daemon answers by errors."""
    refuses = load.quota is not None and any(each in _REFUSING for each in scenario.daemon.options)
    return frozenset((*load.expected_errors, *((REFUSED_FOR_QUOTA,) if refuses else ())))


def same_load(plan: LoadPlan, in_force: InForce) -> LoadPlan:
    """Return the plan with the same load, rates included, judged by other quotas in force."""
    loads = [replace(load, quota=_limit(in_force, load.name, load.workload)) for load in plan.entities]
    return replace(plan, entities=_marked(loads, in_force))


def _limit(in_force: InForce, name: ClientName, workload: Workload) -> float | None:
    """Return the quota to judge by, None for requests, as Kafka's quota of requests counts thread time."""
    return None if workload is Workload.REQUESTS else in_force[name, KEY_OF[workload]].limit


def solo_plan(plan: LoadPlan, *, duration_s: float) -> LoadPlan | None:
    """Return the plan of a short run with the control clients alone, None where there are none."""
    controls = tuple(replace(entity, start_s=0.0, stop_s=None) for entity in plan.entities if entity.control)
    if not controls:
        return None
    warmup_s = min(plan.warmup_s, duration_s / 5)
    return replace(plan, entities=controls, duration_s=duration_s, warmup_s=warmup_s, restarts=())


def _expanded(scenario: Scenario) -> Iterator[tuple[ScenarioClient, int]]:
    for entity in scenario.entities:
        for number in range(1, entity.count + 1):
            yield entity, number


def _name(entity: ScenarioClient, number: int) -> ClientName:
    return ClientName(user=_numbered(entity.user, number), client_id=_numbered(entity.client_id, number))


def _numbered(text: str | None, number: int) -> str | None:
    return None if text is None else text.replace(NUMBER, str(number))


def _load(
    entity: ScenarioClient, number: int, scenario: Scenario, in_force: InForce, environment: Environment
) -> ClientLoad:
    name = _name(entity, number)
    quota = _limit(in_force, name, entity.does) if entity.judge_by is None else entity.judge_by
    quota = None if quota == math.inf else quota
    rate = entity.first_rate.arrivals_per_second(cost=entity.cost_of(entity.does, entity.mutation), quota=quota)
    ramp = _ramp(entity, rate, quota, warmup_s=scenario.unjudged_s)
    topic = _numbered(entity.topic, number) or ""
    flood = entity.flood
    if isinstance(flood, MutationFlood):
        flood = replace(flood, prefix=f"{environment.prefix}{name.client_id}-")
    is_there = any(each.is_there for each in scenario.topics if each.name == entity.topic)
    return ClientLoad(
        name=name,
        workload=entity.does,
        topic=f"{environment.prefix}{topic}" if topic and not is_there else topic,
        arrivals_per_second=max(each.end_rate for each in ramp) if ramp else rate,
        ramp=ramp,
        quota=quota,
        flood=flood,
        start_s=entity.start_s + scenario.unjudged_s if entity.start_s else 0.0,
        stop_s=None if entity.stop_s is None else entity.stop_s + scenario.unjudged_s,
        properties=(*environment.credentials(name), *entity.properties),
        **{field.name: getattr(entity, field.name) for field in fields(ClientSettings)},
    )


def _later(load: ClientLoad, scenario: Scenario, later: InForce) -> LaterQuota | None:
    quota = _limit(later, load.name, load.workload)
    if quota is None or quota == load.quota:
        return None
    at_s = max(step.at_s for step in scenario.quota_steps)
    return LaterQuota(at_s=scenario.unjudged_s + at_s, quota=quota)


def _ramp(
    entity: ScenarioClient, rate: Fraction | None, quota: float | None, *, warmup_s: float
) -> tuple[RampPhase, ...]:
    if not entity.stages or rate is None:
        return ()
    phases = [RampPhase(duration_s=0.0 if entity.start_s else warmup_s, start_rate=rate, end_rate=rate)]
    cost = entity.cost_of(entity.does, entity.mutation)
    for stage in entity.stages:
        target = stage.target.arrivals_per_second(cost=cost, quota=quota) or Fraction(0)
        phases.append(RampPhase(duration_s=stage.duration_s, start_rate=phases[-1].end_rate, end_rate=target))
    return tuple(phases)


def _is_time_limited(load: ClientLoad, in_force: InForce) -> bool:
    return in_force[load.name, REQUEST_PERCENTAGE].limit is not None


def _marked(loads: Sequence[ClientLoad], in_force: InForce, *, is_fleet: bool = False) -> tuple[ClientLoad, ...]:
    buckets = [_bucket(load, in_force, is_fleet=is_fleet) for load in loads]
    counts = Counter(buckets)
    return tuple(
        replace(
            load,
            bucket=bucket if counts[bucket] > 1 else "",
            quotas=tuple(
                (key.name, limit)
                for key in (KEY_OF[load.workload], REQUEST_PERCENTAGE)
                if (limit := in_force[load.name, key].limit) is not None
            ),
            is_judged=load.is_judged
            and not load.expected_errors
            and (load.quota is not None or not _is_time_limited(load, in_force)),
            is_time_limited=_is_time_limited(load, in_force),
        )
        for load, bucket in zip(loads, buckets, strict=True)
    )


def _sized(loads: Sequence[ClientLoad], scenario: Scenario) -> Iterator[ClientLoad]:
    sharing = Counter[str]()
    for load in loads:
        sharing[load.bucket] += load.connections
    for load in loads:
        size = request_size(
            load.quota, window_s=scenario.window_s, sharing=sharing[load.bucket] if load.bucket else load.connections
        )
        yield load if load.batch_bytes else replace(load, batch_bytes=size)


def _bucket(load: ClientLoad, in_force: InForce, *, is_fleet: bool) -> str:
    """Return a key for the bucket that has the load's quota, empty where it has none.

    Each of several daemons has a bucket of its own, but for those of a fleet.
    """
    if load.quota is None:
        return ""
    bucket = in_force[load.name, KEY_OF[load.workload]].bucket
    enforcer = "" if is_fleet else load.bootstrap
    return "" if bucket is None else f"{load.workload}:{bucket[0]}/{bucket[1]}@{enforcer}"
