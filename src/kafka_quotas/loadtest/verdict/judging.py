"""The conclusion of a run: all judgements, from its clients' measurements and further evidence.

A control client, a neighbour of throttled clients, is judged by its latency beside them and alone.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TypeVar

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
from kafka_quotas.loadtest.measurement.delivery import Delivery
from kafka_quotas.loadtest.measurement.histogram import LatencySummary
from kafka_quotas.loadtest.measurement.recorder import Recorder
from kafka_quotas.loadtest.measurement.traces import Charge
from kafka_quotas.loadtest.plan.client_verdict import TOLERANCE, ObservationKind
from kafka_quotas.loadtest.plan.plan import EntityKey
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.prediction import Prediction, PredictionSource, ThrottleJudge, predict
from kafka_quotas.loadtest.results.result import ClientResult, LoadResult, QuotaEffect, recorded_charges
from kafka_quotas.loadtest.verdict.comparison import difference_interval
from kafka_quotas.loadtest.verdict.thresholds import Expectation
from kafka_quotas.wire.protocol.api_table import ErrorCode

_P99 = 0.99
_SLACK_US = 10_000
"""Added to what the factor allows, as latencies below some milliseconds measure the machine's scheduler."""


def allowed_us(alone: LatencySummary, factor: float) -> float:
    """Return the longest p99 that leaves a control client unharmed, in microseconds."""
    return alone.p99_us * factor + _SLACK_US


def isolation(entity: ClientResult, *, factor: float) -> Judgement:
    """Return the judgement on a control client by its p99 beside the others.

    It is met where that is within a factor of its p99 alone, and the same load without the quotas makes it longer:
    a client that nobody disturbs anyway shows nothing about quotas.
    """
    beside, alone = entity.response, entity.solo
    if alone is None or not alone.count or not beside.count:
        evidence = f"no latency was measured {'beside the others' if alone else 'in a run of its own'}"
        state = State.UNCHECKED
    else:
        most_us = allowed_us(alone, factor)
        state = _isolation_state(entity, most_us)
        evidence = (
            f"p99 {beside.p99_us / 1000:.3g} ms beside the others, {alone.p99_us / 1000:.3g} ms alone; allowed "
            f"{most_us / 1000:.3g} ms: {factor:g} times that plus {_SLACK_US // 1000} ms; "
            + (entity.effect.evidence if entity.effect is not None else "not compared with the load without quotas")
        )
    return Judgement(aspect=Aspect.ISOLATION, state=state, evidence=evidence, entity=entity.name.label)


def _isolation_state(entity: ClientResult, most_us: float) -> State:
    beside, effect = entity.response, entity.effect
    if beside.p99_us > most_us:
        return State.NOT_MET
    if effect is None or beside.is_bound(_P99):
        return State.UNCHECKED
    if effect.is_refuted:
        return State.NOT_MET
    return State.MET if effect.is_shown else State.UNDECIDED


