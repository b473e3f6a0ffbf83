"""The request for a load test and its result: the values around `run_scenario`."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Final

from kafka_quotas import loadtest
from kafka_quotas.commands.load_test.target import LoadTarget, floods_topics
from kafka_quotas.core.clock import parse_instant
from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.extras import require_extra
from kafka_quotas.core.model.setting import TextForm, setting
from kafka_quotas.core.model.value_format import format_duration_us, parse_duration_ms

EXPERIMENT_S: Final = 180.0
"""Default time for the load with and without quotas, on a target that ends with the run."""


def _share(text: str) -> loadtest.LoadShare:
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text, re.ASCII)
    if match is None:
        raise UsageError(f"not a shard: {text!r}", hint="write NUMBER/COUNT, such as 2/4")
    return loadtest.LoadShare(number=int(match[1]), count=int(match[2]))


def _instant(text: str) -> int:
    try:
        return parse_instant(text)
    except ValueError as error:
        raise UsageError(f"not a time: {text!r}", hint="write it as 2026-11-22T19:30:00Z") from error


_SECONDS: Final = TextForm(read=lambda text: float(parse_duration_ms(text) / 1000), pattern="")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """What of a scenario is run and judged."""

    scale: float | None = setting(
        "verdict",
        "--scale FACTOR",
        "Multiply the figures that the scenario lists under `scale`. Default: the full size on an existing cluster, "
        "else a size that suits a laptop and fits this machine's limits.",
        default=None,
    )
    duration_s: float | None = setting(
        "verdict",
        "--duration TIME",
        "How long to measure: 60s, 2min. Default: as long as verdicts take, which is five quota windows, and no less "
        "than the scenario or command does without quotas.",
        _SECONDS,
        default=None,
    )
    warmup_s: float | None = setting(
        "verdict",
        "--warmup TIME",
        "How long before that, not judged. Default: one quota window.",
        _SECONDS,
        default=None,
    )
    brokers: int | None = setting(
        "verdict",
        "--brokers N",
        "How many brokers keep the quota, each for itself. Default: those that lead the topic.",
        least=1,
        default=None,
    )
    expect: tuple[str, ...] = setting(
        "verdict",
        "--expect THRESHOLD",
        "A threshold of your own that has to be met: 'achieved/quota in 0.9..1.05', 'throttle.count > 0', "
        "'entity(app).response.p99 < 50ms'; may be repeated.",
        TextForm(read=lambda text: loadtest.parse_expectation(text).text, pattern=""),
        default=(),
    )
    share: loadtest.LoadShare = setting(
        "verdict",
        "--shard NUMBER/COUNT",
        "Put this share of every client's load on the target, as 2/4: every fourth arrival, from the second on. "
        "Shards have the same options and start together, and 'load-test merge' joins what they wrote with --out.",
        TextForm(read=_share, pattern="", write=lambda share: f"{share.number}/{share.count}"),
        default=loadtest.WHOLE,
    )
    start_at_ms: int | None = setting(
        "verdict",
        "--start-at TIME",
        "When the load begins, as 2026-11-22T19:30:00Z, late enough for all to be ready.",
        TextForm(read=_instant, pattern=""),
        default=None,
    )
    experiment_s: float | None = setting(
        "verdict",
        "--experiment TIME",
        "How long the same load may be run without the scenario's quotas, and with and without them in turn where "
        "there are control clients, to show what they change; 0s leaves it out. Default: 3min on a target that ends "
        "with the run, 0s on an existing cluster.",
        _SECONDS,
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The scenario to run, its target, and how to judge it."""

    scenario: loadtest.Scenario
    target: LoadTarget
    journal_folder: Path
    """Folder for the journal of changes to undo."""
    terms: RunTerms = RunTerms()
    is_typed: bool = False
    """Whether options spell the scenario out.

    They name the principals, topics go without a prefix if the cluster ends with the run, and it may be too short to
    judge.
    """
    reads_quotas: bool = True
    """Whether to read quotas from the cluster; otherwise those of the scenario alone judge clients."""
    checks_delivery: bool = True
    """Whether to read topics back after the run."""

    @property
    def experiment_time_s(self) -> float:
        """How long the experiment with and without quotas may take, by default only where it harms nobody."""
        if self.terms.experiment_s is not None:
            return self.terms.experiment_s
        return 0.0 if self.target.is_theirs or self.is_typed else EXPERIMENT_S

    def journal_header(self, run_id: int, *, started_ms: int) -> loadtest.RunHeader:
        """Return the header of the journal, without a cluster where the target ends with the run."""
        theirs = self.target.bootstrap if self.target.bootstrap is not None else ""
        keeps = "" if not theirs or self.target.through_daemon else self.target.store_url or f"kafka://{theirs}"
        return loadtest.RunHeader(
            run=f"{run_id:016x}",
            scenario=self.scenario.name,
            started_ms=started_ms,
            bootstrap=theirs,
            store=keeps,
            command_config=None if self.target.command_config is None else str(self.target.command_config.absolute()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """The run of one variant."""

    variant: loadtest.Variant
    result: loadtest.LoadResult
    shard: loadtest.Shard | None = None
    """The shard that the run was, None for a whole load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """A scenario's runs in order, of which only the one with quotas is judged."""

    scenario: loadtest.Scenario
    scale: float
    runs: tuple[VariantResult, ...]
    interrupted: bool
    """Whether the run ended before all variants did."""
    leftovers: tuple[str, ...]
    """Changes that could not be undone, one line each."""

    @property
    def ok(self) -> bool:
        """Whether all variants ran, all changes were undone, and the run with quotas passed its judgement.

        Without such a run nothing was judged, which is no success.
        """
        judged = [run.result for run in self.runs if run.variant is loadtest.Variant.WITH_QUOTAS]
        return bool(judged) and not (self.interrupted or self.leftovers) and all(result.ok for result in judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLength:
    """How long a scenario takes, without the start and the end of what it starts."""

    load_s: Annotated[float, Described(text="under load")]
    """Seconds of all variants, with control clients alone first."""
    comparison_s: Annotated[float, Described(text="of runs with and without quotas, at least")]
    comparison_most_s: Annotated[float, Described(text="of these runs, at most")]
    """Seconds of these runs if they are not decided before."""

    @property
    def text(self) -> str:
        """The times in words."""
        compared = format_duration_us(self.comparison_s * 1e6)
        if self.comparison_most_s > self.comparison_s:
            compared += f" to {format_duration_us(self.comparison_most_s * 1e6)}"
        load = f"{format_duration_us(self.load_s * 1e6)} of load"
        return f"{load}, then {compared} to compare with and without quotas" if self.comparison_s else load


def run_length(
    scenario: loadtest.Scenario, plan: loadtest.LoadPlan | None = None, *, experiment_time_s: float = EXPERIMENT_S
) -> RunLength:
    """Return how long a scenario takes, by its plan or, without one, by its own quotas."""
    plan = loadtest.long_enough(loadtest.own_plan(scenario)) if plan is None else plan
    has_controls = any(load.control for load in plan.entities)
    solo_s = scenario.solo_s * 1.2 if has_controls else 0.0
    load_s = (solo_s + plan.warmup_s + plan.duration_s) * len(scenario.variants)
    if not (scenario.quotas or scenario.daemon.policy) or len(scenario.variants) > 1 or floods_topics(plan):
        return RunLength(load_s=load_s, comparison_s=0.0, comparison_most_s=0.0)
    one_s = plan.warmup_s + (scenario if has_controls else replace(scenario, solo_s=0.0)).short_run_s
    least_s, most_s = (2 * loadtest.LEAST_PAIRS * one_s, experiment_time_s) if has_controls else (one_s, one_s)
    return RunLength(
        load_s=load_s, comparison_s=min(least_s, experiment_time_s), comparison_most_s=min(most_s, experiment_time_s)
    )


def _sized(
    scenario: loadtest.Scenario, target: LoadTarget, limits: loadtest.HostLimits, scale: float | None
) -> tuple[loadtest.Scenario, float]:
    """Return the scenario at a scale and in the target's window, and the scale.

    The default is all of it on an existing cluster, else the scale for a laptop. A broker that is started here gets no
    more partitions than the machine allows.
    """
    if target.window is not None:
        scenario = replace(scenario, window=target.window)
    if scale is None:
        fits = not target.is_theirs and scenario.scaling.multiplies
        scale = min(scenario.scaling.laptop, loadtest.largest_scale(scenario, limits)) if fits else 1.0
    return loadtest.scaled(scenario, scale), scale


def ready_scenario(request: RunRequest) -> tuple[loadtest.Scenario, float]:
    """Return the scenario to run, scaled and checked, and its scale.

    Raises:
        UsageError: The scenario can't run on the target, in a message with the first reason and the number of others;
            or a library of its clients is not installed.
    """
    limits = loadtest.host_limits()
    terms = request.terms
    scenario, scale = _sized(request.scenario, request.target, limits, terms.scale)
    scenario = replace(
        scenario,
        duration_s=scenario.duration_s if terms.duration_s is None else terms.duration_s,
        warmup_s=scenario.warmup_s if terms.warmup_s is None else terms.warmup_s,
        expect=(*scenario.expect, *terms.expect),
    )
    found = loadtest.preflight(scenario, request.target.capabilities(limits), is_typed=request.is_typed)
    if found:
        first, count = found[0], len(found)
        more = f" (and {count - 1} more, see load-test validate)" if count > 1 else ""
        raise UsageError(f"{first.message}{more}", hint=first.hint)
    if terms.share != loadtest.WHOLE:
        _check_share(request, scenario)
    loadtest.check_entities(
        tuple(map(loadtest.parse_expectation, (*scenario.expect, *scenario.abort_on))),
        [name.label for name in loadtest.client_names(scenario)],
        has_control=any(entity.control for entity in scenario.entities),
    )
    for client in scenario.entities:
        if client.client is loadtest.ClientKind.RAW and client.does is loadtest.Workload.PRODUCE:
            require_extra("raw", "crc32c", "numpy", needed_by="raw clients that produce need")
    return scenario, scale


def _check_share(request: RunRequest, scenario: loadtest.Scenario) -> None:
    if not request.target.is_theirs or request.target.through_daemon:
        raise UsageError("shards need one target for all of them", hint="name it with --bootstrap-server")
    if request.terms.start_at_ms is None:
        raise UsageError(
            "shards have to start together", hint='--start-at "$(date -u -d +1min +%FT%TZ)", in all of them'
        )
    if request.terms.experiment_s:
        raise UsageError("an experiment with and without quotas has no shares", hint="leave --shard or its time out")
    if scenario.quota_steps:
        raise UsageError("quotas that change during the load belong to one process", hint="run it without --shard")
    if any(entity.control for entity in scenario.entities) or len(scenario.variants) > 1 or scenario.probes:
        raise UsageError("control clients, variants and probes belong to one process", hint="run them without --shard")
    if any(
        isinstance(entity.flood, loadtest.MutationFlood) and entity.flood.total_topics for entity in scenario.entities
    ):
        raise UsageError("a fixed number of topics has no shares", hint="let the flood last until the run ends")


def needs_broker(scenario: loadtest.Scenario) -> bool:
    """Check whether the scenario needs a real broker, with or without the daemon in front."""
    return (
        scenario.needs is loadtest.TargetNeed.REAL_BROKER
        or scenario.security is not loadtest.Security.PLAINTEXT
        or scenario.mutates
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCheck:
    """The result of checking a scenario against a target."""

    DOCUMENT: ClassVar = (
        "name ok scale largest_scale=largest clients partitions seconds=length.load_s "
        "limits.open_files=limits.open_files limits.max_map_count=limits.max_maps obstacles=findings"
    )
    name: str
    scale: float
    largest: float
    """Largest scale that a broker on this machine can bear."""
    clients: int
    partitions: int
    length: RunLength | None
    """How long it takes, None where it can't be planned."""
    limits: loadtest.HostLimits
    findings: tuple[loadtest.Mismatch, ...]

    @property
    def ok(self) -> bool:
        """Whether the scenario can run."""
        return not self.findings


def validate_scenario(
    scenario: loadtest.Scenario, target: LoadTarget, *, limits: loadtest.HostLimits, scale: float | None
) -> ScenarioCheck:
    """Check a scenario against a target, at the scale that a run would choose where none is given."""
    sized, chosen = _sized(scenario, target, limits, scale)
    findings = loadtest.preflight(sized, target.capabilities(limits))
    return ScenarioCheck(
        name=scenario.name,
        scale=chosen,
        largest=loadtest.largest_scale(scenario, limits),
        clients=sized.clients,
        partitions=loadtest.partitions_needed(sized),
        length=None if findings else run_length(sized),
        limits=limits,
        findings=findings,
    )
