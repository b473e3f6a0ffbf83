"""`load-test validate`: checks of a scenario that touch no target, its needs, and the length of its load."""

from dataclasses import dataclass, replace

from kafka_quotas.commands.load_test.request import RunLength, fitting_scale, run_length
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.loadtest.run.host_limits import HostLimits
from kafka_quotas.loadtest.scenario.model import Scenario, Security, TargetNeed
from kafka_quotas.loadtest.scenario.preflight import Mismatch, preflight
from kafka_quotas.loadtest.scenario.scaling import largest_scale, partitions_needed, scaled


def needs_broker(scenario: Scenario) -> bool:
    """Check whether the scenario needs a real broker, with or without the daemon in front."""
    return scenario.needs is TargetNeed.REAL_BROKER or scenario.security is not Security.PLAINTEXT or scenario.mutates


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
    length: RunLength | None
    """How long it takes, None where it can't be planned."""
    limits: HostLimits
    findings: tuple[Mismatch, ...]
    """Reasons why it can't run."""

    @property
    def ok(self) -> bool:
        """Whether the scenario can run."""
        return not self.findings


def validate_scenario(
    scenario: Scenario, target: LoadTarget, *, limits: HostLimits, scale: float | None
) -> ScenarioCheck:
    """Check a scenario against a target, at the scale that a run would choose where none is given.

    Raises:
        UsageError: The scenario can't have the scale.
    """
    if target.window is not None:
        scenario = replace(scenario, window=target.window)
    chosen = fitting_scale(scenario, target, limits) if scale is None else scale
    sized = scaled(scenario, chosen)
    findings = preflight(sized, target.capabilities(limits))
    return ScenarioCheck(
        name=scenario.name,
        scale=chosen,
        largest=largest_scale(scenario, limits),
        clients=sized.clients,
        partitions=partitions_needed(sized),
        length=None if findings else run_length(sized),
        limits=limits,
        findings=findings,
    )
