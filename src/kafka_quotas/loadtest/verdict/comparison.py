"""The comparison of two runs, or of the repeats of two: whether a figure is worse, given how runs scatter.

Runs of either side may scatter differently and be few, so the interval is Welch's, from Student's distribution.
**Source:** B. L. Welch, Biometrika 34 (1947); the quantiles are Abramowitz and Stegun's, 26.7.5 and table 26.10.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from statistics import fmean, variance
from typing import Annotated, Any, ClassVar, Final

from kafka_quotas.core.described import Described, Sentences
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.setting import TextForm, setting
from kafka_quotas.loadtest.judgement import State, overall
from kafka_quotas.loadtest.plan.plan import EntityKey
from kafka_quotas.loadtest.results.result import ClientResult, LoadResult
from kafka_quotas.loadtest.verdict.thresholds import METRICS, Dimension, Metric

_T_975: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's 97.5 % quantiles of 1 to 10 degrees of freedom."""
_Z_975: Final = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An interval that holds the true value in 95 of 100 experiments."""

    low: float
    high: float


def t_quantile(degrees: int) -> float:
    """Return Student's 97.5 % quantile for this many degrees of freedom, from 1 on."""
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = _Z_975
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + sum(term / math.pow(degrees, power) for power, term in enumerate(terms, start=1))


