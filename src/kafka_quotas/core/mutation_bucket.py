"""The buckets that controller mutations can be charged to: one for each algorithm of KIP-599's drafts and final form.

Invariants: each says whether a request would be refused now, without recording anything, and records what it is told to
record, refused or not; a negative amount takes back what was recorded for nothing. Amounts are partitions, bounds
partitions per second.
**Source:** KIP-599, its version 15 and its token-bucket page; `ControllerMutationQuotaManager` of Kafka 4.0.
"""

from enum import StrEnum
from typing import Protocol

from kafka_quotas.core.quota_bucket import UNLIMITED, MutationBucket, QuotaBucket, RateBucket
from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.core.resolution import Bucket
from kafka_quotas.core.spread import SpreadEvenRate, SpreadFillRate
from kafka_quotas.core.throttle_time import mutation_throttle_time_ms, narrow_to_int32, throttle_time_ms


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
