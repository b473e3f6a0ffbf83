"""The buckets of controller mutations, one for each algorithm of KIP-599's drafts and final form.

Invariants: each reports whether it would refuse a request now, without recording. `record` records refused amounts
too, and a negative amount takes back. Amounts are partitions, bounds partitions per second.

Two drafts spread a burst over the samples of a rate, so that it is forgotten step by step. Sample k covers
[k * window, (k + 1) * window) of absolute time. The rate is the sum of the last `samples` of them, including the
current one, over their whole length. The check comes before the record, and a refused request is not recorded. Sums
are exact fractions of the decimal figures given, so that a rate equal to its bound compares as equal.

**Source:** KIP-599, its version 15 (even) and its token-bucket page (fill), which Kafka never shipped;
`ControllerMutationQuotaManager` of Kafka 4.0.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Protocol

from kafka_quotas.core.metrics.throttle_time import mutation_throttle_time_ms, narrow_to_int32, throttle_time_ms
from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_bucket import UNLIMITED, MutationBucket, QuotaBucket, RateBucket
from kafka_quotas.core.resolution.quota_resolver import Bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadDecision:
    """The decision on one request."""

    admitted: bool
    rate: float
    """The rate per second before the request."""
    throttle_ms: int
    """The time to wait in ms; 0 if admitted."""


class _SpreadRate(ABC):
    """A rate under a bound (per second) over `samples` samples of `window_ms` each."""

    def __init__(self, samples: int, window_ms: int, bound: float) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._bound = _exact(bound)
        self._sums: defaultdict[int, Fraction] = defaultdict(Fraction)
        self._total = self._reserved = Fraction()

    def request(self, amount: float, now_ms: int) -> SpreadDecision:
        """Decide on a request of `amount`, and record it if it is admitted."""
        rate = self._rate(now_ms // self._window_ms)
        if not self._fits(rate):
            return SpreadDecision(admitted=False, rate=float(rate), throttle_ms=self._throttle_ms(rate))
        self.record(amount, now_ms)
        return SpreadDecision(admitted=True, rate=float(rate), throttle_ms=0)

    def refused_ms(self, now_ms: int) -> int | None:
        """Return how long a request would have to wait in ms, or None if it would be admitted."""
        rate = self._rate(now_ms // self._window_ms)
        return None if self._fits(rate) else self._throttle_ms(rate)

    def record(self, amount: float, now_ms: int) -> None:
        """Spread an amount, which may be negative to take back, without a check."""
        current = now_ms // self._window_ms
        # Samples that no rate needs are dropped, but one more length is kept for a clock that goes back.
        for index in [index for index in self._sums if index <= current - 2 * self._samples]:
            del self._sums[index]
        self._total += _exact(amount)
        self._spread(_exact(amount), current)

    def set_bound(self, bound: float) -> None:
        """Set the bound (per second), keeping the recorded samples."""
        self._bound = _exact(bound)

    @property
    def snapshot(self) -> tuple[float, ...]:
        """The snapshot for `restore`: number and sum of each sample, rounded to doubles."""
        return tuple(figure for index, total in self._sums.items() for figure in (float(index), float(total)))

    def restore(self, snapshot: tuple[float, ...], shift_ms: int) -> None:
        """Restore the samples of another rate, moved by the whole windows in `shift_ms`."""
        shift = shift_ms // self._window_ms
        pairs = zip(snapshot[::2], snapshot[1::2], strict=True)
        self._sums = defaultdict(Fraction, {int(index) + shift: _exact(total) for index, total in pairs})

    def rate(self, now_ms: int) -> float:
        """Return the rate per second."""
        return float(self._rate(now_ms // self._window_ms) - self._rate_of(self._reserved))

    @property
    def capacity(self) -> float:
        """The most that is admitted at once, but for the last request."""
        return float(self._bound * self._samples * self._window_ms / 1000)

    @property
    def total(self) -> float:
        """The sum of all records since the start."""
        return float(self._total)

    def used(self, now_ms: int) -> float:
        """Return the sum over the samples."""
        return self.rate(now_ms) * self._samples * self._window_ms / 1000

    def reserve(self, amount: float) -> None:
        """Count an amount as recorded and never expired."""
        self._reserved = _exact(amount)

    def _rate_of(self, total: Fraction) -> Fraction:
        return total * 1000 / (self._samples * self._window_ms)

    def _last(self, current: int) -> range:
        """Return the samples that count, the oldest first and the current one last."""
        return range(current - self._samples + 1, current + 1)

    def _rate(self, current: int) -> Fraction:
        return self._rate_of(
            sum((self._sums[index] for index in self._last(current) if index in self._sums), self._reserved)
        )

    def _throttle_ms(self, rate: Fraction) -> int:
        """Return the delay of a refusal: (rate - bound) / bound over all samples, the longest for bound 0."""
        if not self._bound:
            return INT_MAX
        exact_ms = (rate - self._bound) / self._bound * self._samples * self._window_ms
        return (2 * exact_ms.numerator + exact_ms.denominator) // (2 * exact_ms.denominator)

    @abstractmethod
    def _fits(self, rate: Fraction) -> bool:
        """Return whether a request is admitted at this rate."""

    @abstractmethod
    def _spread(self, amount: Fraction, current: int) -> None:
        """Record an admitted amount."""


class SpreadEvenRate(_SpreadRate):
    """`rate-spread-even`: spreads an amount evenly over all samples and admits below the bound."""

    def _fits(self, rate: Fraction) -> bool:
        return rate < self._bound

    def _spread(self, amount: Fraction, current: int) -> None:
        for index in self._last(current):
            self._sums[index] += amount / self._samples


class SpreadFillRate(_SpreadRate):
    """`rate-spread-fill`: fills earlier samples up to the bound and admits up to the bound."""

    def _fits(self, rate: Fraction) -> bool:
        return rate <= self._bound

    def _spread(self, amount: Fraction, current: int) -> None:
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


class MutationAlgorithm(StrEnum):
    """The algorithms that limit controller mutations."""

    TOKEN_BUCKET = "token-bucket"  # noqa: S105 - the name of an algorithm
    """Kafka's own: a bucket that bursts empty and that requests put into debt."""
    RATE = "rate"
    """A rate over the window, as for bytes: a burst is forgotten all at once, when its sample leaves."""
    SPREAD_EVEN = "rate-spread-even"
    """A rate over which each burst is spread evenly."""
    SPREAD_FILL = "rate-spread-fill"
    """A rate whose earlier samples a burst fills up to the bound first."""


