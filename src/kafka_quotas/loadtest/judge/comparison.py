"""Comparison of two runs of the same load, with a verdict for continuous integration.

Contract: pure. Clients are matched by name and workload. A figure is worse only by more than its limit allows, and
whether a rise or a fall is worse is a property of the figure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from kafka_quotas.loadtest.judge.metric import METRICS, Metric
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.result.result import ClientResult, LoadResult

_GRAIN_MS = 10.0  # of latencies and throttle times: less than that is the machine's scheduler


class ComparisonOutcome(StrEnum):
    """The outcome for a figure of the second run against the first."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The shares by which the second run may be worse."""

    rate: float = 0.05
    """By which its rates may be lower."""
    latency: float = 0.25
    """By which its p50 and p99 may be longer."""
    throttle: float = 0.1
    """By which its throttle times may be longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One figure of one client in both runs."""

    entity: ClientResult
    """The client, as in the second run."""
    metric: Metric
    first: float | None
    """The figure in the first run, None where it has none."""
    second: float | None
    """The figure in the second run, None where it has none."""
    allowed: float | None
    """The allowed change as a share, None for counts."""
    outcome: ComparisonOutcome

    @property
    def change(self) -> float | None:
        """The change as a share of the first figure, None where that is missing or 0."""
        if not self.first or self.second is None:
            return None
        return self.second / self.first - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """The states and figures of two runs."""

    first: LoadResult
    second: LoadResult
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    """The reasons why the two are hard to compare."""

    @property
    def state_is_worse(self) -> bool:
        """Whether the first run met all of its judgements and the second did not."""
        return self.first.state is State.MET and self.second.state is not State.MET

    @property
    def ok(self) -> bool:
        """Whether neither the state nor a figure is worse."""
        return not self.state_is_worse and all(each.outcome is not ComparisonOutcome.WORSE for each in self.differences)


def compare(first: LoadResult, second: LoadResult, limits: Limits) -> RunComparison:
    """Return the comparison of a run with a later one."""
    before = {entity.key: entity for entity in first.entities}
    seconds = second.elapsed_s / first.elapsed_s if first.elapsed_s > 0 else 1.0  # sums over a run grow with its length
    differences = [
        difference
        for entity in second.entities
        if entity.key in before
        for difference in _differences(before[entity.key], entity, limits, seconds)
    ]
    return RunComparison(first=first, second=second, differences=tuple(differences), notes=tuple(_notes(first, second)))


def _differences(before: ClientResult, after: ClientResult, limits: Limits, seconds: float) -> Iterator[Difference]:
    for name, allowed in (("achieved", limits.rate), ("achieved/quota", limits.rate)):
        yield _difference(name, before, after, allowed=-allowed)
    for name in ("response.p50", "response.p99"):
        yield _difference(name, before, after, allowed=limits.latency, grain=_GRAIN_MS)
    yield _difference("throttle.sum", before, after, allowed=limits.throttle, grain=_GRAIN_MS, growth=seconds)
    for name in ("records.failed", "records.lost", "records.duplicated"):
        yield _difference(name, before, after, allowed=None)


def _difference(
    name: str,
    before: ClientResult,
    after: ClientResult,
    *,
    allowed: float | None,
    grain: float = 0.0,
    growth: float = 1.0,
) -> Difference:
    """Return the difference of a figure between two runs of a client.

    `allowed` is a share, below 0 where a fall is worse and above 0 where a rise is, None where any rise is worse. A
    change of `grain`, in the unit of the figure, is never worse. A longer run has `growth` times the figure.
    """
    metric = METRICS[name]
    first, second = metric.of(before), metric.of(after)
    outcome = ComparisonOutcome.NOT_COMPARED
    if first is not None and second is not None:
        expected = first * growth
        slack = abs(allowed or 0.0) * expected + grain
        worse, better = second > expected + slack, second < expected - slack
        if allowed is not None and allowed < 0:
            worse, better = better, worse
        outcome = ComparisonOutcome.WORSE if worse else ComparisonOutcome.BETTER if better else ComparisonOutcome.SAME
    allowed = None if allowed is None else abs(allowed)
    return Difference(entity=after, metric=metric, first=first, second=second, allowed=allowed, outcome=outcome)


def _notes(first: LoadResult, second: LoadResult) -> Iterator[str]:
    windows = [f"{run.window_samples} x {run.window_size_s} s" for run in (first, second)]
    if windows[0] != windows[1]:
        yield f"the quota windows differ: {windows[0]} and {windows[1]}"
    keys = [{entity.key for entity in run.entities} for run in (first, second)]
    for name, missing in (("first", keys[0] - keys[1]), ("second", keys[1] - keys[0])):
        if missing:
            labels = ", ".join(sorted(entity_name.label for entity_name, _ in missing)[:5])
            yield f"{len(missing)} clients are in the {name} run alone: {labels}"
    before = {entity.key: entity for entity in first.entities}
    for entity in second.entities:
        earlier = before.get(entity.key)
        if earlier is not None and earlier.verdict.quota != entity.verdict.quota:
            yield f"the quota of {entity.name.label} is another one"
    for name, run in (("first", first), ("second", second)):
        if run.state is State.VOID:
            yield f"the {name} run is void: it proves nothing"
