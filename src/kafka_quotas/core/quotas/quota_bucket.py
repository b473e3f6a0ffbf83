"""The state that the clients of one bucket share: a rate, a token bucket or a smooth one, with its bound and decisions.

An unlimited bucket records as well, against a bound that no rate exceeds. Throttle times are narrowed to 32 bits. This
is the hot path: one decision is one call on plain attributes, with the arithmetic of `core.metrics` written out. Tests
compare the two.

A snapshot is plain figures that survive a restart. A bucket of the same kind and window that restores them continues
unchanged, except for the shift of all times if the clock was set back.

**Source:** `Sensor.record`, `ClientQuotaManager.recordAndGetThrottleTimeMs` and its override for controller mutations
(Kafka 4.0).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from kafka_quotas.core.metrics.rate import ShareableRate
from kafka_quotas.core.metrics.sensor import TokenBucket
from kafka_quotas.core.metrics.throttle_time import (
    bounded_throttle_time_ms,
    mutation_throttle_time_ms,
    narrow_to_int32,
    round_half_up,
)
from kafka_quotas.core.metrics.throttled_minute import METRIC_SAMPLES, METRIC_WINDOW_MS
from kafka_quotas.core.model.quota_key import INT_MAX, LONG_MAX, UNLIMITED
from kafka_quotas.core.resolution.quota_resolver import Bucket

if TYPE_CHECKING:
    from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager

_BURST_MS: Final = 1000.0
"""The burst of a rested client of a smooth bucket, in milliseconds of its quota."""
_NEXT_TO_NOTHING: Final = 1e-15
"""A bound in place of 0, with which what was spent is a time."""
_ROUNDING: Final = 1e-9


class RateBucket(ShareableRate):
    """A rate under a bound, which records everything and delays clients above the bound."""

    __slots__ = ("_bound", "_max_throttle_ms", "_plain_ms", "_room", "generation", "name", "owner", "recorded_ms")

    def __init__(self, name: Bucket, samples: int, window_ms: int, max_throttle_ms: int = LONG_MAX) -> None:
        self._bound = UNLIMITED
        super().__init__(samples, window_ms)
        self.name = name
        self.owner: ClientQuotaManager
        self.generation = 0
        self.recorded_ms: int | None = None
        self._max_throttle_ms = max_throttle_ms
        self._plain_ms = min(max_throttle_ms, INT_MAX)

    def set_bound(self, bound: float) -> None:
        self._bound = bound
        self._find_room()

    def record(self, value: float, now_ms: int) -> None:
        super().record(value, now_ms)
        self.recorded_ms = now_ms

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        """Record a value and return the throttle time in ms (32 bits), 0 within the quota."""
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
        if self._factor:
            total += self._factor * (self._gone + self._value - self._reserved_base)
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
        return narrow_to_int32(bounded_throttle_time_ms(rate, bound, window_ms, self._max_throttle_ms))

    @property
    def capacity(self) -> float:
        """The most that a rested client may take without a throttle time."""
        return self._bound * (self._whole_ms / 1000.0)

    def record_past(self, value: float, since_ms: int, until_ms: int, now_ms: int) -> None:
        super().record_past(value, since_ms, until_ms, now_ms)
        self.recorded_ms = now_ms

    def is_blank(self, now_ms: int) -> bool:
        """Return whether a new bucket in its place would decide the same, because no record counts any more."""
        return self.recorded_ms is None or now_ms - self.recorded_ms >= self._expire_ms

    def is_in_debt(self, now_ms: int) -> bool:
        """Return whether it holds its clients back now, because the records exceed the bound."""
        return self.peek(now_ms) > self._bound

    def _load_current(self) -> None:
        super()._load_current()
        self._find_room()

    def _find_room(self) -> None:
        """Compute `_room`, a sum of the current slot up to which the rate is surely within the bound.

        No window is shorter than `_whole_ms` while the clock is not before the oldest slot. The margin of a thousand
        millionth is far more than rounding can change in sums and quotients.
        """
        others, size = self._prefix, abs(self._prefix)
        for value in self._tail or ():
            others += value
            size += abs(value)
        allowed = self._bound * (self._whole_ms / 1000.0)
        self._room = room = allowed - others - (allowed + size) * _ROUNDING
        if self._factor:
            base = self._reserved_base - self._gone
            self._room = (room + self._factor * base) / (1.0 + self._factor)

    def admit(self, value: float, now_ms: int) -> bool:
        """Record a value if that certainly gives no throttle time, and return whether it did.

        False records nothing and does not mean a violation. A caller may record several values as their sum as long as
        all recorded values are whole numbers, because then sums are exact.
        """
        total = self._value + value
        if total <= self._room and self._oldest_ms <= now_ms < self._due_ms:
            self._value = total
            self._last_ms = self.recorded_ms = now_ms
            return True
        return False

    def has_room(self, value: float, now_ms: int) -> bool:
        """Return whether a value certainly gives no throttle time."""
        return self._value + value <= self._room and self._oldest_ms <= now_ms < self._due_ms

    def would_throttle_ms(self, value: float, now_ms: int) -> int:
        """Return the throttle time in ms that recording a value would give, without changing the state."""
        kept, self._slots = _state(self), self._slots[:]
        throttle_ms = self.record_and_throttle_ms(value, now_ms)
        for name, attribute in zip(_STATE, kept, strict=True):
            setattr(self, name, attribute)
        return throttle_ms


_STATE: Final = (
    "_complete_ms",
    "_due_ms",
    "_expired_ms",
    "_gone",
    "_index",
    "_last_ms",
    "_oldest_ms",
    "_prefix",
    "_room",
    "_slots",
    "_tail",
    "_value",
    "recorded_ms",
)
_state: Final = attrgetter(*_STATE)
"""The attributes of a `RateBucket` that a record changes."""


class MutationBucket(TokenBucket):
    """A token bucket that a strict quota draws on only while there is no debt."""

    __slots__ = (
        "_factor",
        "_no_refill",
        "_reserved",
        "_reserved_base",
        "generation",
        "mutations",
        "name",
        "owner",
        "recorded_ms",
    )

    def __init__(self, name: Bucket, samples: int, window_ms: int) -> None:
        super().__init__(samples, window_ms)
        self.name = name
        self.owner: ClientQuotaManager
        self.generation = 0
        self.recorded_ms: int | None = None
        self.mutations = ShareableRate(METRIC_SAMPLES, METRIC_WINDOW_MS)
        """The tokens taken out per second: Kafka's `mutation-rate`, a metric that limits nothing."""
        self._reserved = self._reserved_base = self._factor = 0.0
        self.set_bound(UNLIMITED)

    def set_bound(self, bound: float) -> None:
        self.bound = bound
        self._no_refill = bound * 0.0  # NaN for a bound without end, as a second refill at the same instant gives

    def record(self, value: float, now_ms: int) -> None:
        super().record(value, now_ms)
        self.mutations.record(value, now_ms)
        self.recorded_ms = now_ms

    @property
    def capacity(self) -> float:
        return self._burst

    @property
    def total(self) -> float:
        return self.mutations.total

    def used(self, now_ms: int) -> float:
        return self._burst - self.peek(now_ms)

    @property
    def reserved(self) -> float:
        return self._reserved + self._factor * (self.total - self._reserved_base)

    def reserve(self, amount: float, factor: float = 0.0) -> None:
        self._reserved, self._factor, self._reserved_base = amount, factor, self.total

    def is_blank(self, now_ms: int) -> bool:
        return self.recorded_ms is None or self.peek(now_ms) >= self._burst

    def is_in_debt(self, now_ms: int) -> bool:
        return self.peek(now_ms) < 0

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        burst = self._burst
        tokens = self._tokens + self._per_second * ((now_ms - self._last_ms) / 1000.0)
        if tokens > burst:  # noqa: PLR1730 - dearer as a call, and NaN would become the burst
            tokens = burst
        self._last_ms = now_ms
        reserved = self.reserved if self._factor else self._reserved
        if tokens < reserved:
            self._tokens = tokens
            return narrow_to_int32(mutation_throttle_time_ms(tokens - reserved, self._per_second))
        tokens += self._no_refill - value
        self._tokens = burst if tokens > burst else tokens  # noqa: FURB136 - as above
        mutations = self.mutations  # `mutations.record` written out: the call is a tenth of the decision
        if now_ms >= mutations._complete_ms:  # noqa: SLF001 - as above
            mutations._advance(now_ms)  # noqa: SLF001 - as above
        mutations._value += value  # noqa: SLF001 - as above
        mutations._last_ms = self.recorded_ms = now_ms  # noqa: SLF001 - as above
        return 0

    def would_throttle_ms(self, value: float, now_ms: int) -> int:  # noqa: ARG002 - the next request pays for it
        tokens = self.peek(now_ms) - self.reserved
        return narrow_to_int32(mutation_throttle_time_ms(tokens, self._per_second)) if tokens < 0 else 0

    def refused_ms(self, now_ms: int) -> int | None:
        """Return how many ms a request would wait for the debt to be paid, or None if it is admitted."""
        tokens = self.measure(now_ms) - self.reserved
        if tokens >= 0 or tokens != tokens:  # noqa: PLR0124 - NaN, of a bound that is none, is no debt
            return None
        return mutation_throttle_time_ms(tokens, self._per_second)


