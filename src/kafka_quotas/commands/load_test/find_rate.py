"""`load-test run --find-rate`: short runs of a scenario at the rates that a search names, and what they show.

All clients with a rate get the same multiple of it, but for control clients, which are there to be compared.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from kafka_quotas.commands.load_test.experiment import block_s, short_run
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.value_format import format_rounded
from kafka_quotas.loadtest.judge.analysis import is_bottleneck
from kafka_quotas.loadtest.judge.expectation import Expectation, parse_expectation
from kafka_quotas.loadtest.judge.judging import Evidence, judge_run
from kafka_quotas.loadtest.judge.rate_search import RateSearch, RateTally, factor_of
from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import UNITS, Loop, RateUnit
from kafka_quotas.loadtest.result.result import LoadResult
from kafka_quotas.loadtest.result.verdict import ObservationKind
from kafka_quotas.loadtest.scenario.model import Scenario
from kafka_quotas.loadtest.scenario.planning import expected_errors

_STATISTIC: Final = re.compile(r"^(entity\([^()]+\)\.)?(min|mean|p50|p90|p99|p999|max)\b")
_READ_BACK: Final = ("records.lost", "records.duplicated")
_SERVICE: Final = (Aspect.RATE, Aspect.BOOKS)
_UNHINDERED: Final = (ObservationKind.MODEST, ObservationKind.UNLIMITED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateGoal:
    """The target that a rate has to keep, and how long the search for it may take."""

    target: Expectation
    time_s: float
    """Seconds after which no further run begins."""


def parse_target(text: str) -> Expectation:
    """Parse a target: a threshold as for `--expect`, in which `p99` alone is that of the response time.

    Raises:
        UsageError: It is no threshold, or its figure is not known after a short run.
    """
    target = parse_expectation(_STATISTIC.sub(r"\1response.\2", text.strip()))
    if target.metric.name in _READ_BACK:
        raise UsageError(
            f"{target.metric.name} is known once topics were read back, which a search does not do",
            hint="examples: 'p99<50ms', 'throttle.count == 0', 'achieved/offered > 0.99'",
        )
    return target


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTrial:
    """One run of a search."""

    step: int
    is_kept: bool
    evidence: str
    """Why the target was kept or broken."""
    figures: tuple[float, ...]
    """The figure of the target for each client that has one."""
    is_bottleneck: bool
    """Whether the load tester itself was short of CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRate:
    """One rate with its runs."""

    factor: float
    """By what the scenario's rates were multiplied."""
    offered: tuple[tuple[RateUnit, float], ...]
    """The sum of what the clients offered that follow the search, for each unit. Bytes are those of the payload."""
    tally: RateTally
    trials: tuple[RateTrial, ...]

    @property
    def text(self) -> str:
        """The rate, in words."""
        return _text(self.offered)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRate:
    """The result of a search."""

    scenario: str
    target: Expectation
    state: State
    """Met: found. Not met: no rate keeps the target. Undecided: the time was over first, or the tool at its limit."""
    evidence: str
    run_s: float
    """How long each run was measured."""
    rates: tuple[TriedRate, ...]
    """All rates that were tried, from the lowest on."""
    low: TriedRate | None
    """The highest that keeps the target."""
    high: TriedRate | None
    """The lowest above it that does not."""
    interrupted: bool = False
    leftovers: tuple[str, ...] = ()
    """Changes that could not be undone, one line each."""

    @property
    def ok(self) -> bool:
        """Whether the rate is found, and all changes were undone."""
        return self.state is State.MET and not (self.leftovers or self.interrupted)


def search_rate(
    plan: LoadPlan,
    scenario: Scenario,
    goal: RateGoal,
    *,
    run: Callable[[LoadPlan], LoadResult],
    step: Callable[[str], None],
) -> FoundRate:
    """Search for the highest rate of a plan that keeps the target.

    `run` runs one plan and returns its result. `step` receives a line for each run.

    Raises:
        UsageError: No client has a rate to change, or none has the figure of the target.
    """
    check_rates(plan)
    search = RateSearch()
    trials: list[RateTrial] = []
    void: str | None = None
    interrupted = False
    end_s = time.monotonic() + goal.time_s
    length_s = plan.warmup_s + block_s(scenario)
    evidence = Evidence(
        expectations=(goal.target,),
        expected_errors={load.key: expected_errors(scenario, load) for load in plan.entities},
    )
    while (at := search.next_step()) is not None and (time.monotonic() + length_s <= end_s or not trials):
        number = len(trials) + 1
        short = at_rate(short_run(plan, scenario, number=number), at)
        result = judge_run(run(short), evidence)
        interrupted = result.interrupted
        void = next((each.evidence for each in result.judgements if _is_void(each)), None)
        if interrupted or void is not None:
            break
        trials.append(_trial(at, goal.target, result))
        search.record(at, is_kept=trials[-1].is_kept)
        outcome = "kept" if trials[-1].is_kept else "broken"
        step(f"run {number} at {_text(_offered(short))}: {outcome}, {trials[-1].evidence}")
    rates = tuple(_tried(tally, plan, trials) for tally in search.tallies)
    return _found(goal, scenario, search, rates, void=void, interrupted=interrupted)


def _is_void(judgement: Judgement) -> bool:
    """Return whether a run shows nothing, for which it need not last long enough to judge rates by quotas."""
    return judgement.state is State.VOID and judgement.aspect is not Aspect.RATE


