"""One burst of controller mutations under each of KIP-599's four algorithms, and the four side by side.

Invariants: states and delays come from the algorithms themselves; the formulas beside them are the documents'. The
client was idle before the burst. `rate` runs over one sample more than the others, as in Kafka's own comparison of the
two, which gives it as many whole samples.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from kafka_quotas.commands.throttle.rate import Calculation, CalculatorAnswer, Given, Step
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.value_format import MS, format_amount, format_rounded
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

PARTITIONS = "partitions"
PARTITIONS_PER_SECOND = "partitions/s"
ERROR_89 = "error 89 THROTTLING_QUOTA_EXCEEDED"

RULES = {
    Algorithm.TOKEN_BUCKET: "tokens >= 0",
    Algorithm.RATE: "rate <= quota",
    Algorithm.SPREAD_EVEN: "rate < quota",
    Algorithm.SPREAD_FILL: "rate <= quota",
}
"""Condition for each algorithm to admit a request."""

SOURCES = {
    Algorithm.TOKEN_BUCKET: "KIP-599 as shipped: TokenBucket, ControllerMutationQuotaManager",
    Algorithm.RATE: "Kafka's Rate, as before KIP-599",
    Algorithm.SPREAD_EVEN: "KIP-599, version 15",
    Algorithm.SPREAD_FILL: "KIP-599, token bucket page history",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """A quota, a burst, and the window, which determines the largest credit."""

    quota: float
    """Partitions per second."""
    partitions: float
    """Partitions of the burst."""
    window: QuotaWindow

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

    algorithm: Algorithm
    level: float
    """Tokens, or a rate, after the burst."""
    unit: str
    delay_ms: int
    """Delay by formula in ms."""
    admitted_after_ms: int
    """Time after the burst until the next request is admitted, in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherDelays:
    """Further influences on a response's throttle time."""

    request_throttle_ms: int = 0
    """Delay by the request quota in ms."""
    waited_ms: int = 0
    """Time that the response has already waited, in ms."""


def window_of_credit(credit: float, quota: float, window_s: int) -> QuotaWindow:
    """Return the window whose largest burst is `credit`, the draft's `controller_mutations_burst`.

    The number of samples is S = B / (Q * W).

    Raises:
        UsageError: The number of samples is not whole.
    """
    samples = Fraction(credit) / (Fraction(quota) * window_s)
    if samples.denominator != 1 or samples < 1:
        raise UsageError(
            f"a credit of {credit:g} is {float(samples):g} samples of {window_s} s at {quota:g}/s, not a whole number",
            hint=f"for example {quota * window_s * max(round(samples), 1):g}",
        )
    return QuotaWindow(samples=int(samples), window_s=window_s)


def throttle_mutation(burst: Burst, algorithm: Algorithm, others: OtherDelays) -> CalculatorAnswer:
    """Calculate the delay after a burst, and for the shipped algorithm the responses to clients."""
    outcome = burst_outcome(burst, algorithm)
    calculations = [_calculation(burst, outcome)]
    if algorithm is Algorithm.TOKEN_BUCKET:
        calculations += [_strict(burst, others), _permissive(burst)]
    return CalculatorAnswer(
        given=(Given("quota", burst.quota, PARTITIONS_PER_SECOND), Given("burst", burst.partitions, PARTITIONS)),
        calculations=tuple(calculations),
    )


def burst_outcome(burst: Burst, algorithm: Algorithm) -> BurstOutcome:
    """Apply the burst to a fresh algorithm and return its state."""
    limiter = after_burst(burst, algorithm)
    origin_ms = burst.window_ms
    level = limiter.level(origin_ms)
    checked = limiter.apply(EventOperation.CHECK, 0, origin_ms)
    return BurstOutcome(
        algorithm=algorithm,
        level=level,
        unit=PARTITIONS if algorithm is Algorithm.TOKEN_BUCKET else PARTITIONS_PER_SECOND,
        delay_ms=checked.throttle_ms,
        admitted_after_ms=_admitted_after_ms(burst, algorithm, checked.throttle_ms),
    )


def fresh_limiter(burst: Burst, algorithm: Algorithm) -> SimulatedLimiter:
    """Create the algorithm with the burst's quota and window, before the burst."""
    samples = burst.window.samples + (1 if algorithm is Algorithm.RATE else 0)
    return new_limiter(algorithm, bound=burst.quota, samples=samples, window_ms=burst.window.window_ms)


def after_burst(burst: Burst, algorithm: Algorithm) -> SimulatedLimiter:
    """Return the algorithm just after the burst at `burst.window_ms`, when a new bucket is full."""
    limiter = fresh_limiter(burst, algorithm)
    origin_ms = full_bucket_ms(samples=burst.window.samples, window_ms=burst.window.window_ms)
    limiter.apply(EventOperation.STRICT, burst.partitions, origin_ms)
    return limiter


