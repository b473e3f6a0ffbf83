"""The buckets that controller mutations can be charged to: one for each algorithm of KIP-599's drafts and final form.

Invariants: each says whether a request would be refused now, without recording anything, and records what it is told to
record, refused or not; a negative amount takes back what was recorded for nothing. Amounts are partitions, bounds
partitions per second.
**Source:** KIP-599, its version 15 and its token-bucket page; `ControllerMutationQuotaManager` of Kafka 4.0.

The two drafts of KIP-599 that spread a burst over the samples of a rate, so that it is forgotten step by step.

Sample k covers [k * window, (k + 1) * window) of absolute time; the rate is the sum of the last `samples` of them,
the current one included, over their whole length. It is checked before a request is recorded; a refused request is
not.
Invariants: sums are exact fractions of the decimal figures given, so that a rate that equals its bound is seen as
equal.
**Source:** KIP-599 version 15 (even) and its token-bucket page (fill); Kafka never shipped either.
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
    """Whether a request was admitted, the rate before it (per second), and the time to wait in ms, 0 if admitted."""

    admitted: bool
    rate: float
    throttle_ms: int


class _SpreadRate(ABC):
    """A rate under a bound (per second) over `samples` samples of `window_ms` each."""

    def __init__(self, samples: int, window_ms: int, bound: float) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._bound = _exact(bound)
        self._sums: defaultdict[int, Fraction] = defaultdict(Fraction)

    def request(self, amount: float, now_ms: int) -> SpreadDecision:
        """The decision on a request of `amount`; it is recorded where it is admitted."""
        rate = self._rate(now_ms // self._window_ms)
        if not self._fits(rate):
            return SpreadDecision(admitted=False, rate=float(rate), throttle_ms=self._throttle_ms(rate))
        self.record(amount, now_ms)
        return SpreadDecision(admitted=True, rate=float(rate), throttle_ms=0)

    def refused_ms(self, now_ms: int) -> int | None:
        """How long a request would have to wait, in ms; None where it would be admitted."""
        rate = self._rate(now_ms // self._window_ms)
        return None if self._fits(rate) else self._throttle_ms(rate)

    def record(self, amount: float, now_ms: int) -> None:
        """Nothing; the amount is spread, nothing is checked. A negative one takes back."""
        current = now_ms // self._window_ms
        self._forget(current)
        self._spread(_exact(amount), current)

    def set_bound(self, bound: float) -> None:
        """Nothing; the bound (per second) is another one from now on, what was recorded stays where it is."""
        self._bound = _exact(bound)

    @property
    def memory(self) -> tuple[float, ...]:
        """The figures that `remember` takes: number and sum of each sample, as near as a double comes to it."""
        return tuple(figure for index, total in self._sums.items() for figure in (float(index), float(total)))

    def remember(self, memory: tuple[float, ...], shift_ms: int) -> None:
        """Nothing; the samples are those of another rate, moved by as many windows as `shift_ms` has.

        Raises `ValueError` for figures that are no pairs.
        """
        shift = shift_ms // self._window_ms
        pairs = zip(memory[::2], memory[1::2], strict=True)
        self._sums = defaultdict(Fraction, {int(index) + shift: _exact(total) for index, total in pairs})

    def rate(self, now_ms: int) -> float:
        """The rate per second."""
        return float(self._rate(now_ms // self._window_ms))

    def _last(self, current: int) -> range:
        """The samples that count, the oldest first, the current one last."""
        return range(current - self._samples + 1, current + 1)

    def _rate(self, current: int) -> Fraction:
        total = sum((self._sums[index] for index in self._last(current) if index in self._sums), Fraction())
        return total * 1000 / (self._samples * self._window_ms)

    def _throttle_ms(self, rate: Fraction) -> int:
        """The delay of a refusal: (rate - bound) / bound over all samples, halves up; the longest for a bound of 0."""
        if not self._bound:
            return INT_MAX
        exact_ms = (rate - self._bound) / self._bound * self._samples * self._window_ms
        return (2 * exact_ms.numerator + exact_ms.denominator) // (2 * exact_ms.denominator)

    def _forget(self, current: int) -> None:
        """Drop samples that no rate needs; one more length is kept for a clock that goes back."""
        for index in [index for index in self._sums if index <= current - 2 * self._samples]:
            del self._sums[index]

    @abstractmethod
    def _fits(self, rate: Fraction) -> bool:
        """Whether a request is admitted at this rate."""

    @abstractmethod
    def _spread(self, amount: Fraction, current: int) -> None:
        """Record an admitted amount."""


class SpreadEvenRate(_SpreadRate):
    """`rate-spread-even`: an amount is spread evenly over all samples; admitted while the rate is below the bound."""

    def _fits(self, rate: Fraction) -> bool:
        return rate < self._bound

    def _spread(self, amount: Fraction, current: int) -> None:
        for index in self._last(current):
            self._sums[index] += amount / self._samples


class SpreadFillRate(_SpreadRate):
    """`rate-spread-fill`: earlier samples are filled up to the bound; admitted while the rate is not above it."""

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
    """The decimal figure that was meant: 0.1 is a tenth, and not the double next to it."""
    return Fraction(repr(figure))


class MutationAlgorithm(StrEnum):
    """How controller mutations are limited."""

    TOKEN_BUCKET = "token-bucket"  # noqa: S105 - the name of an algorithm
    """What Kafka shipped: a bucket that bursts empty and requests put into debt."""
    RATE = "rate"
    """A rate over the window, as for bytes: a burst is forgotten all at once, when its sample leaves."""
    SPREAD_EVEN = "rate-spread-even"
    """A rate over which each burst is spread evenly."""
    SPREAD_FILL = "rate-spread-fill"
    """A rate whose earlier samples a burst fills up to the bound first."""


class AdmissionBucket(QuotaBucket, Protocol):
    """A bucket that can be asked before anything is recorded."""

    def refused_ms(self, now_ms: int) -> int | None:
        """How long a request would have to wait, in ms; None where it is admitted."""
        ...


class TokenMutationBucket(MutationBucket):
    """Tokens: refused while there is a debt."""

    __slots__ = ()

    def refused_ms(self, now_ms: int) -> int | None:
        """How long it takes to pay the debt, in ms; None where there is none."""
        tokens = self.measure(now_ms)
        if tokens >= 0 or tokens != tokens:  # noqa: PLR0124 - NaN, of a bound that is none, is no debt
            return None
        return mutation_throttle_time_ms(tokens, self._per_second)


class RateMutationBucket(RateBucket):
    """A rate of Kafka's: refused while it is above the bound."""

    __slots__ = ()

    def refused_ms(self, now_ms: int) -> int | None:
        """How long the rate takes to come down by the formula, in ms; None where it is within the bound."""
        rate = self.measure(now_ms)
        return None if rate <= self._bound else throttle_time_ms(rate, self._bound, self.window_ms(now_ms))


