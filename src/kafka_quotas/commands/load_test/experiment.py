"""The same load with and without a scenario's quotas, in short runs that alternate."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.loadtest.judge.experiment import alternating, quota_effect
from kafka_quotas.loadtest.plan.plan import LoadPlan
from kafka_quotas.loadtest.result.effect import QuotaEffect
from kafka_quotas.loadtest.result.result import EntityKey, LoadResult
from kafka_quotas.loadtest.scenario.model import Scenario, Variant
from kafka_quotas.loadtest.scenario.planning import Environment, at_environment

Opened = Callable[[Variant, str], AbstractContextManager[Environment]]
"""Sets the quotas of a variant, and opens an environment with a name of its own, for the time of one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """What the runs with and without quotas show."""

    effects: Mapping[EntityKey, QuotaEffect] = field(default_factory=dict)
    """What the quotas change for each control client."""
    without_quotas: LoadResult | None = None
    """The first run without them, None where there was no time for it."""
    is_interrupted: bool = False


def run_experiment(
    plan: LoadPlan,
    scenario: Scenario,
    *,
    opened: Opened,
    run: Callable[[LoadPlan], LoadResult],
    step: Callable[[str], None],
    time_s: float,
) -> ExperimentResult:
    """Run the load without the quotas, and where there are control clients with and without, in turn.

    `run` runs one plan and returns its result. `step` receives a line for each run.
    """
    controls = [load.key for load in plan.entities if load.control]
    if not controls:  # two windows show a rate above its quota, and latencies that need more are not compared
        scenario = replace(scenario, solo_s=0.0)
    length_s = plan.warmup_s + block_s(scenario)
    end_s = time.monotonic() + time_s
    number, is_interrupted = 0, False

    def one_run(has_quotas: bool) -> LoadResult:  # noqa: FBT001 - which of the two sides it is
        nonlocal number, is_interrupted
        number += 1
        variant = Variant.WITH_QUOTAS if has_quotas else Variant.WITHOUT_QUOTAS
        step(f"{running_text(plan, length_s, variant)}, to compare (run {number})")
        with opened(variant, f"compared-{number}") as environment:
            result = run(short_run(at_environment(plan, environment), scenario, number=number))
        is_interrupted = is_interrupted or result.interrupted
        return result

    def has_time() -> bool:
        return not is_interrupted and time.monotonic() + length_s <= end_s

    if not controls:
        without = one_run(has_quotas=False) if has_time() else None
        return ExperimentResult(without_quotas=without, is_interrupted=is_interrupted)
    sides = alternating(
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


def running_text(plan: LoadPlan, length_s: float, variant: Variant) -> str:
    """Return the step of a run: how many clients run for how long, and whether the quotas are on."""
    quotas = "on" if variant is Variant.WITH_QUOTAS else "off"
    return f"running {format_count(len(plan.entities), 'client')} for {length_s:g} s, quotas {quotas}"


def block_s(scenario: Scenario) -> float:
    """Return the measured seconds of a run, two windows at least, which show a rate above its quota."""
    return max(scenario.solo_s, 2 * scenario.window_s)


def short_run(plan: LoadPlan, scenario: Scenario, *, number: int) -> LoadPlan:
    """Return the plan of a short run, with all clients from the start and judged by the same quotas."""
    return replace(
        plan,
        restarts=(),
        run_id=plan.run_id + number,
        duration_s=block_s(scenario),
        entities=tuple(replace(load, start_s=0.0, stop_s=None, later=None) for load in plan.entities),
    )


def _effect(key: EntityKey, limited: Sequence[LoadResult], free: Sequence[LoadResult]) -> QuotaEffect | None:
    return quota_effect(*([_p90_us(run, key) for run in side] for side in (limited, free)))


def _p90_us(run: LoadResult, key: EntityKey) -> int:
    return next(entity.response.p90_us for entity in run.entities if entity.key == key)