def admits(limiter: SimulatedLimiter, algorithm: Algorithm, quota: float, now_ms: int) -> bool:
    """Check whether a request would be admitted at a time, without changing the limiter."""
    level = limiter.level(now_ms)
    if algorithm is Algorithm.TOKEN_BUCKET:
        return level >= 0
    return level < quota if algorithm is Algorithm.SPREAD_EVEN else level <= quota


def _admitted_after_ms(burst: Burst, algorithm: Algorithm, delay_ms: int) -> int:
    """Return the first time after the burst, in ms, at which another request is admitted.

    All but `rate` change from refusal to admission once. The window of `rate` grows within each sample and shrinks at
    its end, in the same way until the burst's own sample expires. The first sample and the last ones therefore decide.
    """
    limiter, origin_ms = after_burst(burst, algorithm), burst.window_ms

    def admitted(after_ms: int) -> bool:
        return admits(limiter, algorithm, burst.quota, origin_ms + after_ms)

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
    while later_ms - refused_ms > 1:
        middle_ms = (refused_ms + later_ms) // 2
        if admitted(middle_ms):
            later_ms = middle_ms
        else:
            refused_ms = middle_ms
    return later_ms


def _calculation(burst: Burst, outcome: BurstOutcome) -> Calculation:
    steps = _bucket_steps(burst, outcome) if outcome.unit == PARTITIONS else _rate_steps(burst, outcome)
    return Calculation(
        method=outcome.algorithm.value,
        title=f"{outcome.algorithm}: admitted while {RULES[outcome.algorithm]}",
        source=SOURCES[outcome.algorithm],
        steps=(
            *steps,
            Step("delay", delay_formula(burst, outcome), outcome.delay_ms, MS),
            Step(
                "admitted again after", f"first instant with {RULES[outcome.algorithm]}", outcome.admitted_after_ms, MS
            ),
        ),
        delay_ms=outcome.delay_ms,
    )


def delay_formula(burst: Burst, outcome: BurstOutcome) -> str:
    """Return the formula of the delay with its figures, such as `60 / 5` or `(5.6 - 5) / 5 x 100 s`."""
    quota, level = format_rounded(burst.quota, 6), format_rounded(outcome.level, 6)
    if outcome.unit == PARTITIONS:
        return f"{format_rounded(-outcome.level, 6)} / {quota}" if outcome.level < 0 else f"{level} tokens"
    if outcome.delay_ms == 0:
        return f"{level} against {quota}"
    return f"({level} - {quota}) / {quota} x {format_amount(burst.window_ms, MS)}"


def _bucket_steps(burst: Burst, outcome: BurstOutcome) -> tuple[Step, ...]:
    window = f"{burst.window.samples} x {format_amount(burst.window.window_ms, MS)}"
    return (
        Step("full bucket", f"{format_rounded(burst.quota, 6)}/s x {window}", burst.credit, PARTITIONS),
        Step(
            "tokens after the burst",
            f"{format_rounded(burst.credit, 6)} - {format_rounded(burst.partitions, 6)}",
            outcome.level,
            PARTITIONS,
        ),
    )


def _rate_steps(burst: Burst, outcome: BurstOutcome) -> tuple[Step, ...]:
    samples, per_sample = burst.window.samples, burst.quota * burst.window.window_s
    if outcome.algorithm is Algorithm.RATE:
        current, spread = burst.partitions, f"one sample of {format_rounded(burst.partitions, 6)}"
    elif outcome.algorithm is Algorithm.SPREAD_EVEN:
        current = burst.partitions / samples
        spread = f"{samples} samples of {format_rounded(current, 6)}"
    else:
        current = max(0.0, burst.partitions - (samples - 1) * per_sample)
        spread = f"{samples - 1} samples of up to {format_rounded(per_sample, 6)}, one of {format_rounded(current, 6)}"
    return (
        Step("current sample", spread, current, PARTITIONS),
        Step(
            "rate after the burst",
            f"{format_rounded(burst.partitions, 6)} / {format_amount(burst.window_ms, MS)}",
            outcome.level,
            PARTITIONS_PER_SECOND,
        ),
    )


