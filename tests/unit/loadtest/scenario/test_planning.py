"""Scenarios before they run: what stands against them, how they are scaled, and the plan they become."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.plan.plan import ClientName, LaterQuota
from kafka_quotas.loadtest.plan.workload import (
    AS_FAST_AS_POSSIBLE,
    NO_LOAD,
    ClientKind,
    Loop,
    MutationFlood,
    RequestFlood,
    Stage,
    Workload,
    parse_offered_rate,
    parse_stage_target,
)
from kafka_quotas.loadtest.run.journal import InForce, differences, quotas_in_force
from kafka_quotas.loadtest.scenario.model import (
    Probe,
    ProbeKind,
    QuotaStep,
    Scaled,
    Scaling,
    Scenario,
    ScenarioClient,
    ScenarioDaemon,
    ScenarioQuota,
    ScenarioTopic,
    Security,
    TargetNeed,
    Variant,
)
from kafka_quotas.loadtest.scenario.planning import (
    Environment,
    at_environment,
    client_names,
    expected_errors,
    same_load,
    scenario_plan,
    solo_plan,
)
from kafka_quotas.loadtest.scenario.preflight import (
    HostLimits,
    TargetCapabilities,
    largest_scale,
    partitions_needed,
    preflight,
    scaled,
)
from kafka_quotas.stores.store import QuotaEntry

ROOMY = HostLimits(open_files=1_000_000, max_maps=1_000_000)
EMBEDDED = TargetCapabilities(embedded=True, through_daemon=True, limits=ROOMY)
BROKER = TargetCapabilities(own_broker=True, limits=ROOMY)
PRODUCER = ScenarioClient(client_id="a", does=Workload.PRODUCE, topic="t", rate=parse_offered_rate("2x-quota"))
MUTATOR = ScenarioClient(
    client_id="m",
    does=Workload.MUTATE,
    client=ClientKind.RAW,
    rate=parse_offered_rate("10req/s"),
    mutation=MutationFlood(topics_per_request=50, partitions_per_topic=4, total_topics=5000),
)
SCENARIO = Scenario(
    name="s",
    title="t",
    duration_s=20.0,
    window=QuotaWindow(samples=3),
    topics=(ScenarioTopic(name="t", partitions=2),),
    quotas=(ScenarioQuota(entity=Entity.of(client_id="a"), values=(("producer_byte_rate", 1e6),)),),
    entities=(PRODUCER,),
)
HERE = Environment(bootstrap="127.0.0.1:1", prefix="p-")


def with_client(**changes: object) -> Scenario:
    return replace(SCENARIO, entities=(replace(PRODUCER, **changes),))  # type: ignore[arg-type]


def staged(*stages: str, **changes: object) -> Scenario:
    parts = [text.partition(":") for text in stages]
    made = tuple(
        Stage(duration_s=float(time.removesuffix("s")), target=parse_stage_target(rate)) for time, _, rate in parts
    )
    given = {"rate": parse_offered_rate("100kB/s"), "stages": made, **changes}
    return replace(SCENARIO, entities=(replace(PRODUCER, **given),))  # type: ignore[arg-type]


def in_force(scenario: Scenario) -> InForce:
    entries = [QuotaEntry(entity=quota.entity, quotas=dict(quota.values)) for quota in scenario.quotas]
    return quotas_in_force(entries, client_names(scenario))


def test_a_client_is_judged_by_its_new_quota_once_that_was_changed() -> None:
    scenario = replace(SCENARIO, quota_steps=(LOWERED,), entities=(PRODUCER, replace(PRODUCER, client_id="other")))
    changed = [QuotaEntry(entity=LOWERED.entity, quotas=dict(LOWERED.values))]
    scenario = replace(scenario, entities=tuple(replace(each, rate=AS_FAST_AS_POSSIBLE) for each in scenario.entities))
    later = quotas_in_force(changed, client_names(scenario))

    lowered, other = scenario_plan(scenario, in_force(scenario), HERE, run_id=1, later=later).entities

    assert (lowered.quota, lowered.later) == (1e6, LaterQuota(at_s=12.0, quota=0.5e6))
    assert other.later is None


def test_daemons_that_a_run_restarts_in_turn_are_planned_restarts() -> None:
    scenario = replace(SCENARIO, daemon=ScenarioDaemon(count=2, restarts_s=(9.0, 3.0, 6.0)))
    there = replace(HERE, bootstrap="d1:1,d2:2", addresses=("d1:1", "d2:2"))

    planned = scenario_plan(scenario, in_force(scenario), there, run_id=1).restarts

    assert [(each.server, each.at_s - scenario.unjudged_s) for each in planned] == [
        ("d1:1", 3.0),
        ("d2:2", 6.0),
        ("d1:1", 9.0),
    ]


def test_clients_are_spread_over_several_daemons_with_a_bucket_at_each() -> None:
    quota = ScenarioQuota(entity=Entity.of(user="ANONYMOUS"), values=(("producer_byte_rate", 1e6),))
    three = replace(PRODUCER, client_id="a-{n}", count=3)
    scenario = replace(SCENARIO, daemon=ScenarioDaemon(count=2), quotas=(quota,), entities=(three,))
    limits = in_force(scenario)
    there = replace(HERE, bootstrap="d1,d2", addresses=("d1", "d2"))

    apart = scenario_plan(scenario, limits, there, run_id=1)
    together = scenario_plan(scenario, limits, replace(there, is_fleet=True), run_id=1)
    moved = at_environment(apart, replace(there, bootstrap="d3,d4", addresses=("d3", "d4")))

    assert [each.bootstrap for each in apart.entities] == ["d1", "d2", "d1"]
    assert [bool(each.bucket) for each in apart.entities] == [True, False, True]
    assert len({each.bucket for each in together.entities}) == 1
    assert [each.bootstrap for each in moved.entities] == ["d3", "d4", "d3"]
    assert moved.bootstrap == "d3,d4"


def test_nothing_stands_against_a_sound_scenario() -> None:
    assert preflight(SCENARIO, EMBEDDED) == ()
    assert preflight(SCENARIO, BROKER) == ()


LOWERED = QuotaStep(at_s=9.0, entity=Entity.of(client_id="a"), values=(("producer_byte_rate", 0.5e6),))
MUTATING = replace(SCENARIO, entities=(MUTATOR,))


@pytest.mark.parametrize(
    ("scenario", "target", "message"),
    [
        (replace(SCENARIO, needs=TargetNeed.REAL_BROKER), EMBEDDED, "s needs a real broker"),
        (replace(SCENARIO, needs=TargetNeed.DAEMON), BROKER, "s is about the daemon"),
        (replace(SCENARIO, security=Security.SASL_PLAIN), EMBEDDED, "the embedded cluster knows no sasl-plain"),
        (MUTATING, EMBEDDED, "the embedded cluster makes no topics on request"),
        (replace(SCENARIO, probes=(Probe(kind=ProbeKind.CREATE_TOPIC),)), EMBEDDED, "makes no topics on request"),
        (SCENARIO, replace(EMBEDDED, through_daemon=False), "the embedded cluster keeps no quotas"),
        (replace(SCENARIO, variants=(Variant.WITHOUT_QUOTAS,), quotas=()), BROKER, "there are no quotas to leave out"),
        (with_client(client_id="a-{n}", count=101), BROKER, "101 clients of librdkafka in one run"),
        (with_client(client_id="a-{n}", count=1001, client=ClientKind.RAW), BROKER, "1001 clients in one run"),
        (with_client(client=ClientKind.RAW, connections=999_999), BROKER, "999999 connections, and this machine"),
        (MUTATING, replace(BROKER, limits=HostLimits(open_files=20_000, max_maps=65_530)), "20002 partitions, and a"),
        (with_client(count=2), BROKER, "count and {n} belong together"),
        (with_client(user="alice"), BROKER, "on plaintext everybody is ANONYMOUS"),
        (replace(SCENARIO, security=Security.SASL_SCRAM), BROKER, "a has no user"),
        (with_client(client_id=None), BROKER, "librdkafka always sends a client-id"),
        (with_client(honor_throttle=False), BROKER, "only a raw client can be told to ignore"),
        (with_client(does=Workload.CONNECT), BROKER, "librdkafka can't do connect"),
        (with_client(does=Workload.REQUESTS, client=ClientKind.RAW), BROKER, "does requests, and says not which"),
        (with_client(request=RequestFlood(api="Fetch")), BROKER, "a has a flood, and does produce"),
        (with_client(topic="other"), BROKER, "a wants topic other"),
        (with_client(does=Workload.CONSUME), BROKER, "a reads topic t, which is empty"),
        (with_client(start_s=20.0), BROKER, "a joins at 20 s, and the run ends at 20 s"),
        (with_client(start_s=5.0, stop_s=4.0), BROKER, "a leaves at 4 s, before it joins"),
        (
            replace(SCENARIO, quota_steps=(LOWERED,), duration_s=9.0),
            BROKER,
            "a quota changes at 9 s, and the run",
        ),
        (replace(SCENARIO, quota_steps=(LOWERED,), variants=tuple(Variant)), BROKER, "and it has variants"),
        (replace(SCENARIO, daemon=ScenarioDaemon(count=2)), BROKER, "s is about several daemons"),
        (replace(SCENARIO, daemon=ScenarioDaemon(is_fleet=True)), EMBEDDED, "a fleet takes several daemons"),
        (
            replace(SCENARIO, daemon=ScenarioDaemon(restarts_s=(1.0,))),
            EMBEDDED,
            "a rolling restart takes several daemons",
        ),
        (
            replace(SCENARIO, daemon=ScenarioDaemon(count=2, restarts_s=(1.0, 5e3))),
            EMBEDDED,
            "a daemon is to be restarted at 5000 s, and",
        ),
        (
            replace(SCENARIO, daemon=ScenarioDaemon(count=2), variants=tuple(Variant)),
            EMBEDDED,
            "there are several daemons, and",
        ),
        (
            replace(SCENARIO, variants=(Variant.WITHOUT_QUOTAS,)),
            BROKER,
            "a run without the quotas alone judges nothing",
        ),
        (replace(SCENARIO, quotas=()), BROKER, "a rate in multiples of the quota needs a quota"),
        (staged("9s:1MB/s", rate=AS_FAST_AS_POSSIBLE), BROKER, "a has stages, which begin with a rate"),
        (staged("9s:1MB/s", loop=Loop.CLOSED), BROKER, "a has stages and a closed loop"),
        (staged("9s:1MB/s", control=True), BROKER, "whose latencies compare at one rate only"),
        (staged("9s:1MB/s", "9s:0", start_s=4.0), BROKER, "its stages take 18 s, and 16 s of the run are measured"),
        (staged("9s:0", rate=NO_LOAD), BROKER, "a offers 0 in all of its stages"),
        (staged("9s:1MB/s", does=Workload.CONNECT, client=ClientKind.RAW), BROKER, "a rate in bytes is no rate"),
        (replace(SCENARIO, expect=("nonsense",)), BROKER, "nonsense"),
        (replace(SCENARIO, abort_on=("achieved > 1",)), BROKER, "known at the end of a run only"),
        (replace(SCENARIO, topics=(ScenarioTopic(name="t", replication_factor=3),)), BROKER, "wants 3 replicas"),
        (
            replace(
                SCENARIO,
                topics=(ScenarioTopic(name="t", fill=10, record_size=100_000),),
                entities=(replace(PRODUCER, does=Workload.CONSUME, judge_by=1000.0),),
            ),
            BROKER,
            "a can never get a record of 100 kB",
        ),
    ],
)
def test_what_can_not_be_is_refused_with_its_reason(
    scenario: Scenario, target: TargetCapabilities, message: str
) -> None:
    found = preflight(scenario, target)

    assert message in " ".join(each.message for each in found), found


def test_one_that_is_typed_may_be_short_and_brings_its_logins() -> None:
    assert preflight(replace(SCENARIO, duration_s=3.0), BROKER, is_typed=True) == ()
    assert preflight(with_client(user="alice"), BROKER, is_typed=True) == ()


def test_a_scale_multiplies_what_the_scenario_says_and_nothing_else() -> None:
    scenario = replace(
        MUTATING, scaling=Scaling(multiplies=(Scaled.TOPICS, Scaled.RATE)), topics=(ScenarioTopic(name="t", fill=9),)
    )

    small = scaled(scenario, 0.1)

    flood = small.entities[0].flood
    assert isinstance(flood, MutationFlood)
    assert (flood.total_topics, flood.topics_per_request) == (500, 50)
    assert small.entities[0].rate.figure == 1
    assert (small.topics, small.duration_s) == (scenario.topics, scenario.duration_s)
    assert scaled(scenario, 1.0) == scenario
    for factor in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="a scale must be above 0"):
            scaled(scenario, factor)
    with pytest.raises(UsageError, match="has nothing to scale"):
        scaled(SCENARIO, 0.5)


def test_a_scaled_duration_moves_the_times_of_clients_along() -> None:
    late = replace(PRODUCER, client_id="late", topic="t", rate=parse_offered_rate("1MB/s"), start_s=10.0, stop_s=15.0)
    scenario = replace(SCENARIO, entities=(PRODUCER, late), scaling=Scaling(multiplies=(Scaled.DURATION,)))

    half = scaled(scenario, 0.5)

    assert half.duration_s == 10.0
    assert [(each.start_s, each.stop_s) for each in half.entities] == [(0.0, None), (5.0, 7.5)]
    assert preflight(half, EMBEDDED) == ()


@pytest.mark.parametrize(
    ("rate", "judge_by", "per_second"),
    [("2req/s", None, 400), ("max", None, 30), ("2x-quota", None, 60), ("max", 7.0, 7), ("2x-quota", 7.0, 14)],
)
def test_a_flood_without_an_end_needs_partitions_at_its_rate(
    rate: str, judge_by: float | None, per_second: int
) -> None:
    flood = MutationFlood(topics_per_request=50, partitions_per_topic=4)
    client = replace(MUTATOR, mutation=flood, rate=parse_offered_rate(rate), judge_by=judge_by)
    quota = ScenarioQuota(entity=Entity.of(client_id="m"), values=(("controller_mutation_rate", 30.0),))
    scenario = replace(SCENARIO, entities=(client,), topics=(), quotas=(quota,), duration_s=20.0, warmup_s=0.0)

    assert partitions_needed(scenario) == per_second * 20


def test_the_largest_scale_is_that_of_the_tightest_limit() -> None:
    scenario = replace(MUTATING, scaling=Scaling(multiplies=(Scaled.TOPICS,)))
    few_files = HostLimits(open_files=10_000, max_maps=1_000_000)
    few_maps = HostLimits(open_files=1_000_000, max_maps=10_000)

    for limits in (few_files, few_maps):
        scale = largest_scale(scenario, limits)
        assert partitions_needed(scaled(scenario, scale)) <= limits.partitions
        assert partitions_needed(scaled(scenario, scale + 0.01)) > limits.partitions
    assert largest_scale(scenario, ROOMY) == 1.0


def test_a_plan_spells_out_clients_phases_and_rates() -> None:
    scenario = replace(
        SCENARIO,
        entities=(
            replace(PRODUCER, client_id="a-{n}", count=3, start_s=10.0, stop_s=15.0),
            replace(PRODUCER, client_id="b", rate=parse_offered_rate("max")),
        ),
        quotas=(ScenarioQuota(entity=Entity.of(client_id=None), values=(("producer_byte_rate", 1_024_000.0),)),),
    )

    plan = scenario_plan(scenario, in_force(scenario), HERE, run_id=7)

    assert [entity.name.label for entity in plan.entities] == ["a-1", "a-2", "a-3", "b"]
    late, greedy = plan.entities[0], plan.entities[3]
    assert (late.start_s, late.stop_s, late.topic) == (13.0, 18.0, "p-t")
    assert (late.arrivals_per_second, greedy.arrivals_per_second) == (Fraction(2000), None)
    assert (late.quota, plan.warmup_s, plan.run_id) == (1_024_000.0, 3.0, 7)
    assert [entity.bucket for entity in plan.entities] == [""] * 4  # a default is a bucket for each client


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), frozenset[str]()),
        (("--on-violation", "error"), frozenset(("THROTTLING_QUOTA_EXCEEDED",))),
        (("--on-violation=delay-then-error",), frozenset(("THROTTLING_QUOTA_EXCEEDED",))),
    ],
)
def test_refusals_belong_to_a_daemon_that_answers_by_errors(options: tuple[str, ...], expected: frozenset[str]) -> None:
    scenario = replace(SCENARIO, daemon=ScenarioDaemon(options=options))
    load = scenario_plan(scenario, in_force(scenario), HERE, run_id=1).entities[0]

    assert expected_errors(scenario, load) == expected
    assert expected_errors(scenario, replace(load, quota=None)) == frozenset()


def test_a_plan_has_every_quota_that_concerns_a_client() -> None:
    quota = ScenarioQuota(
        entity=Entity.of(client_id="a"),
        values=(("producer_byte_rate", 1e6), ("consumer_byte_rate", 5e6), ("request_percentage", 2.0)),
    )
    scenario = replace(SCENARIO, quotas=(quota,))
    load = scenario_plan(scenario, in_force(scenario), HERE, run_id=1).entities[0]

    assert load.quotas == (("producer_byte_rate", 1e6), ("request_percentage", 2.0))


def test_clients_that_share_a_quota_are_marked() -> None:
    quotas = (ScenarioQuota(entity=Entity.of(user="ANONYMOUS"), values=(("producer_byte_rate", 1e6),)),)
    scenario = replace(with_client(client_id="a-{n}", count=2), quotas=quotas)

    plan = scenario_plan(scenario, in_force(scenario), HERE, run_id=7)

    assert plan.entities[0].bucket == plan.entities[1].bucket != ""


def test_stages_become_a_ramp_from_the_end_of_the_warmup_on() -> None:
    scenario = staged("5s:2x-quota", "0s:0")
    base, peak = Fraction(100_000, 1024), Fraction(2_000_000, 1024)

    (client,) = scenario_plan(scenario, in_force(scenario), HERE, run_id=1).entities
    late = replace(scenario, entities=(replace(scenario.entities[0], start_s=2.0),))
    (joined,) = scenario_plan(late, in_force(late), HERE, run_id=1).entities

    assert client.arrivals_per_second == peak
    phases = [(each.duration_s, each.start_rate, each.end_rate) for each in client.ramp]
    assert phases == [(3.0, base, base), (5.0, base, peak), (0.0, peak, 0)]
    assert [each.duration_s for each in joined.ramp] == [0.0, 5.0, 0.0]


def test_a_scale_multiplies_rates_and_times_of_stages() -> None:
    whole = replace(staged("5s:1MB/s"), scaling=Scaling(multiplies=(Scaled.RATE, Scaled.DURATION)))
    (stage,) = scaled(whole, 0.5).entities[0].stages

    assert (stage.duration_s, stage.target.figure) == (2.5, 500_000)


def test_without_quotas_the_load_is_the_same_and_nothing_is_judged_by_them() -> None:
    plan = scenario_plan(SCENARIO, in_force(SCENARIO), HERE, run_id=7)

    free = same_load(plan, in_force(replace(SCENARIO, quotas=())))

    assert free.entities[0].arrivals_per_second == plan.entities[0].arrivals_per_second
    assert (plan.entities[0].quota, free.entities[0].quota) == (1e6, None)


def test_the_control_runs_alone_first() -> None:
    scenario = replace(SCENARIO, entities=(PRODUCER, replace(PRODUCER, client_id="c", control=True, judge_by=math.inf)))
    free = replace(
        scenario, entities=(scenario.entities[0], replace(scenario.entities[1], rate=parse_offered_rate("max")))
    )

    plan = scenario_plan(free, in_force(free), HERE, run_id=7)
    alone = solo_plan(plan, duration_s=5.0)

    assert alone is not None
    assert [entity.name.label for entity in alone.entities] == ["c"]
    assert (alone.duration_s, alone.warmup_s) == (5.0, 1.0)
    assert solo_plan(replace(plan, entities=plan.entities[:1]), duration_s=5.0) is None


def test_changed_quotas_are_told_by_who_they_concern() -> None:
    names = [ClientName(user=None, client_id=each) for each in ("a", "b")]
    before = quotas_in_force([], names)
    after = quotas_in_force([QuotaEntry(entity=Entity.of(client_id=None), quotas={"producer_byte_rate": 2e6})], names)

    assert differences(before, before) == ()
    assert differences(before, after) == ("producer_byte_rate of a: no limit became 2 MB/s (and of 1 others)",)
