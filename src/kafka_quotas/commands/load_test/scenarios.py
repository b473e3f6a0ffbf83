"""`load-test validate` and `load-test list`: checks of a scenario against a target, and its description.

A check does not touch the target.
"""

from dataclasses import dataclass, replace

from kafka_quotas.commands.load_test.order import fitting_scale
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.loadtest.run.host_limits import HostLimits
from kafka_quotas.loadtest.scenario.file import read_scenario, shipped_names
from kafka_quotas.loadtest.scenario.model import Scenario, Security, TargetNeed
from kafka_quotas.loadtest.scenario.preflight import Obstacle, obstacles
from kafka_quotas.loadtest.scenario.scaling import largest_scale, partitions_needed, scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedScenario:
    """A shipped scenario in the list."""

    name: str
    title: str
    """What the scenario shows."""
    source: str
    """Where its figures come from."""
    needs_broker: bool
    needs_daemon: bool
    clients: int
    seconds: float
    """Seconds under load: control clients alone first, then every variant."""
    scales: bool


def needs_broker(scenario: Scenario) -> bool:
    """Check whether the scenario needs a real broker, with or without the daemon in front."""
    return scenario.needs is TargetNeed.REAL_BROKER or scenario.security is not Security.PLAINTEXT or scenario.mutates


def listed_scenarios() -> tuple[ListedScenario, ...]:
    """Return the shipped scenarios, sorted by name."""
    return tuple(_listed(read_scenario(name)) for name in shipped_names())


def _listed(scenario: Scenario) -> ListedScenario:
    return ListedScenario(
        name=scenario.name,
        title=scenario.title,
        source=scenario.source,
        needs_broker=needs_broker(scenario),
        needs_daemon=scenario.needs is TargetNeed.DAEMON,
        clients=scenario.clients,
        seconds=seconds_under_load(scenario),
        scales=bool(scenario.scaling.multiplies),
    )


def seconds_under_load(scenario: Scenario) -> float:
    """Return how long the load of a scenario lasts in all, in seconds, without its start and cleanup."""
    solo_s = scenario.solo_s * 1.2 if any(entity.control for entity in scenario.entities) else 0.0
    return (solo_s + scenario.unjudged_s + scenario.duration_s) * len(scenario.variants)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCheck:
    """The result of checking a scenario against a target."""

    name: str
    scale: float
    """Scale to run it at."""
    largest: float
    """Largest scale that a broker on this machine can bear."""
    clients: int
    """Clients at that scale."""
    partitions: int
    """Partitions at that scale."""
    seconds: float
    """Seconds under load."""
    limits: HostLimits
    obstacles: tuple[Obstacle, ...]
    """Reasons why it can't run."""

    @property
    def ok(self) -> bool:
        """Whether the scenario can run."""
        return not self.obstacles


def validate_scenario(
    scenario: Scenario, target: LoadTarget, *, limits: HostLimits, scale: float | None
) -> ScenarioCheck:
    """Check a scenario against a target.

    A scale of None is the one that a run would choose.

    Raises:
        UsageError: The scenario can't have the scale.
    """
    if target.window is not None:
        scenario = replace(scenario, window=target.window)
    chosen = fitting_scale(scenario, target, limits) if scale is None else scale
    sized = scaled(scenario, chosen)
    return ScenarioCheck(
        name=scenario.name,
        scale=chosen,
        largest=largest_scale(scenario, limits),
        clients=sized.clients,
        partitions=partitions_needed(sized),
        seconds=seconds_under_load(sized),
        limits=limits,
        obstacles=obstacles(sized, target.ground(limits)),
    )