def check_rates(plan: LoadPlan) -> None:
    """Check that there is a rate to change.

    Raises:
        UsageError: There is none, or stages change it already.
    """
    if any(load.ramp for load in plan.entities):
        raise UsageError("stages change the rate already, and so would a search", hint="leave the stages out")
    if not any(map(_follows, plan.entities)):
        raise UsageError(
            "no client has a rate that a search can change",
            hint="give one a rate, such as 5MB/s or 2x-quota, in an open loop; control clients keep theirs",
        )


def at_rate(plan: LoadPlan, step: int) -> LoadPlan:
    """Return a plan with the rates of a step of the search."""
    factor = Fraction(factor_of(step)).limit_denominator(1_000_000)
    return replace(
        plan,
        entities=tuple(
            replace(load, arrivals_per_second=(load.arrivals_per_second or Fraction(0)) * factor)
            if _follows(load)
            else load
            for load in plan.entities
        ),
    )


def _follows(load: ClientLoad) -> bool:
    """Return whether the search changes this client's rate."""
    return load.arrivals_per_second is not None and load.loop is Loop.OPEN and not load.control


def _offered(plan: LoadPlan) -> tuple[tuple[RateUnit, float], ...]:
    sums: dict[RateUnit, float] = {}
    for load in filter(_follows, plan.entities):
        unit = UNITS[load.workload]
        sums[unit] = sums.get(unit, 0.0) + float(load.arrivals_per_second or 0) * load.arrival_cost
    return tuple(sums.items())


def _text(offered: Sequence[tuple[RateUnit, float]]) -> str:
    return " and ".join(unit.text(rate) for unit, rate in offered)


def _trial(step: int, target: Expectation, result: LoadResult) -> RateTrial:
    """Return what a run shows, which keeps a target only where clients without limits get all they offer.

    Raises:
        UsageError: No client has the figure of the target.
    """
    figures = target.figures(result)
    if not figures:
        raise UsageError(f"no client of the run has the figure of {target.text!r}", hint="see load-test run --help")
    unhindered = {entity.name.label for entity in result.entities if entity.verdict.kind in _UNHINDERED}
    failed = [each for each in result.judgements if each.state is State.NOT_MET]
    broken = [
        f"{each.entity}: {each.evidence}"
        for each in failed
        if each.aspect is Aspect.DELIVERY or (each.aspect in _SERVICE and each.entity in unhindered)
    ]
    judged = target.judge(result)
    if judged.state is not State.MET:  # a lower bound does not show that the target is kept
        broken.insert(0, judged.evidence)
    return RateTrial(
        step=step,
        is_kept=not broken,
        evidence=broken[0] if broken else judged.evidence,
        figures=figures,
        is_bottleneck=is_bottleneck(result.cpu),
    )


def _tried(tally: RateTally, plan: LoadPlan, trials: Sequence[RateTrial]) -> TriedRate:
    return TriedRate(
        factor=factor_of(tally.step),
        offered=_offered(at_rate(plan, tally.step)),
        tally=tally,
        trials=tuple(trial for trial in trials if trial.step == tally.step),
    )


def _found(
    goal: RateGoal,
    scenario: Scenario,
    search: RateSearch,
    rates: Sequence[TriedRate],
    *,
    void: str | None,
    interrupted: bool,
) -> FoundRate:
    low, high = (next((each for each in rates if each.tally == end), None) for end in (search.low, search.high))
    state, target = search.state, goal.target.text
    if interrupted:
        evidence = f"ended after {sum(each.tally.runs for each in rates)} runs; {_so_far(low, high)}"
    elif void is not None:
        state, evidence = State.VOID, void
    elif state is State.NOT_MET:
        evidence = f"no rate keeps {target}: {_share(rates[0], kept=False)} at {rates[0].text} broke it"
    elif state is State.UNDECIDED and search.next_step() is not None:
        evidence = f"the time of {goal.time_s:g} s was over; {_so_far(low, high)}"
    elif low is None or high is None:
        evidence = f"{target} is kept at {rates[-1].text}, the highest rate that is tried"
    elif _is_tool_at_its_limit(high):
        state = State.UNDECIDED
        evidence = (
            f"{target} is kept up to {low.text}, and at {high.text} the load tester was the bottleneck, so the target "
            "may take more; spread the load over several machines"
        )
    else:
        evidence = _decided(target, low, high)
    return FoundRate(
        scenario=scenario.name,
        target=goal.target,
        state=state,
        evidence=evidence,
        run_s=block_s(scenario),
        rates=tuple(rates),
        low=low,
        high=high,
        interrupted=interrupted,
    )


def _decided(target: str, low: TriedRate, high: TriedRate) -> str:
    between = "" if high.tally.step - low.tally.step == 1 else "; between the two runs differ"
    return (
        f"{target} is kept up to {low.text}, {format_rounded(low.factor, 4)} times the scenario's rates: "
        f"{_share(low, kept=True)} kept it, and {_share(high, kept=False)} at {high.text} broke it; "
        f"95 % confidence of each{between}"
    )


def _is_tool_at_its_limit(high: TriedRate) -> bool:
    broken = [trial for trial in high.trials if not trial.is_kept]
    return sum(trial.is_bottleneck for trial in broken) * 2 > len(broken)


def _so_far(low: TriedRate | None, high: TriedRate | None) -> str:
    kept = "no rate was kept so far" if low is None else f"{_share(low, kept=True)} at {low.text} kept the target"
    broken = "none was broken" if high is None else f"{_share(high, kept=False)} at {high.text} broke it"
    return f"{kept}, and {broken}"


def _share(rate: TriedRate, *, kept: bool) -> str:
    count = rate.tally.kept if kept else rate.tally.broken
    return f"{count} of {rate.tally.runs} runs"
