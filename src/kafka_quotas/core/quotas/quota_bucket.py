"""The state that clients of one bucket share: a rate or a token bucket, with its bound and its verdicts.

Invariants: an unlimited bucket records as well, against a bound nothing exceeds; throttle times are narrowed to 32
bits. This is the hot path: one decision is one call, on plain attributes, with the arithmetic of `core.metrics.rate`,
`core.metrics.token_bucket` and `core.metrics.throttle_time` written out; tests hold the two against each other.
**Source:** `Sensor.record`, `ClientQuotaManager.recordAndGetThrottleTimeMs` and its override for controller mutations
(Kafka 4.0).

What a bucket has to remember when the process that keeps it ends, so that a restart forgives nobody anything.

Invariants: plain figures; a bucket of the same kind and window that is given its memory back goes on as if nothing had
happened, a shift of all times (a clock that was set back meanwhile) apart.

A rate kept without a window: one second's worth of tokens that may be overdrawn, and a debt is waited off.

A window lets a fast client spend ten seconds' quota at once and then nothing for as long; this lets it spend one
second's. Invariants: everything is recorded; the throttle time ends when the debt does; a clock that goes back neither
gives nor takes tokens.
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

from kafka_quotas.core.metrics.rate import Rate
from kafka_quotas.core.metrics.sampled_stat import WindowedSum
from kafka_quotas.core.metrics.throttle_average import METRIC_SAMPLES, METRIC_WINDOW_MS
from kafka_quotas.core.metrics.throttle_time import bounded_throttle_time_ms, mutation_throttle_time_ms, narrow_to_int32
from kafka_quotas.core.metrics.token_bucket import TokenBucket
from kafka_quotas.core.model.quota_key import INT_MAX, LONG_MAX
from kafka_quotas.core.resolution.quota_resolver import Bucket

UNLIMITED: Final = float(LONG_MAX)
"""The bound of a bucket without a limit."""
_ROUNDING: Final = 1e-9


class QuotaBucket(Protocol):
    """What a quota manager keeps per bucket."""

    name: Bucket
    generation: int
    recorded_ms: int | None

    def record(self, value: float, now_ms: int) -> None:
        """Nothing; the value is recorded, nothing is checked."""
        ...

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        """The throttle time in ms, 0 where the quota holds; a 32-bit number, negative by overflow only."""
        ...

    def set_bound(self, bound: float) -> None:
        """Nothing; the bound is another one from now on, what was recorded stays."""
        ...

    def peek(self, now_ms: int) -> float:
        """What is measured against the bound: the rate per second, or the tokens left; asking changes nothing."""
        ...

    def is_blank(self, now_ms: int) -> bool:
        """Return whether a new bucket in its place would hold nobody back less: nothing that was recorded counts."""
        ...

    def is_in_debt(self, now_ms: int) -> bool:
        """Return whether it holds its clients back now: more was recorded than the bound allows."""
        ...

    @property
    def memory(self) -> tuple[float, ...]:
        """The figures by which another bucket of its kind can go on in its place."""
        ...

    def remember(self, memory: tuple[float, ...], shift_ms: int) -> None:
        """Nothing; goes on in place of another bucket; raises `ValueError` for figures of another kind or window."""
        ...


class RateBucket(Rate):
    """A rate under a bound: everything is recorded, and what exceeds the bound is paid for in time."""

    __slots__ = ("_bound", "_max_throttle_ms", "_plain_ms", "_room", "generation", "name", "recorded_ms")

    def __init__(self, name: Bucket, samples: int, window_ms: int, max_throttle_ms: int = LONG_MAX) -> None:
        self._bound = UNLIMITED
        super().__init__(samples, window_ms)
        self.name = name
        self.generation = 0
        self.recorded_ms: int | None = None
        self._max_throttle_ms = max_throttle_ms
        self._plain_ms = min(max_throttle_ms, INT_MAX)

    def set_bound(self, bound: float) -> None:
        """Nothing; the bound (per second) is another one from now on, what was recorded stays."""
        self._bound = bound
        self._find_room()

    def record(self, value: float, now_ms: int) -> None:
        """Nothing; the value is recorded, nothing is checked."""
        super().record(value, now_ms)
        self.recorded_ms = now_ms

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        """The throttle time in ms, 0 where the rate is within the bound; the value stays recorded either way."""
        if now_ms >= self._due_ms:
            self._settle(now_ms)
        self._last_ms = self.recorded_ms = now_ms
        self._value = total = self._value + value
        if total <= self._room and now_ms >= self._oldest_ms:
            return 0
        total += self._prefix
        if self._tail is not None:
            for other in self._tail:
                total += other
        window_ms = now_ms - self._oldest_ms
        if window_ms < self._whole_ms or window_ms < 1:
            window_ms = self._whole_ms + window_ms % self._window_ms if window_ms > 0 else self._spanned_ms(window_ms)
        rate = total / (window_ms / 1000.0)
        bound = self._bound
        if rate <= bound:
            return 0
        if bound > 0.0:
            delay_ms = (rate - bound) / bound * window_ms
            if delay_ms < self._plain_ms:
                floor_ms = int(delay_ms)
                return floor_ms + 1 if delay_ms - floor_ms >= 0.5 else floor_ms
        return self._bounded_throttle_ms(rate, window_ms)

    def is_blank(self, now_ms: int) -> bool:
        """Return whether a new bucket in its place would hold nobody back less: every sample has expired."""
        return self.recorded_ms is None or now_ms - self.recorded_ms >= self._expire_ms

    def is_in_debt(self, now_ms: int) -> bool:
        """Return whether the rate is above the bound now."""
        return self.peek(now_ms) > self._bound

    def _load_current(self) -> None:
        super()._load_current()
        self._find_room()

    def _find_room(self) -> None:
        """Nothing; `_room` is a sum of the current slot up to which the rate is surely within the bound.

        No window is shorter than `_whole_ms` while the clock has not gone back behind the oldest slot. What rounding
        could do to sums and quotients is far less than the share of a thousand millionth that is left off.
        """
        others, size = self._prefix, abs(self._prefix)
        for value in self._tail or ():
            others += value
            size += abs(value)
        allowed = self._bound * (self._whole_ms / 1000.0)
        self._room = allowed - others - (allowed + size) * _ROUNDING

    def admit(self, value: float, now_ms: int) -> bool:
        """Whether a value was recorded, which surely gives no throttle time; False says nothing and records nothing.

        Several values may be recorded as their sum as long as all that is recorded is whole: then sums are exact.
        """
        total = self._value + value
        if total <= self._room and self._oldest_ms <= now_ms < self._due_ms:
            self._value = total
            self._last_ms = self.recorded_ms = now_ms
            return True
        return False

    def would_throttle_ms(self, value: float, now_ms: int) -> int:
        """Return the throttle time in ms that recording a value would give, and leave everything as it is."""
        kept, self._slots = _state(self), self._slots[:]
        throttle_ms = self.record_and_throttle_ms(value, now_ms)
        for name, attribute in zip(_STATE, kept, strict=True):
            setattr(self, name, attribute)
        return throttle_ms

    def _bounded_throttle_ms(self, rate: float, window_ms: int) -> int:
        """The throttle time in ms, whatever the bound: none above 0, a time cut at the longest, one beyond 32 bits."""
        return narrow_to_int32(bounded_throttle_time_ms(rate, self._bound, window_ms, self._max_throttle_ms))


_STATE: Final = (*WindowedSum.__slots__, "_room", "recorded_ms")
_state: Final = attrgetter(*_STATE)
"""What a record changes in a `RateBucket`."""


class MutationBucket(TokenBucket):
    """Tokens that a strict quota takes only while there is no debt."""

    __slots__ = ("_no_refill", "generation", "mutations", "name", "recorded_ms")

    def __init__(self, name: Bucket, samples: int, window_ms: int) -> None:
        super().__init__(samples, window_ms)
        self.name = name
        self.generation = 0
        self.recorded_ms: int | None = None
        self.mutations = Rate(METRIC_SAMPLES, METRIC_WINDOW_MS)
        """What was taken out per second: Kafka's `mutation-rate`, which is told and limits nothing."""
        self.set_bound(UNLIMITED)

    def set_bound(self, bound: float) -> None:
        """Nothing; the bound (tokens per second) is another one from now on, the tokens stay."""
        self.bound = bound
        self._no_refill = bound * 0.0  # NaN for a bound without end, as a second refill at the same instant gives

    def record(self, value: float, now_ms: int) -> None:
        """Nothing; the value is taken out, nothing is checked."""
        super().record(value, now_ms)
        self.mutations.record(value, now_ms)
        self.recorded_ms = now_ms

    def is_blank(self, now_ms: int) -> bool:
        """Return whether a new bucket in its place would hold nobody back less: it is filled up to the burst."""
        return self.recorded_ms is None or self.peek(now_ms) >= self._burst

    def is_in_debt(self, now_ms: int) -> bool:
        """Return whether there are fewer than no tokens now."""
        return self.peek(now_ms) < 0

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        """The throttle time in ms where a debt refuses the value; else 0, and the value is taken out."""
        burst = self._burst
        tokens = self._tokens + self._per_second * ((now_ms - self._last_ms) / 1000.0)
        if tokens > burst:  # noqa: PLR1730 - dearer as a call, and NaN would become the burst
            tokens = burst
        self._last_ms = now_ms
        if tokens < 0:
            self._tokens = tokens
            return narrow_to_int32(mutation_throttle_time_ms(tokens, self._per_second))
        tokens += self._no_refill - value
        self._tokens = burst if tokens > burst else tokens  # noqa: FURB136 - as above
        self.mutations.record(value, now_ms)
        self.recorded_ms = now_ms
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSnapshot:
    """One bucket: whose it is, when it was last recorded to (ms), and its figures, which only its kind understands."""

    name: Bucket
    kind: str
    recorded_ms: int
    figures: tuple[float, ...]


