"""Events replayed through one algorithm of this project, decision by decision.

Invariants: pure, in the order of the events, one event in memory at a time. The levels reported are looked at without
observing, so a replay leaves the algorithm in the state that enforcement would. Times may stand still or go back. In an
open loop every event happens when it is due; in a closed loop one client waits out every delay before its next event,
and repeats what was refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.metrics.rate import CountRate, Rate, SimpleRate
from kafka_quotas.core.metrics.sensor import Quota, Sensor, Violation
from kafka_quotas.core.metrics.token_bucket import TokenBucket
from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.core.quotas.mutation_bucket import SpreadEvenRate, SpreadFillRate

RETRY_BACKOFF_MS: Final = 100
"""The least time before a refused event is repeated: the `retry.backoff.ms` of Kafka's clients."""

MAX_ATTEMPTS: Final = 1000
"""How often an event is tried in a closed loop before the client goes on to the next."""

MAX_SPREAD_SAMPLES: Final = 100_000
"""More samples than that would take a spread longer than a person waits."""


class Algorithm(StrEnum):
    """The algorithms that events can be replayed through."""

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
    """What an event does: record and check, record or take back unchecked, check and then record, or only check."""

    RECORD = "record"
    RECORD_NOCHECK = "record_nocheck"
    UNRECORD = "unrecord"
    STRICT = "strict"
    CHECK = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An amount (bytes, partitions, percent-seconds) at a time, and what is done with it (None: what is usual)."""

    t_ms: int
    amount: float
    operation: EventOperation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one operation came to.

    `level` is the rate per second (or the tokens) that was judged: after the amount for `record`, before it for
    `strict` and `check`. `after` is the level once all is done. `window_ms` is set for a rate above its bound.
    """

    admitted: bool
    level: float
    after: float
    throttle_ms: int
    window_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDecision:
    """The outcome of an event that was due at `due_ms` and happened at `t_ms`, on the given attempt (from 1)."""

    due_ms: int
    t_ms: int
    amount: float
    operation: EventOperation
    attempt: int
    outcome: Outcome


class SimulatedLimiter(Protocol):
    """One algorithm with its state."""

    def apply(self, operation: EventOperation, amount: float, now_ms: int) -> Outcome:
        """The outcome of an operation at a time."""
        ...

    def level(self, now_ms: int) -> float:
        """The rate per second or the tokens at a time; looking changes nothing."""
        ...


def usual_operation(algorithm: Algorithm) -> EventOperation:
    """What an event does that does not say: rates record and then check, admission algorithms check first."""
    return EventOperation.STRICT if algorithm in (Algorithm.TOKEN_BUCKET, *SPREADS) else EventOperation.RECORD


def operations(algorithm: Algorithm) -> tuple[EventOperation, ...]:
    """The operations that an algorithm takes; the drafts that spread are only defined for admission."""
    return (EventOperation.STRICT, EventOperation.CHECK) if algorithm in SPREADS else tuple(EventOperation)


def new_limiter(algorithm: Algorithm, *, bound: float, samples: int, window_ms: int) -> SimulatedLimiter:
    """An algorithm in its first state: `bound` per second over `samples` samples of `window_ms`.

    Raises `UsageError` for a spread over more than `MAX_SPREAD_SAMPLES` samples.
    """
    if algorithm in SPREADS:
        if samples > MAX_SPREAD_SAMPLES:
            raise UsageError(f"{algorithm} takes at most {MAX_SPREAD_SAMPLES} samples, not {samples}")
        spread = SpreadEvenRate if algorithm is Algorithm.SPREAD_EVEN else SpreadFillRate
        return _SpreadLimiter(spread(samples, window_ms, bound))
    stat = _STATS[algorithm](samples, window_ms)
    longest_ms = window_ms if algorithm is Algorithm.BOUNDED else None
    return _SensorLimiter(Sensor(stat, Quota(bound), max_throttle_ms=longest_ms), stat)


def full_bucket_ms(*, samples: int, window_ms: int) -> int:
    """The earliest time at which a new token bucket is full, a whole number of windows, in ms.

    On a broker the clock began in 1970 and every new bucket is full; a replay of times that start at 0 adds this.
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
    """The decisions on the events, in order, as they are taken.

    `origin_ms` is added to the times that the limiter sees, not to those reported.
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


class _PeekableStat(Protocol):
    """A stat whose value can be looked at without observing."""

    def record(self, value: float, now_ms: int) -> None: ...

    def measure(self, now_ms: int) -> float: ...

    def reconfigure(self, samples: int, window_ms: int) -> None: ...

    def peek(self, now_ms: int) -> float: ...


_STATS: Final[Mapping[Algorithm, Callable[[int, int], _PeekableStat]]] = {
    Algorithm.RATE: Rate,
    Algorithm.BOUNDED: Rate,
    Algorithm.COUNT_RATE: CountRate,
    Algorithm.SIMPLE_RATE: SimpleRate,
    Algorithm.TOKEN_BUCKET: TokenBucket,
}


class _SensorLimiter:
    """A stat of Kafka's under its quota."""

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


class _SpreadLimiter:
    """One of the drafts that spread a burst; it only knows requests, and a request of nothing is a check."""

    def __init__(self, spread: SpreadEvenRate | SpreadFillRate) -> None:
        self._spread = spread

    def level(self, now_ms: int) -> float:
        return self._spread.rate(now_ms)

    def apply(self, operation: EventOperation, amount: float, now_ms: int) -> Outcome:
        if operation not in (EventOperation.STRICT, EventOperation.CHECK):
            raise UsageError(f"the spread algorithms do not take {operation}", hint="they take strict and check")
        decision = self._spread.request(amount if operation is EventOperation.STRICT else 0.0, now_ms)
        return Outcome(
            admitted=decision.admitted,
            level=decision.rate,
            after=self._spread.rate(now_ms),
            throttle_ms=decision.throttle_ms,
        )