class SpreadMutationBucket:
    """A rate that spreads what it records, one of the drafts."""

    def __init__(self, name: Bucket, rate: SpreadEvenRate | SpreadFillRate) -> None:
        self.name = name
        self.generation = 0
        self.recorded_ms: int | None = None
        self._rate = rate

    def set_bound(self, bound: float) -> None:
        """Nothing; the bound is another one from now on, what was recorded stays."""
        self._rate.set_bound(bound)

    def record(self, value: float, now_ms: int) -> None:
        """Nothing; the value is recorded, nothing is checked."""
        self._rate.record(value, now_ms)
        self.recorded_ms = now_ms

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        """The throttle time in ms where the value is refused; else 0, and it is recorded."""
        refused_ms = self.refused_ms(now_ms)
        if refused_ms is None:
            self.record(value, now_ms)
        return narrow_to_int32(refused_ms or 0)

    def peek(self, now_ms: int) -> float:
        """The rate per second."""
        return self._rate.rate(now_ms)

    def is_blank(self, now_ms: int) -> bool:
        """Return whether a new bucket in its place would hold nobody back less: no sample has anything left."""
        return self.recorded_ms is None or self._rate.rate(now_ms) == 0.0

    def is_in_debt(self, now_ms: int) -> bool:
        """Return whether a request would be refused now."""
        return self._rate.refused_ms(now_ms) is not None

    @property
    def memory(self) -> tuple[float, ...]:
        """The figures that `remember` takes: those of the rate."""
        return self._rate.memory

    def remember(self, memory: tuple[float, ...], shift_ms: int) -> None:
        """Nothing; goes on in place of another bucket. Raises `ValueError` for figures that are no pairs."""
        self._rate.remember(memory, shift_ms)

    def refused_ms(self, now_ms: int) -> int | None:
        """How long the rate takes to come down by the formula, in ms; None where a request is admitted."""
        return self._rate.refused_ms(now_ms)


def new_mutation_bucket(algorithm: MutationAlgorithm, name: Bucket, window: QuotaWindow) -> AdmissionBucket:
    """A bucket in its first state, unlimited until a bound is set."""
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
