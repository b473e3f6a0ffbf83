"""`load-test validate`: whether a scenario can be run on a target, told without touching it.

`load-test list`: the scenarios that are shipped, and what each needs.
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
    """A scenario in the list: its name, what it shows, where the figure comes from, what it needs, how long it takes.

    `seconds` are those under load: control clients alone first, then every variant.
    """

    name: str
    title: str
    source: str
    needs_broker: bool
    needs_daemon: bool
    clients: int
    seconds: float
    scales: bool


def needs_broker(scenario: Scenario) -> bool:
    """Whether the embedded cluster can't run it, whatever stands in front."""
    return scenario.needs is TargetNeed.REAL_BROKER or scenario.security is not Security.PLAINTEXT or scenario.mutates


def listed_scenarios() -> tuple[ListedScenario, ...]:
    """The scenarios that are shipped, sorted by name."""
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
    """How long the load of a scenario lasts in all, in seconds; starting and clearing up come on top."""
    solo_s = scenario.solo_s * 1.2 if any(entity.control for entity in scenario.entities) else 0.0
    return (solo_s + scenario.unjudged_s + scenario.duration_s) * len(scenario.variants)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCheck:
    """What was found: the scale to run it at, the largest that a broker here can bear, and what stands against it.

    `partitions` and `clients` are those at that scale.
    """

    name: str
    scale: float
    largest: float
    clients: int
    partitions: int
    seconds: float
    limits: HostLimits
    obstacles: tuple[Obstacle, ...]

    @property
    def ok(self) -> bool:
        """Whether it can be run."""
        return not self.obstacles


def validate_scenario(
    scenario: Scenario, target: LoadTarget, *, limits: HostLimits, scale: float | None
) -> ScenarioCheck:
    """What was found about a scenario on a target; `scale` None is the one that would be taken.

    Raises `UsageError` for a scale that it can't have.
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