def difference_interval(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """Return the interval of mean(second) - mean(first), None with fewer than two figures on either side."""
    if min(len(first), len(second)) < 2:
        return None
    parts = [(variance(values) / len(values), len(values) - 1) for values in (first, second)]
    middle, squared = fmean(second) - fmean(first), sum(part for part, _ in parts)
    if not squared:
        return Interval(low=middle, high=middle)
    degrees = int(squared**2 / sum(part**2 / freedom for part, freedom in parts))
    reach = t_quantile(max(degrees, 1)) * math.sqrt(squared)
    return Interval(low=middle - reach, high=middle + reach)


_GRAIN_MS = 10.0  # of latencies and throttle times: less than that is the machine's scheduler


class ComparisonOutcome(StrEnum):
    """The outcome for a figure of the second run against the first."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"
    """The repeats scatter too much to say whether the change is beyond what is allowed."""
    NOT_COMPARED = "not compared"


def _share(text: str) -> float:
    try:
        share = Dimension.RATIO.parse(text)
    except UsageError as error:
        raise UsageError(f"{text!r} is not a share", hint="write 5% or 0.05") from error
    if share < 0:
        raise UsageError(f"{text!r} is below 0", hint="write 5% or 0.05")
    return share


_SHARE: Final = TextForm(read=_share, pattern=r"^[0-9.]+%?$", write=lambda share: f"{share:.0%}")


def _tolerance(option: str, text: str, default: float) -> Any:
    return setting("tolerances", f"{option} SHARE", f"Allowed {text}", _SHARE, default=default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The shares by which the second run may be worse."""

    rate: float = _tolerance("--max-rate-fall", "fall of a rate, as a share: 5% or 0.05.", 0.05)
    latency: float = _tolerance("--max-latency-rise", "rise of p50 and p99 of the response time.", 0.25)
    throttle: float = _tolerance(
        "--max-throttle-rise", "rise of the sum of throttle times, for runs of one length.", 0.1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One figure of one client in both runs, the mean of repeats."""

    DOCUMENT: ClassVar = (
        "entity=entity.name.label metric=metric.name first second change=rounded_change interval allowed outcome"
    )
    entity: ClientResult
    metric: Metric
    first: float | None
    """The figure in the first run, None where it has none."""
    second: float | None
    """The figure in the second run, None where it has none."""
    allowed: Annotated[float | None, Described(text="as a share")]
    """The allowed change, None for counts."""
    outcome: ComparisonOutcome
    interval: Annotated[Interval | None, Described(text="95 %, as shares; null without --repeat")] = None
    """The change as a share of the first figure, None without repeats or where that is 0."""

    @property
    def change(self) -> float | None:
        """The change as a share of the first figure, None where that is missing or 0."""
        if not self.first or self.second is None:
            return None
        return self.second / self.first - 1

    @property
    def rounded_change(self) -> Annotated[float | None, Described(text="as a share")]:
        """The change to six decimals."""
        return None if self.change is None else round(self.change, 6)


@dataclass(frozen=True, slots=True)
class RunSide:
    """The first of the runs of a side, and the state of all of them."""

    DOCUMENT: ClassVar = "one.title run_id one.started_ms one.elapsed_s state runs"
    one: LoadResult
    state: State
    runs: int

    @property
    def run_id(self) -> str:
        """The id as text."""
        return f"{self.one.run_id:016x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """The states and figures of two runs, or of the repeats of two."""

    DOCUMENT: ClassVar = "ok first=first_side second=second_side notes differences"
    first: tuple[LoadResult, ...]
    second: tuple[LoadResult, ...]
    differences: tuple[Difference, ...]
    notes: Sentences
    """The reasons why the two are hard to compare."""

    @property
    def first_side(self) -> RunSide:
        """The first runs in short."""
        return RunSide(self.first[0], state_of(self.first), len(self.first))

    @property
    def second_side(self) -> RunSide:
        """The second runs in short."""
        return RunSide(self.second[0], state_of(self.second), len(self.second))

    @property
    def state_is_worse(self) -> bool:
        """Whether all first runs met all of their judgements and a second one did not."""
        return state_of(self.first) is State.MET and state_of(self.second) is not State.MET

    @property
    def ok(self) -> bool:
        """Whether neither the state nor a figure is worse."""
        return not self.state_is_worse and all(each.outcome is not ComparisonOutcome.WORSE for each in self.differences)


def state_of(runs: Sequence[LoadResult]) -> State:
    """Return the state of repeats together: void if one is, else not met if one is not."""
    return overall(chain.from_iterable(run.judgements for run in runs))


def compare(first: Sequence[LoadResult], second: Sequence[LoadResult], limits: Limits) -> RunComparison:
    """Return the comparison of a run, or of its repeats, with a later one."""
    sides = (_by_client(first), _by_client(second))
    lengths_s = [fmean(run.elapsed_s for run in runs) for runs in (first, second)]
    growth = lengths_s[1] / lengths_s[0] if lengths_s[0] > 0 else 1.0  # sums over a run grow with its length
    differences = [
        difference
        for key, after in sides[1].items()
        if key in sides[0]
        for difference in _differences(sides[0][key], after, limits, growth)
    ]
    return RunComparison(
        first=tuple(first), second=tuple(second), differences=tuple(differences), notes=tuple(_notes(first, second))
    )


def _by_client(runs: Sequence[LoadResult]) -> dict[EntityKey, list[ClientResult]]:
    found: dict[EntityKey, list[ClientResult]] = {}
    for entity in chain.from_iterable(run.entities for run in runs):
        found.setdefault(entity.key, []).append(entity)
    return {key: entities for key, entities in found.items() if len(entities) == len(runs)}


def _differences(
    before: Sequence[ClientResult], after: Sequence[ClientResult], limits: Limits, growth: float
) -> Iterator[Difference]:
    for name, allowed in (("achieved", limits.rate), ("achieved/quota", limits.rate)):
        yield _difference(name, before, after, allowed=-allowed)
    for name in ("response.p50", "response.p99"):
        yield _difference(name, before, after, allowed=limits.latency, grain=_GRAIN_MS)
    yield _difference("throttle.sum", before, after, allowed=limits.throttle, grain=_GRAIN_MS, growth=growth)
    for name in ("records.failed", "records.lost", "records.duplicated"):
        yield _difference(name, before, after, allowed=None)


def _difference(
    name: str,
    before: Sequence[ClientResult],
    after: Sequence[ClientResult],
    *,
    allowed: float | None,
    grain: float = 0.0,
    growth: float = 1.0,
) -> Difference:
    """Return the difference of a figure between two runs of a client, or the means of their repeats.

    `allowed` is a share, below 0 where a fall is worse and above 0 where a rise is, None where any rise is worse. A
    change of `grain`, in the unit of the figure, is never worse. A longer run has `growth` times the figure.
    """
    metric = METRICS[name]
    first, second = ([each for each in map(metric.of, side) if each is not None] for side in (before, after))
    outcome, shares = ComparisonOutcome.NOT_COMPARED, None
    if len(first) == len(before) and len(second) == len(after):
        expected = [value * growth for value in first]
        base, change = fmean(expected), fmean(second) - fmean(expected)
        interval = difference_interval(expected, second)
        outcome = _outcome(
            interval or Interval(low=change, high=change),
            slack=abs(allowed or 0.0) * base + grain,
            is_fall_worse=allowed is not None and allowed < 0,
        )
        shares = (
            Interval(low=round(interval.low / base, 6), high=round(interval.high / base, 6))
            if interval and base
            else None
        )
    return Difference(
        entity=after[0],
        metric=metric,
        first=fmean(first) if first else None,
        second=fmean(second) if second else None,
        allowed=None if allowed is None else abs(allowed),
        outcome=outcome,
        interval=shares,
    )


def _outcome(change: Interval, *, slack: float, is_fall_worse: bool) -> ComparisonOutcome:
    rises, falls = change.low > slack, change.high < -slack
    if rises or falls:
        return ComparisonOutcome.WORSE if rises is not is_fall_worse else ComparisonOutcome.BETTER
    return ComparisonOutcome.SAME if -slack <= change.low and change.high <= slack else ComparisonOutcome.UNDECIDED


def _notes(first: Sequence[LoadResult], second: Sequence[LoadResult]) -> Iterator[str]:
    windows = [
        "/".join(sorted({f"{run.window.samples} x {run.window.window_s} s" for run in runs}))
        for runs in (first, second)
    ]
    if windows[0] != windows[1]:
        yield f"the quota windows differ: {windows[0]} and {windows[1]}"
    sides = (_by_client(first), _by_client(second))
    for name, missing in (("first", sides[0].keys() - sides[1].keys()), ("second", sides[1].keys() - sides[0].keys())):
        if missing:
            labels = ", ".join(sorted(entity_name.label for entity_name, _ in missing)[:5])
            yield f"{len(missing)} clients are in the {name} run alone: {labels}"
    for key, after in sides[1].items():
        quotas = {entity.verdict.quota for entity in (*sides[0].get(key, after), *after)}
        if len(quotas) > 1:
            yield f"the quota of {key[0].label} is another one"
    for name, runs in (("first", first), ("second", second)):
        void = sum(run.state is State.VOID for run in runs)
        if void:
            one, many = f"the {name} run is void: it proves nothing", f"{void} of the {name} runs are void"
            yield one if len(runs) == 1 else many
    if min(len(first), len(second)) < 2:
        yield "a single run has no interval, and a difference may be noise; run both sides with --repeat 5"