class SmoothBucket:
    """A token bucket under a byte or time quota that allows one second's worth at once.

    A window lets a fast client spend ten seconds' quota at once and then nothing for as long; this one lets it spend
    one second's. It records everything, and its throttle time ends when the debt does. All that it keeps of what was
    spent is the time at which it is paid back (virtual time: the theoretical arrival time of GCRA).

    The clock does not go back, as the daemon's doesn't.
    """

    __slots__ = (
        "_bound",
        "_factor",
        "_max_throttle_ms",
        "_reserved",
        "_reserved_base",
        "each_ms",
        "generation",
        "name",
        "owner",
        "paid_ms",
        "recorded_ms",
        "room_ms",
        "total",
    )

    def __init__(self, name: Bucket, max_throttle_ms: int = LONG_MAX) -> None:
        self.name = name
        self.owner: ClientQuotaManager
        self.generation = 0
        self.recorded_ms: int | None = None
        self.paid_ms = 0.0
        """The time at which all that was spent is paid back."""
        self.each_ms = 1.0
        """The time in which 1 is paid back."""
        self.room_ms = 0.0
        """How far `paid_ms` may be ahead, less than any time if only `wait_ms` knows."""
        self.total = 0.0
        self._reserved = self._reserved_base = self._factor = 0.0
        self._max_throttle_ms = min(max_throttle_ms, INT_MAX)
        self.set_bound(UNLIMITED)

    def set_bound(self, bound: float) -> None:
        # No bound, infinite or NaN, limits nothing: in this order `min` takes neither.
        each_ms, since_ms = 1000.0 / (min(UNLIMITED, bound) or _NEXT_TO_NOTHING), float(self.recorded_ms or 0)
        if self.paid_ms > since_ms:  # what was spent is as much as before
            self.paid_ms = since_ms + (self.paid_ms - since_ms) * (each_ms / self.each_ms)
        self._bound, self.each_ms = bound, each_ms
        self._find_room()

    def _find_room(self) -> None:
        room_ms = _BURST_MS - self._reserved * self.each_ms
        self.room_ms = -inf if self._factor or room_ms < 0.0 else room_ms

    def record(self, value: float, now_ms: int) -> None:
        self.record_and_throttle_ms(value, now_ms)

    @property
    def capacity(self) -> float:
        return self._bound * (_BURST_MS / 1000.0)

    @property
    def reserved(self) -> float:
        return self._reserved + self._factor * (self.total - self._reserved_base)

    def used(self, now_ms: int) -> float:
        return max(0.0, self.paid_ms - now_ms) / self.each_ms

    def reserve(self, amount: float, factor: float = 0.0) -> None:
        self._reserved, self._factor, self._reserved_base = amount, factor, self.total
        self._find_room()

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        paid_ms = self.paid_ms
        if not paid_ms > now_ms:  # NaN, of a damaged state, limits nothing for good
            paid_ms = float(now_ms)
        self.paid_ms = paid_ms = paid_ms + value * self.each_ms
        self.recorded_ms = now_ms
        self.total += value
        return 0 if paid_ms - now_ms <= self.room_ms else self.wait_ms(now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Return the time in ms until there is room again, 0 while there is."""
        over_ms = max(0.0, self.paid_ms - now_ms) - _BURST_MS + self.reserved * self.each_ms
        return min(round_half_up(over_ms), self._max_throttle_ms) if over_ms > 0.0 else 0

    def has_room(self, value: float, now_ms: int) -> bool:
        return max(0.0, self.paid_ms - now_ms) + value * self.each_ms <= self.room_ms

    def would_throttle_ms(self, value: float, now_ms: int) -> int:
        kept = (self.paid_ms, self.recorded_ms, self.total)
        throttle_ms = self.record_and_throttle_ms(value, now_ms)
        self.paid_ms, self.recorded_ms, self.total = kept
        return throttle_ms

    @property
    def snapshot(self) -> tuple[float, ...]:
        return (self.paid_ms, self.each_ms)

    def restore(self, snapshot: tuple[float, ...], shift_ms: int) -> None:
        paid_ms, each_ms = snapshot
        if not each_ms > 0.0:
            raise ValueError(f"{each_ms} is no time")
        self.paid_ms, self.each_ms = paid_ms + shift_ms, each_ms  # until the bound is set, which may be another one

    def peek(self, now_ms: int) -> float:
        """Return what was spent and is not yet paid back, per second of the burst: a debt above the bound."""
        return self.used(now_ms) * (1000.0 / _BURST_MS)

    def is_blank(self, now_ms: int) -> bool:
        return self.paid_ms <= now_ms

    def is_in_debt(self, now_ms: int) -> bool:
        return self.paid_ms - now_ms > _BURST_MS


QuotaBucket: TypeAlias = RateBucket | MutationBucket | SmoothBucket
"""The state that a quota manager keeps per bucket, each kind with the methods of `RateBucket`."""
Charged: TypeAlias = tuple[QuotaBucket, bool]
"""A bucket that a client is charged at, and whether it is of a guaranteed rate."""
_T = TypeVar("_T")


def longest_wait(waits: Iterable[tuple[_T, bool, int]], least_ms: int = 0) -> tuple[int, _T | None]:
    """Return the time in ms that a client waits for what it is charged at, and the limit that requires it.

    Args:
        waits: Limits and guaranteed rates, whether each is a guaranteed rate, which bounds what is around it, and the
            time in ms that it requires; those of the outermost group first.
        least_ms: The time without any.
    """
    longest_ms, deciding = least_ms, None
    for each, is_guaranteed, wait_ms in waits:
        if is_guaranteed:
            longest_ms = min(longest_ms, wait_ms)
        elif wait_ms >= longest_ms:
            longest_ms, deciding = wait_ms, each
    return longest_ms, deciding


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSnapshot:
    """The saved state of one bucket."""

    name: Bucket
    kind: str
    recorded_ms: int
    figures: tuple[float, ...]


def snapshot_of(bucket: QuotaBucket) -> BucketSnapshot | None:
    """Return the snapshot of a bucket without changing it, or None if it has no record."""
    if bucket.recorded_ms is None:
        return None
    return BucketSnapshot(
        name=bucket.name, kind=type(bucket).__name__, recorded_ms=bucket.recorded_ms, figures=bucket.snapshot
    )
