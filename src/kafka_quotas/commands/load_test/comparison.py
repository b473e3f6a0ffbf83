"""The same load with and without a scenario's quotas, in short runs that alternate."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_quotas import loadtest
from kafka_quotas.commands.load_test.request import RunRequest
from kafka_quotas.commands.load_test.target import EVENT_LOG
from kafka_quotas.commands.quotas.quota_checks import findings_of_change
from kafka_quotas.commands.testbed.kafka_broker import kafka_classes, known_jars
from kafka_quotas.core.changes.plan import planned
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.core.resolution.effective import ANONYMOUS, EffectiveQuotas
from kafka_quotas.stores import Store

Opened = Callable[[loadtest.Variant, str], AbstractContextManager[loadtest.Environment]]
"""Sets the quotas of a variant, and opens an environment with a name of its own, for the time of one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """What the runs with and without quotas show."""

    effects: Mapping[loadtest.EntityKey, loadtest.QuotaEffect] = field(default_factory=dict)
    without_quotas: loadtest.LoadResult | None = None
    """The first run without them, None where there was no time for it."""
    is_interrupted: bool = False


def run_experiment(
    plan: loadtest.LoadPlan,
    scenario: loadtest.Scenario,
    *,
    opened: Opened,
    run: Callable[[loadtest.LoadPlan], loadtest.LoadResult],
    step: Callable[[str], None],
    time_s: float,
) -> ExperimentResult:
    """Run the load without the quotas, and where there are control clients with and without, in turn.

    `run` runs one plan and returns its result. `step` receives a line for each run.
    """
    controls = [load.key for load in plan.entities if load.control]
    if not controls:  # two windows show a rate above its quota, and latencies that need more are not compared
        scenario = replace(scenario, solo_s=0.0)
    length_s = plan.warmup_s + scenario.short_run_s
    end_s = time.monotonic() + time_s
    number, is_interrupted = 0, False

    def one_run(has_quotas: bool) -> loadtest.LoadResult:  # noqa: FBT001 - which of the two sides it is
        nonlocal number, is_interrupted
        number += 1
        variant = loadtest.Variant.WITH_QUOTAS if has_quotas else loadtest.Variant.WITHOUT_QUOTAS
        step(f"{running_text(plan, length_s, variant)}, to compare (run {number})")
        with opened(variant, f"compared-{number}") as environment:
            result = run(short_run(loadtest.at_environment(plan, environment), scenario, number=number))
        is_interrupted = is_interrupted or result.interrupted
        return result

    def has_time() -> bool:
        return not is_interrupted and time.monotonic() + length_s <= end_s

    if not controls:
        without = one_run(has_quotas=False) if has_time() else None
        return ExperimentResult(without_quotas=without, is_interrupted=is_interrupted)
    sides = loadtest.alternating(
        one_run,
        is_decided=lambda *sides: all(
            effect is not None and (effect.is_shown or effect.is_refuted)
            for effect in (_effect(key, *sides) for key in controls)
        ),
        has_time=has_time,
    )
    effects = {key: effect for key in controls if (effect := _effect(key, *sides)) is not None}
    return ExperimentResult(
        effects=effects, without_quotas=sides[1][0] if sides[1] else None, is_interrupted=is_interrupted
    )


def running_text(plan: loadtest.LoadPlan, length_s: float, variant: loadtest.Variant) -> str:
    """Return the step of a run: how many clients run for how long, and whether the quotas are on."""
    quotas = "on" if variant is loadtest.Variant.WITH_QUOTAS else "off"
    return f"running {format_count(len(plan.entities), 'client')} for {length_s:g} s, quotas {quotas}"


def short_run(plan: loadtest.LoadPlan, scenario: loadtest.Scenario, *, number: int) -> loadtest.LoadPlan:
    """Return the plan of a short run, with all clients from the start and judged by the same quotas."""
    return replace(
        plan,
        restarts=(),
        run_id=plan.run_id + number,
        duration_s=scenario.short_run_s,
        entities=tuple(replace(load, start_s=0.0, stop_s=None, later=None) for load in plan.entities),
    )


def _effect(
    key: loadtest.EntityKey, limited: Sequence[loadtest.LoadResult], free: Sequence[loadtest.LoadResult]
) -> loadtest.QuotaEffect | None:
    return loadtest.quota_effect(*([_p90_us(run, key) for run in side] for side in (limited, free)))