class AdmissionBucket(QuotaBucket, Protocol):
    """A bucket that can check a request before it records."""

    def refused_ms(self, now_ms: int) -> int | None:
        """Return how long a request would have to wait in ms, or None if it is admitted."""


class TokenMutationBucket(MutationBucket):
    """A token bucket that refuses while it is in debt."""

    __slots__ = ()

    def refused_ms(self, now_ms: int) -> int | None:
        """Return how long it takes to pay the debt in ms, or None if there is none."""
        tokens = self.measure(now_ms) - self.reserved
        if tokens >= 0 or tokens != tokens:  # noqa: PLR0124 - NaN, of a bound that is none, is no debt
            return None
        return mutation_throttle_time_ms(tokens, self._per_second)


class RateMutationBucket(RateBucket):
    """Kafka's rate, refusing while it is above the bound."""

    __slots__ = ()

    def refused_ms(self, now_ms: int) -> int | None:
        """Return how long the rate takes to fall to its bound by the formula in ms, or None within the bound."""
        rate = self.measure(now_ms)
        return None if rate <= self._bound else throttle_time_ms(rate, self._bound, self.window_ms(now_ms))


class SpreadMutationBucket:
    """A bucket of one of the drafts that spread what they record."""

    def __init__(self, name: Bucket, rate: SpreadEvenRate | SpreadFillRate) -> None:
        self.name = name
        self.generation = 0
        self.recorded_ms: int | None = None
        self._rate = rate

    def set_bound(self, bound: float) -> None:
        """Set the bound (per second), keeping the recorded samples."""
        self._rate.set_bound(bound)

    def record(self, value: float, now_ms: int) -> None:
        """Record a value without a check."""
        self._rate.record(value, now_ms)
        self.recorded_ms = now_ms

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        """Record a value if it is admitted, and return the throttle time in ms otherwise."""
        refused_ms = self.refused_ms(now_ms)
        if refused_ms is None:
            self.record(value, now_ms)
        return narrow_to_int32(refused_ms or 0)

    def would_throttle_ms(self, value: float, now_ms: int) -> int:  # noqa: ARG002 - the next request pays for it
        """Return the throttle time in ms that recording a value would give, without changing the state."""
        return narrow_to_int32(self.refused_ms(now_ms) or 0)

    def peek(self, now_ms: int) -> float:
        """Return the rate per second."""
        return self._rate.rate(now_ms)

    @property
    def capacity(self) -> float:
        """The most that is admitted at once, but for the last request."""
        return self._rate.capacity

    @property
    def total(self) -> float:
        """The sum of all records since the start."""
        return self._rate.total

    def used(self, now_ms: int) -> float:
        """Return the sum over the samples, without what is reserved."""
        return self._rate.used(now_ms)

    def window_ms(self, now_ms: int) -> int:  # noqa: ARG002 - it has none
        """Return 0."""
        return 0

    def mean_age_ms(self, now_ms: int) -> float:  # noqa: ARG002 - spread over all samples
        """Return 0."""
        return 0.0

    @property
    def reserved(self) -> float:
        """Return 0."""
        return 0.0

    def reserve(self, amount: float, factor: float = 0.0) -> None:  # noqa: ARG002 - of drafts for comparison
        """Leave an amount of the capacity to others."""
        self._rate.reserve(amount)

    def record_past(self, value: float, since_ms: int, until_ms: int, now_ms: int) -> None:  # noqa: ARG002 - spread anyway
        """Record a value that was recorded elsewhere before."""
        self.record(value, now_ms)

    def is_blank(self, now_ms: int) -> bool:
        """Return whether a new bucket in its place would decide the same, because every sample is empty."""
        return self.recorded_ms is None or self._rate.rate(now_ms) == 0.0

    def is_in_debt(self, now_ms: int) -> bool:
        """Return whether it would refuse a request now."""
        return self._rate.refused_ms(now_ms) is not None

    @property
    def snapshot(self) -> tuple[float, ...]:
        """The snapshot for `restore`: that of the rate."""
        return self._rate.snapshot

    def restore(self, snapshot: tuple[float, ...], shift_ms: int) -> None:
        """Restore the state of another bucket, or raise a `ValueError` for figures that are no pairs."""
        self._rate.restore(snapshot, shift_ms)

    def refused_ms(self, now_ms: int) -> int | None:
        """Return how long the rate takes to fall to its bound by the formula in ms, or None if it admits."""
        return self._rate.refused_ms(now_ms)


def new_mutation_bucket(algorithm: MutationAlgorithm, name: Bucket, window: QuotaWindow) -> AdmissionBucket:
    """Return a bucket in its initial state, unlimited until a bound is set."""
    samples, window_ms = window.samples, window.window_ms
    match algorithm:
        case MutationAlgorithm.TOKEN_BUCKET:
            return TokenMutationBucket(name, samples, window_ms)
        case MutationAlgorithm.RATE:
            return RateMutationBucket(name, samples, window_ms)
        case MutationAlgorithm.SPREAD_EVEN:
            return SpreadMutationBucket(name, SpreadEvenRate(samples, window_ms, UNLIMITED))
        case MutationAlgorithm.SPREAD_FILL:
            return SpreadMutationBucket(name, SpreadFillRate(samples, window_ms, UNLIMITED))
