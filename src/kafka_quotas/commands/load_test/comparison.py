"""The same load with and without a scenario's quotas, in short runs that alternate."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from kafka_quotas import loadtest
from kafka_quotas.commands.quotas.quota_checks import findings_of_change
from kafka_quotas.core.changes.plan import applied, planned
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
            result = run(_short_run(loadtest.at_environment(plan, environment), scenario, number=number))
        is_interrupted = is_interrupted or result.interrupted
        return result

    def has_time() -> bool:
        return not is_interrupted and time.monotonic() + length_s <= end_s

    def is_decided(*sides: Sequence[loadtest.LoadResult]) -> bool:
        effects = (_effect(key, *sides) for key in controls)
        return all(effect is not None and (effect.is_shown or effect.is_refuted) for effect in effects)

    if controls:
        sides = loadtest.alternating(one_run, is_decided=is_decided, has_time=has_time)
    else:
        sides = ([], [one_run(has_quotas=False)] if has_time() else [])
    effects = {key: effect for key in controls if (effect := _effect(key, *sides)) is not None}
    return ExperimentResult(
        effects=effects, without_quotas=sides[1][0] if sides[1] else None, is_interrupted=is_interrupted
    )


def running_text(plan: loadtest.LoadPlan, length_s: float, variant: loadtest.Variant) -> str:
    """Return the step of a run: how many clients run for how long, and whether the quotas are on."""
    quotas = "on" if variant is loadtest.Variant.WITH_QUOTAS else "off"
    return f"running {format_count(len(plan.entities), 'client')} for {length_s:g} s, quotas {quotas}"


def _short_run(plan: loadtest.LoadPlan, scenario: loadtest.Scenario, *, number: int) -> loadtest.LoadPlan:
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
    sides = ([each for run in side for each in run.entities if each.key == key] for side in (limited, free))
    return loadtest.quota_effect(*([each.response.p90_us for each in side] for side in sides))


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
    changes = planned(before, loadtest.changes_to(store, wanted)).changes
    after = applied(before, changes)
    findings = [each for each in findings_of_change(before, after, changes) if each.check == "shadowed"]
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
