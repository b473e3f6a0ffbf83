"""`load-test list`: the scenarios that are shipped, and what each needs."""

from dataclasses import dataclass

from kafka_quotas.loadtest.scenario import Scenario, Security, TargetNeed
from kafka_quotas.loadtest.scenario_file import read_scenario, shipped_names


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
