"""One burst of controller mutations under each of KIP-599's four algorithms, and the four side by side.

Invariants: states and delays come from the algorithms themselves; the formulas beside them are the documents'. The
client was idle before the burst. `rate` runs over one sample more than the others, as in Kafka's own comparison of the
two, which gives it as many whole samples.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from operator import le, lt
from typing import Annotated, ClassVar, Final

from kafka_quotas.commands.throttle.rate import (
    MUTATIONS_FORM,
    Calculation,
    CalculatorAnswer,
    Given,
    Step,
    in_range,
    without_noise,
)
from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.model.setting import TextForm, setting
from kafka_quotas.core.model.value_format import MS, format_duration_ms, format_number, format_rounded
from kafka_quotas.core.quotas.simulation import (
    MUTATION_ALGORITHMS,
    Algorithm,
    Event,
    EventOperation,
    SimulatedLimiter,
    full_bucket_ms,
    new_limiter,
    replay,
)

PARTITIONS: Final = "partitions"
PARTITIONS_PER_SECOND: Final = "partitions/s"
_SHIPPED: Final = "KIP-599 as shipped: TokenBucket, ControllerMutationQuotaManager"
_RULES: Final[Mapping[Algorithm, tuple[str, str, Callable[[float, float], bool]]]] = {
    Algorithm.TOKEN_BUCKET: (_SHIPPED, "tokens >= 0", lambda tokens, _: tokens >= 0),
    Algorithm.RATE: ("Kafka's Rate, as before KIP-599", "rate <= quota", le),
    Algorithm.SPREAD_EVEN: ("KIP-599, version 15", "rate < quota", lt),
    Algorithm.SPREAD_FILL: ("KIP-599, token bucket page history", "rate <= quota", le),
}
"""Where an algorithm is described, and what admits a request: in words, and by the level and the quota."""
_EVENLY: Final = 10
"""Rows at even distances between the burst and the end, in addition to the turning points."""
_figure, _ms = partial(format_rounded, digits=6), format_duration_ms


def _partitions(text: str) -> float:
    """Parse the partitions of a burst: `560`, or `7x80` for 7 topics of 80 partitions."""
    parts = text.strip().lower().split("x")
    if len(parts) > 2 or not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise UsageError(f"must be partitions, not {text!r}", hint="560, or 7x80 for 7 topics of 80 each")
    return in_range(text, float(prod(int(part[:20]) for part in parts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """A quota, a burst, and the window, which determines the largest credit."""

    quota: float = setting("burst", "--quota RATE", "controller_mutation_rate: partitions per second.", MUTATIONS_FORM)
    partitions: float = setting(
        "burst",
        "--burst N",
        "Partitions in one burst: 560, or 7x80 for 7 topics of 80 partitions.",
        TextForm(read=_partitions, pattern="", write=format_number),
    )
    window: QuotaWindow = DEFAULT_WINDOW

    @property
    def window_ms(self) -> int:
        """The length of all samples, in ms."""
        return self.window.samples * self.window.window_ms

    @property
    def credit(self) -> float:
        """The most tokens of a bucket in partitions: B = Q * S * W."""
        return self.quota * self.window_ms / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstOutcome:
    """The state of an algorithm after a burst, and the delays it causes."""

    DOCUMENT: ClassVar = (
        "algorithm source admits_iff=rule level=rounded unit formula delay_ms admitted_after_ms retries retried_ms"
    )
    burst: Burst
    algorithm: Algorithm
    level: float
    """Tokens, or a rate, after the burst."""
    delay_ms: int
    admitted_after_ms: int
    """Time after the burst until the next request is admitted, in ms."""
    retries: int | None
    """Retries, by a client that waits out each delay, up to the admitted one, None if it gave up."""
    retried_ms: Annotated[int | None, Described(text="null for never")]
    """Time of the admitted retry after the burst in ms."""

    @property
    def unit(self) -> str:
        """The unit of the level."""
        return PARTITIONS if self.algorithm is Algorithm.TOKEN_BUCKET else PARTITIONS_PER_SECOND

    @property
    def rounded(self) -> float:
        """The level without the noise of a sum of doubles."""
        return without_noise(self.level)

    @property
    def rule(self) -> str:
        """The condition to admit a request."""
        return _RULES[self.algorithm][1]

    @property
    def source(self) -> str:
        """Where the algorithm is described."""
        return _RULES[self.algorithm][0]

    @property
    def formula(self) -> str:
        """The formula of the delay with its figures, such as `60 / 5` or `(5.6 - 5) / 5 x 100 s`."""
        quota, level = _figure(self.burst.quota), _figure(self.level)
        if self.unit == PARTITIONS:
            return f"{_figure(-self.level)} / {quota}" if self.level < 0 else f"{level} tokens"
        return (
            f"({level} - {quota}) / {quota} x {_ms(self.burst.window_ms)}"
            if self.delay_ms
            else f"{level} against {quota}"
        )


def throttle_mutation(burst: Burst, algorithm: Algorithm) -> CalculatorAnswer:
    """Calculate the delay after a burst, and for the shipped algorithm the responses to clients."""
    calculations = [_calculation(burst, burst_outcome(burst, algorithm))]
    if algorithm is Algorithm.TOKEN_BUCKET:
        calculations += [_strict(burst), _permissive(burst)]
    return CalculatorAnswer(
        window=burst.window,
        given=(Given("quota", burst.quota, PARTITIONS_PER_SECOND), Given("burst", burst.partitions, PARTITIONS)),
        calculations=tuple(calculations),
    )


def burst_outcome(burst: Burst, algorithm: Algorithm) -> BurstOutcome:
    """Apply the burst to a fresh algorithm, then requests of a client that waits out each delay."""
    limiter, origin_ms = _after_burst(burst, algorithm), burst.window_ms
    delay_ms = limiter.apply(EventOperation.CHECK, 0, origin_ms).throttle_ms
    admitted_after_ms = _admitted_after_ms(burst, algorithm, delay_ms)
    events = [Event(t_ms=0, amount=burst.partitions), Event(t_ms=0, amount=1.0)]
    *_, last = replay(
        events, _fresh_limiter(burst, algorithm), usual=EventOperation.STRICT, origin_ms=origin_ms, closed_loop=True
    )
    return BurstOutcome(
        burst=burst,
        algorithm=algorithm,
        level=limiter.level(origin_ms),
        delay_ms=delay_ms,
        admitted_after_ms=admitted_after_ms,
        retries=last.attempt - 1 if last.outcome.admitted else None,
        retried_ms=last.t_ms if last.outcome.admitted else None,
    )


def _fresh_limiter(burst: Burst, algorithm: Algorithm) -> SimulatedLimiter:
    samples = burst.window.samples + (1 if algorithm is Algorithm.RATE else 0)
    return new_limiter(algorithm, bound=burst.quota, samples=samples, window_ms=burst.window.window_ms)


def _after_burst(burst: Burst, algorithm: Algorithm) -> SimulatedLimiter:
    """Return the algorithm just after the burst at `burst.window_ms`, when a new bucket is full."""
    limiter = _fresh_limiter(burst, algorithm)
    origin_ms = full_bucket_ms(samples=burst.window.samples, window_ms=burst.window.window_ms)
    limiter.apply(EventOperation.STRICT, burst.partitions, origin_ms)
    return limiter


def _admitted_after_ms(burst: Burst, algorithm: Algorithm, delay_ms: int) -> int:
    """Return the first time after the burst, in ms, at which another request is admitted.

    All but `rate` change from refusal to admission once. The window of `rate` grows within each sample and shrinks at
    its end, in the same way until the burst's own sample expires. The first sample and the last ones therefore decide.
    """
    limiter, origin_ms = _after_burst(burst, algorithm), burst.window_ms

    def admitted(after_ms: int) -> bool:
        return _RULES[algorithm][2](limiter.level(origin_ms + after_ms), burst.quota)

    if algorithm is not Algorithm.RATE:
        return 0 if admitted(0) else _first(admitted, 0, max(delay_ms + 1, burst.window_ms))
    size_ms, samples = burst.window.window_ms, burst.window.samples
    for index in (0, samples - 1, samples):
        low_ms, high_ms = index * size_ms, (index + 1) * size_ms - 1
        if admitted(low_ms):
            return low_ms
        if admitted(high_ms):
            return _first(admitted, low_ms, high_ms)
    return (samples + 1) * size_ms


def _first(admitted: Callable[[int], bool], refused_ms: int, later_ms: int) -> int:
    """Return the first time after `refused_ms` at which `admitted` holds, which then does for ever."""
    while not admitted(later_ms):
        refused_ms, later_ms = later_ms, 2 * later_ms
        if later_ms > LONG_MAX:
            raise UsageError("the wait after this burst is longer than Kafka can count", hint="raise the quota")
    return bisect_left(range(later_ms), True, lo=refused_ms + 1, key=admitted)  # noqa: FBT003 - what is looked for


def _calculation(burst: Burst, outcome: BurstOutcome) -> Calculation:
    steps = (
        *(_bucket_steps(burst, outcome) if outcome.unit == PARTITIONS else _rate_steps(burst, outcome)),
        Step("delay", outcome.formula, outcome.delay_ms, MS),
        Step("admitted again after", f"first instant with {outcome.rule}", outcome.admitted_after_ms, MS),
    )
    title = f"{outcome.algorithm}: admitted while {outcome.rule}"
    return Calculation(outcome.algorithm.value, title, outcome.source, steps, outcome.delay_ms)


def _bucket_steps(burst: Burst, outcome: BurstOutcome) -> tuple[Step, ...]:
    full = f"{_figure(burst.quota)}/s x {burst.window.samples} x {_ms(burst.window.window_ms)}"
    left = f"{_figure(burst.credit)} - {_figure(burst.partitions)}"
    return (
        Step("full bucket", full, burst.credit, PARTITIONS),
        Step("tokens after the burst", left, outcome.level, PARTITIONS),
    )


def _rate_steps(burst: Burst, outcome: BurstOutcome) -> tuple[Step, ...]:
    samples, per_sample = burst.window.samples, burst.quota * burst.window.window_s
    if outcome.algorithm is Algorithm.RATE:
        current, spread = burst.partitions, f"one sample of {_figure(burst.partitions)}"
    elif outcome.algorithm is Algorithm.SPREAD_EVEN:
        current = burst.partitions / samples
        spread = f"{samples} samples of {_figure(current)}"
    else:
        current = max(0.0, burst.partitions - (samples - 1) * per_sample)
        spread = f"{samples - 1} samples of up to {_figure(per_sample)}, one of {_figure(current)}"
    rate = f"{_figure(burst.partitions)} / {_ms(burst.window_ms)}"
    return (
        Step("current sample", spread, current, PARTITIONS),
        Step("rate after the burst", rate, outcome.level, PARTITIONS_PER_SECOND),
    )


def _strict(burst: Burst) -> Calculation:
    limiter = _fresh_limiter(burst, Algorithm.TOKEN_BUCKET)
    first, second = (
        limiter.apply(EventOperation.STRICT, amount, burst.window_ms) for amount in (burst.partitions, 1.0)
    )
    answer = f"admitted: {_figure(second.level)} tokens >= 0"
    if not second.admitted:
        answer = f"error 89 THROTTLING_QUOTA_EXCEEDED, wait {_figure(-second.level)} / {_figure(burst.quota)}"
    delay_ms, less = second.throttle_ms, "if no request quota delays it longer, less what it has waited"
    steps = (
        Step("the burst", f"admitted: {_figure(first.level)} tokens >= 0", 0, MS),
        Step("a request right after", answer, delay_ms, MS),
        Step("its throttle_time_ms", less, delay_ms, MS),
    )
    title = "strict: CreateTopics v6, CreatePartitions v3, DeleteTopics v5 and later"
    return Calculation("strict", title, _SHIPPED, steps, delay_ms)


def _permissive(burst: Burst) -> Calculation:
    limiter = _fresh_limiter(burst, Algorithm.TOKEN_BUCKET)
    outcome = limiter.apply(EventOperation.RECORD, burst.partitions, burst.window_ms)
    answer = f"accepted: {_figure(outcome.after)} tokens left"
    if outcome.throttle_ms:
        answer = f"accepted, connection muted for {_figure(-outcome.after)} / {_figure(burst.quota)}"
    title = "permissive: older versions, and topics created by Metadata requests"
    step = Step("the burst", answer, outcome.throttle_ms, MS)
    return Calculation("permissive", title, _SHIPPED, (step,), outcome.throttle_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """The state of each algorithm at one time after the burst."""

    after_ms: int
    levels: Annotated[Mapping[str, float], Described(text="by algorithm", columns=("algorithm", "level"))]
    """Tokens, or the rate."""
    admits: Annotated[Mapping[str, bool], Described(text="by algorithm", columns=("algorithm", "admits"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmComparison:
    """The burst, its outcomes, and the states over time."""

    DOCUMENT: ClassVar = (
        "burst.quota burst=burst.partitions window.num=burst.window.samples window.size_seconds=burst.window.window_s "
        "window.origin=origin algorithms=outcomes states"
    )
    burst: Burst
    outcomes: tuple[BurstOutcome, ...]
    """Outcome per algorithm, in the order of `MUTATION_ALGORITHMS`."""
    states: tuple[StateRow, ...]
    origin: str = ""
    """Where the window came from."""


def throttle_compare(burst: Burst) -> AlgorithmComparison:
    """Compare the burst in all four algorithms."""
    outcomes = tuple(burst_outcome(burst, algorithm) for algorithm in MUTATION_ALGORITHMS)
    return AlgorithmComparison(burst=burst, outcomes=outcomes, states=tuple(_states_at(burst, _times(burst, outcomes))))


def _states_at(burst: Burst, times_ms: Iterable[int]) -> Iterator[StateRow]:
    """Yield the states at the given times after the burst (ms)."""
    limiters = {algorithm: _after_burst(burst, algorithm) for algorithm in MUTATION_ALGORITHMS}
    for after_ms in times_ms:
        levels = {each: limiter.level(burst.window_ms + after_ms) for each, limiter in limiters.items()}
        yield StateRow(
            after_ms=after_ms,
            levels={each.value: without_noise(level) for each, level in levels.items()},
            admits={each.value: _RULES[each][2](level, burst.quota) for each, level in levels.items()},
        )


def _times(burst: Burst, outcomes: tuple[BurstOutcome, ...]) -> list[int]:
    """Return the times for rows in ms: every turning point, the sample before it, and some evenly."""
    turns = {time for outcome in outcomes for time in (outcome.delay_ms, outcome.admitted_after_ms)}
    size_ms = burst.window.window_ms
    end_ms = max(*turns, size_ms)
    evenly = range(0, end_ms, max(end_ms // _EVENLY // size_ms, 1) * size_ms)
    return sorted({0, *turns, *(time - size_ms for time in turns if time > size_ms), *evenly})
