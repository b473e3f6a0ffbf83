"""What a load test is asked for, and what came of it: the values around `load_run`."""

from dataclasses import dataclass, replace
from pathlib import Path

from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.judge.expectation import Expectation, check_entities, parse_expectation
from kafka_quotas.loadtest.result.result import LoadResult
from kafka_quotas.loadtest.run.host_limits import HostLimits, host_limits
from kafka_quotas.loadtest.scenario.model import Scenario, Variant
from kafka_quotas.loadtest.scenario.planning import client_names
from kafka_quotas.loadtest.scenario.preflight import obstacles
from kafka_quotas.loadtest.scenario.scaling import largest_scale, scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What is to be run, and where. `scale` None is the one that fits, see `fitting_scale`.

    `expectations` are more than the scenario's own; `control_factor` is how many times its solo p99 a control client's
    may be, None for what the scenario says. `is_typed`: it was spelled out by options, which say themselves who is who,
    and it may be too short to judge. `keeps_names`: topics go without a prefix where the cluster ends with the run.
    Without `reads_quotas` clients are judged by the quotas it names alone, without `checks_delivery` nothing is read
    back. `prometheus` are addresses of the brokers' own metrics, read beside the run.
    """

    scenario: Scenario
    target: LoadTarget
    journal_folder: Path
    scale: float | None = None
    expectations: tuple[Expectation, ...] = ()
    control_factor: float | None = None
    is_typed: bool = False
    keeps_names: bool = False
    reads_quotas: bool = True
    checks_delivery: bool = True
    prometheus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """A run of one variant."""

    variant: Variant
    result: LoadResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """A scenario's runs in order. Only the run with quotas is judged; the one without is what to compare it with.

    `interrupted`: it was ended before all was run. `leftovers` is what could not be put back, one line each.
    """

    scenario: Scenario
    scale: float
    runs: tuple[VariantResult, ...]
    interrupted: bool
    leftovers: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything ran and was put back, and the run with quotas met all that it is judged by."""
        judged = [run.result for run in self.runs if run.variant is Variant.WITH_QUOTAS]
        return not (self.interrupted or self.leftovers) and all(result.ok for result in judged)


def fitting_scale(scenario: Scenario, target: LoadTarget, limits: HostLimits) -> float:
    """The scale where none was given: all of it on a cluster that is there, else what suits a laptop.

    A broker that is started here gets no more partitions than the machine allows.
    """
    if target.is_theirs or not scenario.scaling.multiplies:
        return 1.0
    return min(scenario.scaling.laptop, largest_scale(scenario, limits))


def ready_scenario(order: RunRequest) -> tuple[Scenario, float]:
    """The scenario as it is to be run, with the scale that was taken.

    Raises `UsageError` with the first of its obstacles, and how many more there are.
    """
    limits = host_limits()
    window = order.target.window
    scenario = order.scenario if window is None else replace(order.scenario, window=window)
    scale = order.scale if order.scale is not None else fitting_scale(scenario, order.target, limits)
    scenario = scaled(scenario, scale)
    found = obstacles(scenario, order.target.ground(limits), is_typed=order.is_typed)
    if found:
        first, count = found[0], len(found)
        more = f" (and {count - 1} more, see load-test validate)" if count > 1 else ""
        raise UsageError(f"{first.message}{more}", hint=first.hint)
    check_entities(
        (*map(parse_expectation, scenario.expect), *order.expectations),
        [name.label for name in client_names(scenario)],
        has_control=any(entity.control for entity in scenario.entities),
    )
    return scenario, scale