REFUSED_FOR_QUOTA = ErrorCode.THROTTLING_QUOTA_EXCEEDED.name
_COARSEST_MS = 16  # of acknowledgements that stand for requests
_PREDICTED = (Workload.PRODUCE, Workload.CONSUME, Workload.REQUESTS, Workload.MUTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence on a run beside its clients' measurements, all of it optional."""

    solo: Mapping[EntityKey, LatencySummary] = field(default_factory=dict)
    """The response latency of control clients when they ran alone."""
    control_factor: float | None = None
    """The multiple of the solo p99 that is harm, None for the usual."""
    effects: Mapping[EntityKey, QuotaEffect] = field(default_factory=dict)
    """What the quotas change for control clients."""
    without_quotas: LoadResult | None = None
    """The same load without the quotas, None where it was not run."""
    deliveries: Mapping[EntityKey, Delivery] = field(default_factory=dict)
    """The counts from reading topics back."""
    charges: Mapping[EntityKey, Sequence[Charge]] = field(default_factory=dict)
    """The charges in our daemon's event log, with times since the start of the load."""
    throttle_judge: ThrottleJudge | None = None
    """Who computes throttle times instead of our core."""
    time_limited: frozenset[EntityKey] = frozenset()
    """Clients whose thread time is limited beside their rate."""
    expected_errors: Mapping[EntityKey, frozenset[str]] = field(default_factory=dict)
    quotas_changed: str | None = None
    """Which quota changed during the run, in one sentence."""
    outages: tuple[str, ...] = ()
    """What else interrupted the experiment, such as a topic that was deleted, in a sentence each."""
    expectations: tuple[Expectation, ...] = ()
    warnings: tuple[str, ...] = ()


def judge_run(result: LoadResult, evidence: Evidence) -> LoadResult:
    """Return the result with its judgements made again and all warnings."""
    judged = replace(
        result,
        entities=tuple(_with_evidence(entity, evidence, result.window) for entity in result.entities),
        warnings=(*result.warnings, *evidence.warnings),
        control_factor=evidence.control_factor or result.control_factor,
    )
    judgements = (*_of_run(judged, evidence), *_of_entities(judged, evidence))
    judged = replace(judged, judgements=judgements)
    if evidence.without_quotas is not None:
        control = control_run(judged, evidence.without_quotas, evidence.expectations)
        judgements = judgements if control is None else (*judgements, control)
    expected = tuple(expectation.judge(judged) for expectation in evidence.expectations)
    return replace(judged, judgements=(*judgements, *expected))


def _with_evidence(entity: ClientResult, evidence: Evidence, window: QuotaWindow) -> ClientResult:
    known = replace(
        entity,
        solo=evidence.solo.get(entity.key, entity.solo),
        effect=evidence.effects.get(entity.key, entity.effect),
        delivery=evidence.deliveries.get(entity.key, entity.delivery),
        charges=evidence.charges.get(entity.key, entity.charges),
    )
    prediction = _prediction(known, window, evidence)
    return replace(known, prediction=prediction or entity.prediction)


def _of_run(result: LoadResult, evidence: Evidence) -> Iterator[Judgement]:
    reasons = [*result.outages, *evidence.outages]
    if evidence.quotas_changed:
        reasons.insert(0, f"the quotas changed during the run: {evidence.quotas_changed}")
    if result.interrupted:
        reasons.insert(0, f"the run was ended after {result.elapsed_s:.0f} s")
    for reason in reasons:
        yield Judgement(aspect=Aspect.RUN, state=State.VOID, evidence=reason)
    for restart in result.restarts:
        yield Judgement(aspect=Aspect.RUN, state=State.MET, evidence=restart)


def _of_entities(result: LoadResult, evidence: Evidence) -> Iterator[Judgement]:
    for entity in result.entities:
        verdict, label = entity.verdict, entity.name.label
        yield Judgement(aspect=Aspect.RATE, state=verdict.state, evidence=verdict.evidence, entity=label)
        yield _books(entity)
        if entity.prediction is not None:
            state, text = entity.prediction.state, entity.prediction.evidence
            yield Judgement(aspect=Aspect.THROTTLE, state=state, evidence=text, entity=label)
        if entity.control:
            yield isolation(entity, factor=result.control_factor)
        if entity.failures:
            yield _failures(entity, evidence.expected_errors.get(entity.key, frozenset()))
        if entity.delivery is not None:
            state, text = entity.delivery.state, entity.delivery.evidence
            yield Judgement(aspect=Aspect.DELIVERY, state=state, evidence=text, entity=label)


def _books(entity: ClientResult) -> Judgement:
    books = entity.books
    state, text = State.MET, books.evidence
    is_unhindered = entity.verdict.kind in (ObservationKind.MODEST, ObservationKind.UNLIMITED)
    if books.unaccounted:
        state, text = State.VOID, f"the load tester lost count of {books.unaccounted}: {text}"
    elif is_unhindered and books.acknowledged + books.failed < books.settled * (1 - TOLERANCE):
        state = State.NOT_MET
        text = f"{text}; of the first {books.settled} no more than {TOLERANCE:.0%} may be left over"
    return Judgement(aspect=Aspect.BOOKS, state=state, evidence=text, entity=entity.name.label)


def _failures(entity: ClientResult, expected: frozenset[str]) -> Judgement:
    text = ", ".join(
        f"{count} refused for the quota ({name})" if name == REFUSED_FOR_QUOTA else f"{count} failed with {name}"
        for name, count in entity.failures
    )
    is_expected = all(name in expected for name, _ in entity.failures)
    return Judgement(
        aspect=Aspect.DELIVERY,
        state=State.MET if is_expected else State.NOT_MET,
        evidence=f"{text}, as expected" if is_expected else text,
        entity=entity.name.label,
    )


def _prediction(entity: ClientResult, window: QuotaWindow, evidence: Evidence) -> Prediction | None:
    quota, recorder = entity.verdict.quota, entity.recorder
    # A bucket that clients share has charges of all of them, which one client's events lack.
    if quota is None or recorder is None or entity.shares_quota or entity.workload not in _PREDICTED:
        return None
    if entity.verdict.kind is ObservationKind.UNJUDGED:
        return None
    source, events = recorded_charges(entity)
    announced_ms = recorder.throttle_sum_us / 1000
    unknown = _why_unpredictable(entity, source, recorder)
    if REFUSED_FOR_QUOTA in dict(entity.failures) and entity.workload is not Workload.MUTATE:
        unknown = "requests were refused for the quota, which announces throttle times for what is not charged"
    if entity.verdict.settled_ms is not None:
        unknown = "its quota was changed during the run, and one quota predicts"
    if entity.key in evidence.time_limited:
        unknown = "thread time is limited as well, and the larger of two throttle times counts"
    if unknown:
        return Prediction(source=source, events=0, predicted_ms=0.0, announced_ms=announced_ms, unchecked=unknown)
    # A response to a change of topics arrives as long after its charge as the change takes.
    is_late = source is PredictionSource.RESPONSES and entity.workload is Workload.MUTATE
    return predict(
        events,
        workload=entity.workload,
        quota=quota / entity.enforcers,
        window=window,
        source=source,
        announced_ms=None if source is PredictionSource.RESPONSES else announced_ms,
        late_ms=entity.service.p50_us / 1000 if is_late else 0.0,
        judge=evidence.throttle_judge,
    )


def _why_unpredictable(entity: ClientResult, source: PredictionSource, recorder: Recorder) -> str:
    was_never_throttled = entity.verdict.kind is ObservationKind.MODEST and not recorder.throttle_count
    is_exact = source is not PredictionSource.ACKNOWLEDGEMENTS and entity.workload is not Workload.CONSUME
    if was_never_throttled or is_exact:
        return ""
    if entity.workload is Workload.CONSUME:
        if source is PredictionSource.EVENT_LOG:
            return "the daemon holds a fetch until there is room, which takes the place of throttle times"
        return "a fetch that is answered empty counts for its delay, and no client learns its size"
    if entity.enforcers > 1:
        return f"{entity.enforcers} brokers keep the quota, and acknowledgements don't tell which one"
    if recorder.trace.resolution_ms > _COARSEST_MS:
        return f"of so long a run acknowledgements are known to {recorder.trace.resolution_ms} ms only"
    return ""


LEAST_PAIRS = 3
"""The pairs of runs that decide anything: of two the interval is too wide."""
_T = TypeVar("_T")


def quota_effect(with_us: Sequence[int], without_us: Sequence[int]) -> QuotaEffect | None:
    """Return the effect from the p90 of runs with and without quotas, None with fewer than two of each.

    Latencies scatter by factors, so their logarithms are compared.
    """
    logs = [[math.log(max(each, 1)) for each in side] for side in (with_us, without_us)]
    interval = difference_interval(*logs)
    if interval is None:
        return None
    return QuotaEffect(
        with_us=tuple(with_us),
        without_us=tuple(without_us),
        ratio=math.exp(fmean(logs[1]) - fmean(logs[0])),
        low=math.exp(interval.low),
        high=math.exp(interval.high),
    )


def alternating(
    run: Callable[[bool], _T], *, is_decided: Callable[[Sequence[_T], Sequence[_T]], bool], has_time: Callable[[], bool]
) -> tuple[list[_T], list[_T]]:
    """Run with quotas (True) and without in mirrored pairs, and return the runs of either side.

    It ends after the third pair or a later one, when they decide, or before a run for which there is no time.
    """
    sides: tuple[list[_T], list[_T]] = ([], [])
    pair = 0
    while True:
        for has_quotas in (pair % 2 == 1, pair % 2 == 0):
            if not has_time():
                return sides
            sides[0 if has_quotas else 1].append(run(has_quotas))
        pair += 1
        if pair >= LEAST_PAIRS and is_decided(*sides):
            return sides


def control_run(judged: LoadResult, without: LoadResult, expectations: Sequence[Expectation]) -> Judgement | None:
    """Return whether the run without quotas breaks what that with them holds, None for nothing held.

    A verdict that is as good without the quotas shows nothing about them.
    """
    greedy = [entity for entity in judged.entities if entity.verdict.kind is ObservationKind.GREEDY]
    if not greedy and not expectations:
        return None
    void = next((each for each in without.judgements if each.aspect is Aspect.RUN), None)
    if void is not None:
        return Judgement(
            aspect=Aspect.CONTROL, state=State.UNDECIDED, evidence=f"the run without the quotas: {void.evidence}"
        )
    broken = _broken(judged, without, expectations)
    if not broken:
        evidence = "all that was judged holds without the quotas as well, so it does not show what they do"
        return Judgement(aspect=Aspect.CONTROL, state=State.NOT_MET, evidence=evidence)
    more = f" (the first of {len(broken)} failures)" if len(broken) > 1 else ""
    return Judgement(aspect=Aspect.CONTROL, state=State.MET, evidence=f"without the quotas it fails: {broken[0]}{more}")


def _broken(judged: LoadResult, without: LoadResult, expectations: Sequence[Expectation]) -> list[str]:
    free = {entity.key: entity for entity in without.entities}
    found = []
    for entity in judged.entities:
        quota, unit = entity.verdict.quota, entity.unit
        achieved = free[entity.key].verdict.achieved if entity.key in free else 0.0
        if entity.verdict.kind is ObservationKind.GREEDY and quota is not None and achieved > quota * (1 + TOLERANCE):
            found.append(f"{entity.name.label} gets {unit.text(achieved)} instead of {unit.text(quota)}")
    for expectation in expectations:
        judgement = expectation.judge(without)
        if judgement.state is State.NOT_MET and any(
            expectation.metric.of(each) is not None for each in without.entities
        ):
            found.append(judgement.evidence)
    return found
