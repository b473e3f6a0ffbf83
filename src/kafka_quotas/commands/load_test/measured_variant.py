"""The measurements of one variant of a scenario, the evidence gathered on them, and their judgement."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_quotas.commands.load_test.experiment import ExperimentResult
from kafka_quotas.commands.load_test.request import RunRequest
from kafka_quotas.commands.load_test.target import EVENT_LOG
from kafka_quotas.commands.testbed.kafka_classes import kafka_classes, known_jars
from kafka_quotas.loadtest.judge.expectation import Expectation, parse_expectation
from kafka_quotas.loadtest.judge.judging import Evidence, judge_run
from kafka_quotas.loadtest.plan.plan import WHOLE, LoadPlan
from kafka_quotas.loadtest.record.histogram import LatencySummary
from kafka_quotas.loadtest.result.charges import logged_charges
from kafka_quotas.loadtest.result.result import EntityKey, LoadResult
from kafka_quotas.loadtest.run.read_back import TopicMark, read_back
from kafka_quotas.loadtest.scenario.model import Scenario, Variant
from kafka_quotas.loadtest.scenario.planning import expected_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredVariant:
    """The measurements of one variant."""

    plan: LoadPlan
    direct: LoadPlan
    """Plan with the cluster's own address, past the daemon, for reading topics back."""
    result: LoadResult
    solo: Mapping[EntityKey, LatencySummary]
    marks: tuple[TopicMark, ...]
    changed: tuple[str, ...]
    ended_early: bool
    """Whether a signal or a broken threshold ended the load before its time."""
    outages: tuple[str, ...]


def gathered_evidence(
    measured: MeasuredVariant,
    scenario: Scenario,
    request: RunRequest,
    *,
    variant: Variant,
    folder: Path,
    aborts: Sequence[Expectation],
    step: Callable[[str], None],
) -> Evidence:
    """Gather the evidence on a run, after quotas were restored: reading back would use them too.

    `folder` is the test bed's, with the event logs of the variant's daemons. `step` receives a line every few seconds.
    """
    result, is_limited = measured.result, variant is Variant.WITH_QUOTAS
    expectations = (*map(parse_expectation, scenario.expect), *request.expectations, *aborts)
    checks_delivery = request.checks_delivery and not result.interrupted
    return Evidence(
        solo=measured.solo,
        control_factor=request.control_factor or scenario.control_factor,
        deliveries=read_back(measured.direct, result.entities, measured.marks, step=step) if checks_delivery else {},
        charges=logged_charges(
            folder / variant.value / EVENT_LOG,
            measured.plan.entities,
            started_ms=result.started_ms,
            ended_ms=result.started_ms + round(result.elapsed_s * 1000),
        ),
        time_limited=frozenset(entity.key for entity in measured.plan.entities if entity.is_time_limited),
        expected_errors={load.key: expected_errors(scenario, load) for load in measured.plan.entities},
        quotas_changed="; ".join(measured.changed) or None,
        outages=measured.outages,
        expectations=expectations if is_limited and request.share == WHOLE else (),
    )


def judged_variant(
    measured: MeasuredVariant,
    evidence: Evidence,
    compared: ExperimentResult,
    scenario: Scenario,
    request: RunRequest,
    *,
    variant: Variant,
) -> LoadResult:
    """Judge a variant by its evidence, and by the comparison with the load without quotas."""
    result, is_limited = measured.result, variant is Variant.WITH_QUOTAS
    title = scenario.name if is_limited else f"{scenario.name}, {variant.value}"
    result = replace(result, title=title, interrupted=result.interrupted or compared.is_interrupted)
    if is_limited:
        evidence = replace(evidence, effects=compared.effects, without_quotas=compared.without_quotas)
    with kafka_classes(known_jars(request.target.broker_jars, os.environ)) as judge:
        return judge_run(result, replace(evidence, throttle_judge=judge))