def memory_of(bucket: QuotaBucket) -> BucketSnapshot | None:
    """Return what is to be remembered of a bucket, None where nothing was recorded; asking changes nothing."""
    if bucket.recorded_ms is None:
        return None
    return BucketSnapshot(
        name=bucket.name, kind=type(bucket).__name__, recorded_ms=bucket.recorded_ms, figures=bucket.memory
    )


BURST_S: Final = 1
"""How many seconds' worth a client that rested may take at once."""


class SmoothBucket:
    """A token bucket as a quota manager keeps it; tokens are in the unit of the quota."""

    __slots__ = ("_bound", "_last_ms", "_max_throttle_ms", "_spent", "generation", "name", "recorded_ms")

    def __init__(self, name: Bucket, max_throttle_ms: int = LONG_MAX) -> None:
        self.name = name
        self.generation = 0
        self.recorded_ms: int | None = None
        self._bound = UNLIMITED
        self._spent = 0.0
        self._last_ms = 0
        self._max_throttle_ms = min(max_throttle_ms, INT_MAX)

    def set_bound(self, bound: float) -> None:
        """Nothing; the bound (per second) is another one from now on, what was spent stays."""
        self._bound = bound

    def record(self, value: float, now_ms: int) -> None:
        """Nothing; the value is spent (or given back where it is negative), nothing is checked."""
        self._spent = max(0.0, self.peek(now_ms) * BURST_S + value)
        self._last_ms = max(now_ms, self._last_ms)
        self.recorded_ms = now_ms

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        """The throttle time in ms, 0 where the second's worth was enough; the value stays recorded either way."""
        self.record(value, now_ms)
        over = self._spent - self._bound * BURST_S
        if over <= 0.0:
            return 0
        return min(mutation_throttle_time_ms(-over, self._bound), self._max_throttle_ms)

    def would_throttle_ms(self, value: float, now_ms: int) -> int:
        """Return the throttle time in ms that recording a value would give, and leave everything as it is."""
        kept = (self._spent, self._last_ms, self.recorded_ms)
        throttle_ms = self.record_and_throttle_ms(value, now_ms)
        self._spent, self._last_ms, self.recorded_ms = kept
        return throttle_ms

    @property
    def memory(self) -> tuple[float, ...]:
        """The figures that `remember` takes: what is spent, and when that was counted."""
        return (self._spent, float(self._last_ms))

    def remember(self, memory: tuple[float, ...], shift_ms: int) -> None:
        """Nothing; the bucket is what another one was, `shift_ms` later. Raises `ValueError` for other figures."""
        self._spent, last_ms = memory
        self._last_ms = int(last_ms) + shift_ms

    def peek(self, now_ms: int) -> float:
        """What was spent and not yet refilled, per second of the bucket; above the bound it is a debt."""
        refilled = self._bound * (max(0, now_ms - self._last_ms) / 1000.0)
        return max(0.0, self._spent - refilled) / BURST_S

    def is_blank(self, now_ms: int) -> bool:
        """Return whether a new bucket in its place would hold nobody back less: nothing is spent any more."""
        return self.peek(now_ms) == 0.0

    def is_in_debt(self, now_ms: int) -> bool:
        """Return whether more is spent than the second's worth now."""
        return self.peek(now_ms) > self._bound