def _p90_us(run: loadtest.LoadResult, key: loadtest.EntityKey) -> int:
    return next(entity.response.p90_us for entity in run.entities if entity.key == key)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredVariant:
    """The measurements of one variant."""

    plan: loadtest.LoadPlan
    direct: loadtest.LoadPlan
    """Plan with the cluster's own address, past the daemon, for reading topics back."""
    result: loadtest.LoadResult
    solo: Mapping[loadtest.EntityKey, loadtest.LatencySummary]
    marks: loadtest.TopicMarks
    changed: tuple[str, ...]
    ended_early: bool
    """Whether a signal or a broken threshold ended the load before its time."""
    outages: tuple[str, ...]


def gathered_evidence(
    measured: MeasuredVariant,
    scenario: loadtest.Scenario,
    request: RunRequest,
    *,
    variant: loadtest.Variant,
    folder: Path,
    step: Callable[[str], None],
) -> loadtest.Evidence:
    """Gather the evidence on a run, after quotas were restored: reading back would use them too.

    `folder` is the test bed's, with the event logs of the variant's daemons. `step` receives a line every few seconds.
    """
    result, is_limited = measured.result, variant is loadtest.Variant.WITH_QUOTAS
    expectations = tuple(map(loadtest.parse_expectation, (*scenario.expect, *scenario.abort_on)))
    checks_delivery = request.checks_delivery and not result.interrupted
    return loadtest.Evidence(
        solo=measured.solo,
        control_factor=scenario.control_factor,
        deliveries=loadtest.read_back(measured.direct, result.entities, measured.marks, step=step)
        if checks_delivery
        else {},
        charges=loadtest.logged_charges(
            folder / variant.value / EVENT_LOG,
            measured.plan.entities,
            started_ms=result.started_ms,
            ended_ms=result.started_ms + round(result.elapsed_s * 1000),
        ),
        time_limited=frozenset(entity.key for entity in measured.plan.entities if entity.is_time_limited),
        expected_errors={load.key: loadtest.expected_errors(scenario, load) for load in measured.plan.entities},
        quotas_changed="; ".join(measured.changed) or None,
        outages=measured.outages,
        expectations=expectations if is_limited and request.terms.share == loadtest.WHOLE else (),
    )


def judged_variant(
    measured: MeasuredVariant,
    evidence: loadtest.Evidence,
    compared: ExperimentResult,
    scenario: loadtest.Scenario,
    request: RunRequest,
    *,
    variant: loadtest.Variant,
) -> loadtest.LoadResult:
    """Judge a variant by its evidence, and by the comparison with the load without quotas."""
    result, is_limited = measured.result, variant is loadtest.Variant.WITH_QUOTAS
    title = scenario.name if is_limited else f"{scenario.name}, {variant.value}"
    result = replace(result, title=title, interrupted=result.interrupted or compared.is_interrupted)
    if is_limited:
        evidence = replace(evidence, effects=compared.effects, without_quotas=compared.without_quotas)
    with kafka_classes(known_jars(request.target.broker_jars, os.environ)) as judge:
        return loadtest.judge_run(result, replace(evidence, throttle_judge=judge))


def check_effect(
    store: Store,
    wanted: Iterable[tuple[Entity, Mapping[str, float]]],
    names: Sequence[loadtest.ClientName],
    *,
    warn: Callable[[str], None],
) -> None:
    """Warn of each quota to set that no client gets."""
    wanted = list(wanted)
    before = {entry.entity: entry.quotas for entry in store.describe(EVERYTHING)}
    plan = planned(before, loadtest.changes_to(store, wanted))
    after = plan.applied_to(before)
    findings = [each for each in findings_of_change(before, after, plan.changes) if each.check == "shadowed"]
    if not _reaches(after, wanted, names):
        first = next(iter(findings), None)
        raise UsageError(
            "no client of the run gets any of the quotas that it sets"
            + ("" if first is None else f": {first.about}: {first.sentence}"),
            hint="name clients and quotas of the same users and client-ids" if first is None else first.remedy,
        )
    for each in findings:
        warn(f"{each.about}: {each.sentence}; {each.remedy}")


def _reaches(
    content: Mapping[Entity, Mapping[str, float]],
    wanted: Sequence[tuple[Entity, Mapping[str, float]]],
    names: Sequence[loadtest.ClientName],
) -> bool:
    """Return whether any client gets any of the wanted quotas from the entity that they are set on."""
    set_here = {(entity, key) for entity, values in wanted for key in values}
    resolver = EffectiveQuotas(content.items())
    clients = (resolver.for_client(name.user or ANONYMOUS, name.client_id or "") for name in names)
    return any(
        (quota.entity, quota.key.name) in set_here
        for quotas in (*clients, (resolver.for_ip(loadtest.LOCAL_ADDRESS),))
        for quota in quotas
    )
