"""Replay of events through one quota algorithm of this project, decision by decision.

In an open loop every event happens when it is due. In a closed loop one client waits out every delay before its next
event and repeats refused events.

Invariants: a replay is pure and keeps one event in memory. It peeks at the levels that it reports, so the algorithm
ends in the state that enforcement would leave. Times may stay equal or go back.

Two drafts of KIP-599 spread a burst over the samples of a rate, so that it is forgotten step by step. Sample k covers
[k * window, (k + 1) * window) of absolute time. The rate is the sum of the last `samples` of them, including the
current one, over their whole length. The check comes before the record, and a refused request is not recorded. Sums
are exact fractions of the decimal figures given, so that a rate equal to its bound compares as equal.

**Source:** KIP-599's version 15 (even) and its token-bucket page (fill), which Kafka never shipped.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final, Protocol

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.metrics.rate import CountRate, Rate, SimpleRate
from kafka_quotas.core.metrics.sensor import Quota, Sensor, Stat, TokenBucket, Violation
from kafka_quotas.core.metrics.throttle_time import MAX_ATTEMPTS, RETRY_BACKOFF_MS
from kafka_quotas.core.model.quota_key import INT_MAX

MAX_SPREAD_SAMPLES: Final = 100_000
"""The maximum number of samples of a spread, which keeps a replay within a few seconds."""


class Algorithm(StrEnum):
    """The algorithms that a replay can use."""

    RATE = "rate"
    BOUNDED = "bounded"
    COUNT_RATE = "count-rate"
    SIMPLE_RATE = "simple-rate"
    TOKEN_BUCKET = "token-bucket"  # noqa: S105 - the name of an algorithm
    SPREAD_EVEN = "rate-spread-even"
    SPREAD_FILL = "rate-spread-fill"


MUTATION_ALGORITHMS: Final = (Algorithm.TOKEN_BUCKET, Algorithm.RATE, Algorithm.SPREAD_EVEN, Algorithm.SPREAD_FILL)
"""The four algorithms of KIP-599's drafts and of its final form, the one that Kafka shipped first."""

SPREADS: Final = (Algorithm.SPREAD_EVEN, Algorithm.SPREAD_FILL)


class EventOperation(StrEnum):
    """The operation of an event.

    `record` records and then checks. `record_nocheck` and `unrecord` only record. `strict` checks before it records.
    `check` records nothing.
    """

    RECORD = "record"
    RECORD_NOCHECK = "record_nocheck"
    UNRECORD = "unrecord"
    STRICT = "strict"
    CHECK = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An amount at a time, and the operation to apply."""

    t_ms: int
    amount: float
    operation: EventOperation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one operation."""

    admitted: bool
    level: float
    """The rate per second (or the tokens) that decided: before the amount for `strict` and `check`, else after it."""
    after: float
    throttle_ms: int
    window_ms: int | None = None
    """The window of a rate above its bound; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDecision:
    """The outcome of one attempt at an event."""

    due_ms: int
    t_ms: int
    amount: float
    operation: EventOperation
    attempt: int
    outcome: Outcome


class SimulatedLimiter(Protocol):
    """One algorithm with its state."""

    def apply(self, operation: EventOperation, amount: float, now_ms: int) -> Outcome:
        """Apply an operation at a time and return its outcome."""
        ...

    def level(self, now_ms: int) -> float:
        """Return the rate per second or the tokens at a time without changing the state."""
        ...


def usual_operation(algorithm: Algorithm) -> EventOperation:
    """Return the operation of an event that names none: rates check last, admission algorithms first."""
    return EventOperation.STRICT if algorithm in (Algorithm.TOKEN_BUCKET, *SPREADS) else EventOperation.RECORD


def operations(algorithm: Algorithm) -> tuple[EventOperation, ...]:
    """Return the operations that an algorithm supports: KIP-599's drafts are for admission only."""
    return (EventOperation.STRICT, EventOperation.CHECK) if algorithm in SPREADS else tuple(EventOperation)


def new_limiter(algorithm: Algorithm, *, bound: float, samples: int, window_ms: int) -> SimulatedLimiter:
    """Return an algorithm in its initial state, with its bound per second."""
    if algorithm in SPREADS:
        if samples > MAX_SPREAD_SAMPLES:
            raise UsageError(f"{algorithm} takes at most {MAX_SPREAD_SAMPLES} samples, not {samples}")
        return _SpreadLimiter(samples, window_ms, bound, fills=algorithm is Algorithm.SPREAD_FILL)
    stat = _STATS[algorithm](samples, window_ms)
    longest_ms = window_ms if algorithm is Algorithm.BOUNDED else None
    return _SensorLimiter(Sensor(stat, Quota(bound), max_throttle_ms=longest_ms), stat)


def full_bucket_ms(*, samples: int, window_ms: int) -> int:
    """Return the earliest time in ms at which a new token bucket is full, a whole number of windows.

    On a broker the clock began in 1970 and every new bucket is full. A replay of times that start at 0 adds this.
    """
    return samples * window_ms


