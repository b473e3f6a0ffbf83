"""`load-test validate`: whether a scenario can be run on a target, told without touching it."""

from dataclasses import dataclass, replace

from kafka_quotas.commands.load_list import seconds_under_load
from kafka_quotas.commands.load_order import fitting_scale
from kafka_quotas.commands.load_target import LoadTarget
from kafka_quotas.loadtest.host_limits import HostLimits
from kafka_quotas.loadtest.scenario import Scenario
from kafka_quotas.loadtest.scenario_check import Obstacle, obstacles
from kafka_quotas.loadtest.scenario_partitions import largest_scale, partitions_needed
from kafka_quotas.loadtest.scenario_scale import scaled


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