def _strict(burst: Burst, others: OtherDelays) -> Calculation:
    """Calculate the response to newer clients, where a refused topic has error 89."""
    limiter = fresh_limiter(burst, Algorithm.TOKEN_BUCKET)
    first, second = (
        limiter.apply(EventOperation.STRICT, amount, burst.window_ms) for amount in (burst.partitions, 1.0)
    )
    refused = f"{ERROR_89}, wait {format_rounded(-second.level, 6)} / {format_rounded(burst.quota, 6)}"
    admitted = f"admitted: {format_rounded(second.level, 6)} tokens >= 0"
    left_ms = max(others.request_throttle_ms, second.throttle_ms - others.waited_ms)
    request, wait, waited = (
        format_amount(value_ms, MS) for value_ms in (others.request_throttle_ms, second.throttle_ms, others.waited_ms)
    )
    return Calculation(
        method="strict",
        title="strict: CreateTopics v6, CreatePartitions v3, DeleteTopics v5 and later",
        source=SOURCES[Algorithm.TOKEN_BUCKET],
        steps=(
            Step("the burst", f"admitted: {format_rounded(first.level, 6)} tokens >= 0", 0, MS),
            Step("a request right after", admitted if second.admitted else refused, second.throttle_ms, MS),
            Step("its throttle_time_ms", f"max({request}, {wait} - {waited})", left_ms, MS),
        ),
        delay_ms=left_ms,
    )


def _permissive(burst: Burst) -> Calculation:
    """Calculate the response to older clients: all is accepted, and the connection is muted for the delay."""
    outcome = fresh_limiter(burst, Algorithm.TOKEN_BUCKET).apply(
        EventOperation.RECORD, burst.partitions, burst.window_ms
    )
    muted = f"accepted, connection muted for {format_rounded(-outcome.after, 6)} / {format_rounded(burst.quota, 6)}"
    return Calculation(
        method="permissive",
        title="permissive: older versions, and topics created by Metadata requests",
        source=SOURCES[Algorithm.TOKEN_BUCKET],
        steps=(
            Step(
                "the burst",
                muted if outcome.throttle_ms else f"accepted: {format_rounded(outcome.after, 6)} tokens left",
                outcome.throttle_ms,
                MS,
            ),
        ),
        delay_ms=outcome.throttle_ms,
    )


_EVENLY = 10
"""Rows at even distances between the burst and the end, in addition to the turning points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOutcome:
    """An outcome, and the result for a client that retries a request after each delay."""

    outcome: BurstOutcome
    retries: int | None
    """Retries up to the admitted one, None where the client gave up."""
    retried_ms: int | None
    """Time of the admitted retry after the burst in ms, None where the client gave up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """The state of each algorithm at one time after the burst."""

    after_ms: int
    """Time after the burst in ms."""
    levels: tuple[float, ...]
    """Tokens, or the rate, of each algorithm."""
    admits: tuple[bool, ...]
    """Whether each algorithm would admit a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmComparison:
    """The burst, its outcomes, and the states over time."""

    burst: Burst
    outcomes: tuple[ComparedOutcome, ...]
    """Outcome per algorithm, in the order of `MUTATION_ALGORITHMS`."""
    states: tuple[StateRow, ...]


def throttle_compare(burst: Burst) -> AlgorithmComparison:
    """Compare the burst in all four algorithms."""
    outcomes = tuple(_compared(burst, algorithm) for algorithm in MUTATION_ALGORITHMS)
    times = _times(burst, tuple(compared.outcome for compared in outcomes))
    return AlgorithmComparison(burst=burst, outcomes=outcomes, states=states_at(burst, times))


def states_at(burst: Burst, times_ms: tuple[int, ...]) -> tuple[StateRow, ...]:
    """Return the states at the given times after the burst (ms)."""
    limiters = [(algorithm, after_burst(burst, algorithm)) for algorithm in MUTATION_ALGORITHMS]
    return tuple(
        StateRow(
            after_ms=after_ms,
            levels=tuple(limiter.level(burst.window_ms + after_ms) for _, limiter in limiters),
            admits=tuple(
                admits(limiter, algorithm, burst.quota, burst.window_ms + after_ms) for algorithm, limiter in limiters
            ),
        )
        for after_ms in times_ms
    )


def _compared(burst: Burst, algorithm: Algorithm) -> ComparedOutcome:
    events = [Event(t_ms=0, amount=burst.partitions), Event(t_ms=0, amount=1.0)]
    limiter = fresh_limiter(burst, algorithm)
    decisions = list(replay(events, limiter, usual=EventOperation.STRICT, origin_ms=burst.window_ms, closed_loop=True))
    last = decisions[-1]
    return ComparedOutcome(
        outcome=burst_outcome(burst, algorithm),
        retries=last.attempt - 1 if last.outcome.admitted else None,
        retried_ms=last.t_ms if last.outcome.admitted else None,
    )


def _times(burst: Burst, outcomes: tuple[BurstOutcome, ...]) -> tuple[int, ...]:
    """Return the times for rows in ms: every turning point, the sample before it, and some evenly."""
    turns = {time for outcome in outcomes for time in (outcome.delay_ms, outcome.admitted_after_ms)}
    size_ms = burst.window.window_ms
    end_ms = max(*turns, size_ms)
    step_ms = max(end_ms // _EVENLY // size_ms, 1) * size_ms
    evenly = range(0, end_ms, step_ms)
    before = {time - size_ms for time in turns if time > size_ms}
    return tuple(sorted({0, *turns, *before, *evenly}))
