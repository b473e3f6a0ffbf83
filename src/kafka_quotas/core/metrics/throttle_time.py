"""How long a client is held back: Kafka's arithmetic on doubles, with Java's rounding and integer widths.

Invariants: the order of operations is Kafka's; results are whole milliseconds, half rounded towards plus infinity,
saturated at 64 bits. A bound of 0 divides to infinity (or NaN, which rounds to 0) as in Java, and raises nothing.
**Source:** `QuotaUtils`, `ControllerMutationQuotaManager.throttleTimeMs`, `ClientRequestQuotaManager` (Kafka 4.0),
`Math.round` and the primitive conversions of Java 17.
"""

import math

from kafka_quotas.core.model.quota_key import LONG_MAX

_LONG_MIN = -LONG_MAX - 1
_NANOS_TO_PERCENTAGE_PER_SECOND = 100.0 / 1_000_000_000


def round_half_up(value: float) -> int:
    """The nearest whole number, halves towards plus infinity, within 64 bits; 0 for NaN."""
    if value != value:  # noqa: PLR0124 - NaN is the one value unlike itself
        return 0
    if value >= LONG_MAX:
        return LONG_MAX
    if value <= _LONG_MIN:
        return _LONG_MIN
    floor = math.floor(value)
    return floor + 1 if value - floor >= 0.5 else floor


def narrow_to_int32(value: int) -> int:
    """The low 32 bits of a whole number as a signed one: how the managers hand out throttle times."""
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def narrow_to_int64(value: int) -> int:
    """The low 64 bits of a whole number as a signed one: what a sum of Java longs wraps to."""
    return ((value + LONG_MAX + 1) & 0xFFFF_FFFF_FFFF_FFFF) - LONG_MAX - 1


def throttle_time_ms(observed: float, bound: float, window_ms: int) -> int:
    """The delay in ms that brings an observed rate back to its bound: `(observed - bound) / bound * window`.

    Negative where the rate is below the bound.
    """
    return round_half_up(_divide(observed - bound, bound) * window_ms)


def bounded_throttle_time_ms(observed: float, bound: float, window_ms: int, max_throttle_ms: int) -> int:
    """The delay in ms of `throttle_time_ms`, at most `max_throttle_ms`."""
    return min(throttle_time_ms(observed, bound, window_ms), max_throttle_ms)


def mutation_throttle_time_ms(tokens: float, bound: float) -> int:
    """The delay in ms after which a bucket with a debt of `-tokens` is back at 0, refilled with `bound` per second."""
    return round_half_up(_divide(-tokens, bound) * 1000)


def nanos_to_percentage(nanos: float) -> float:
    """The share of one thread's second, in per cent, that so many nanoseconds are."""
    return nanos * _NANOS_TO_PERCENTAGE_PER_SECOND


def _divide(dividend: float, divisor: float) -> float:
    """The quotient as IEEE 754 has it, also for a divisor of 0."""
    if divisor:
        return dividend / divisor
    if not dividend or dividend != dividend:  # noqa: PLR0124 - NaN is the one value unlike itself
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)