def replay(
    events: Iterable[Event],
    limiter: SimulatedLimiter,
    *,
    usual: EventOperation,
    origin_ms: int = 0,
    closed_loop: bool = False,
) -> Iterator[SimulatedDecision]:
    """Yield the decisions on the events, in order, of which some use the `usual` operation.

    The limiter sees times later by `origin_ms`. In a `closed_loop` the client waits out delays and repeats refused
    events.
    """
    free_ms: int | None = None
    for event in events:
        operation = event.operation or usual
        now_ms = max(event.t_ms, free_ms) if closed_loop and free_ms is not None else event.t_ms
        for attempt in range(1, MAX_ATTEMPTS + 1 if closed_loop else 2):
            outcome = limiter.apply(operation, event.amount, origin_ms + now_ms)
            yield SimulatedDecision(
                due_ms=event.t_ms,
                t_ms=now_ms,
                amount=event.amount,
                operation=operation,
                attempt=attempt,
                outcome=outcome,
            )
            wait_ms = min(max(outcome.throttle_ms, 0), INT_MAX)
            free_ms = now_ms = now_ms + (wait_ms if outcome.admitted else max(wait_ms, RETRY_BACKOFF_MS))
            if outcome.admitted or operation is EventOperation.CHECK:
                break


class _SpreadLimiter:
    """One of the drafts that spread a burst, for requests only, so that a check is a request of 0.

    `rate-spread-even` spreads an amount evenly over all samples and admits below the bound. `rate-spread-fill` fills
    earlier samples up to the bound and admits up to the bound.
    """

    def __init__(self, samples: int, window_ms: int, bound: float, *, fills: bool) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._bound = _exact(bound)
        self._fills = fills
        self._sums: defaultdict[int, Fraction] = defaultdict(Fraction)

    def level(self, now_ms: int) -> float:
        return float(self._rate(now_ms // self._window_ms))

    def apply(self, operation: EventOperation, amount: float, now_ms: int) -> Outcome:
        if operation not in (EventOperation.STRICT, EventOperation.CHECK):
            raise UsageError(f"the spread algorithms do not take {operation}", hint="they take strict and check")
        current = now_ms // self._window_ms
        rate = self._rate(current)
        admitted = rate <= self._bound if self._fills else rate < self._bound
        if admitted:
            # Samples that no rate needs are dropped, but one more length is kept for a clock that goes back.
            for index in [index for index in self._sums if index <= current - 2 * self._samples]:
                del self._sums[index]
            self._spread(_exact(amount if operation is EventOperation.STRICT else 0.0), current)
        throttle_ms = 0 if admitted else self._throttle_ms(rate)
        return Outcome(admitted=admitted, level=float(rate), after=self.level(now_ms), throttle_ms=throttle_ms)

    def _last(self, current: int) -> range:
        """Return the samples that count, the oldest first and the current one last."""
        return range(current - self._samples + 1, current + 1)

    def _rate(self, current: int) -> Fraction:
        total = sum((self._sums[index] for index in self._last(current) if index in self._sums), Fraction())
        return total * 1000 / (self._samples * self._window_ms)

    def _throttle_ms(self, rate: Fraction) -> int:
        """Return the delay of a refusal: (rate - bound) / bound over all samples, the longest for bound 0."""
        if not self._bound:
            return INT_MAX
        exact_ms = (rate - self._bound) / self._bound * self._samples * self._window_ms
        return (2 * exact_ms.numerator + exact_ms.denominator) // (2 * exact_ms.denominator)

    def _spread(self, amount: Fraction, current: int) -> None:
        if not self._fills:
            for index in self._last(current):
                self._sums[index] += amount / self._samples
            return
        full = self._bound * self._window_ms / 1000
        for index in self._last(current)[:-1]:
            room = min(amount, full - self._sums.get(index, Fraction()))
            if room > 0:
                self._sums[index] += room
                amount -= room
        self._sums[current] += amount


def _exact(figure: float) -> Fraction:
    """Return the decimal figure as written: 0.1 is a tenth, and not the nearest double."""
    return Fraction(repr(figure))


class _PeekableStat(Stat, Protocol):
    def peek(self, now_ms: int) -> float: ...


_STATS: Final[Mapping[Algorithm, Callable[[int, int], _PeekableStat]]] = {
    Algorithm.RATE: Rate,
    Algorithm.BOUNDED: Rate,
    Algorithm.COUNT_RATE: CountRate,
    Algorithm.SIMPLE_RATE: SimpleRate,
    Algorithm.TOKEN_BUCKET: TokenBucket,
}


class _SensorLimiter:
    def __init__(self, sensor: Sensor, stat: _PeekableStat) -> None:
        self._sensor = sensor
        self._stat = stat

    def level(self, now_ms: int) -> float:
        return self._stat.peek(now_ms)

    def apply(self, operation: EventOperation, amount: float, now_ms: int) -> Outcome:
        match operation:
            case EventOperation.RECORD:
                violation = self._sensor.record(amount, now_ms)
                level = after = self._stat.measure(now_ms)  # after a check at the same time measuring changes nothing
                return _outcome(violation, level, after, admitted=True)
            case EventOperation.STRICT | EventOperation.CHECK:
                violation = self._sensor.check(now_ms)
                level = after = self._stat.measure(now_ms)
                if violation is None and operation is EventOperation.STRICT:
                    self._stat.record(amount, now_ms)
                    after = self._stat.measure(now_ms)
                return _outcome(violation, level, after, admitted=violation is None)
            case EventOperation.RECORD_NOCHECK | EventOperation.UNRECORD:
                self._stat.record(-amount if operation is EventOperation.UNRECORD else amount, now_ms)
                level = self._stat.peek(now_ms)
                return _outcome(None, level, level, admitted=True)


def _outcome(violation: Violation | None, level: float, after: float, *, admitted: bool) -> Outcome:
    return Outcome(
        admitted=admitted,
        level=level,
        after=after,
        throttle_ms=0 if violation is None else violation.throttle_ms or 0,
        window_ms=None if violation is None else violation.window_ms,
    )
