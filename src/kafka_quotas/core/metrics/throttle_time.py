"""Kafka's arithmetic of throttle times on doubles, with Java's rounding and integer widths.

Invariants: the order of operations is Kafka's. Results are whole milliseconds, half rounded towards plus infinity,
saturated at 64 bits. A bound of 0 divides to infinity (or NaN, which rounds to 0) as in Java, and raises nothing.

**Source:** `QuotaUtils`, `ControllerMutationQuotaManager.throttleTimeMs`, `ClientRequestQuotaManager` (Kafka 4.0),
`Math.round` and the primitive conversions of Java 17.
"""

import math
from typing import Final

from kafka_quotas.core.model.quota_key import LONG_MAX

RETRY_BACKOFF_MS: Final = 100
"""The least time before a refused event is repeated: the `retry.backoff.ms` of Kafka's clients."""
MAX_ATTEMPTS: Final = 1000
"""The maximum number of attempts per event in a closed loop."""
_LONG_MIN = -LONG_MAX - 1
_NANOS_TO_PERCENTAGE_PER_SECOND = 100.0 / 1_000_000_000


def round_half_up(value: float) -> int:
    """Return the nearest whole number, halves towards plus infinity, within 64 bits, and 0 for NaN."""
    if value != value:  # noqa: PLR0124 - NaN is the one value unlike itself
        return 0
    if value >= LONG_MAX:
        return LONG_MAX
    if value <= _LONG_MIN:
        return _LONG_MIN
    floor = math.floor(value)
    return floor + 1 if value - floor >= 0.5 else floor


def narrow_to_int32(value: int) -> int:
    """Return the low 32 bits of a whole number as a signed one, as Kafka's managers return throttle times."""
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def narrow_to_int64(value: int) -> int:
    """Return the low 64 bits of a whole number as a signed one, as a sum of Java longs wraps."""
    return ((value + LONG_MAX + 1) & 0xFFFF_FFFF_FFFF_FFFF) - LONG_MAX - 1


def throttle_time_ms(observed: float, bound: float, window_ms: int) -> int:
    """Return the delay that brings an observed rate back to its bound.

    Returns:
        `(observed - bound) / bound * window` in ms, negative for a rate below the bound.
    """
    return round_half_up(_divide(observed - bound, bound) * window_ms)


def bounded_throttle_time_ms(observed: float, bound: float, window_ms: int, max_throttle_ms: int) -> int:
    """Return the delay in ms of `throttle_time_ms`, at most `max_throttle_ms`."""
    return min(throttle_time_ms(observed, bound, window_ms), max_throttle_ms)


def mutation_throttle_time_ms(tokens: float, bound: float) -> int:
    """Return the time in ms until a bucket in debt is back at 0.

    Args:
        tokens: The tokens, below 0 for a debt.
        bound: The refill per second.
    """
    return round_half_up(_divide(-tokens, bound) * 1000)


def nanos_to_percentage(nanos: float) -> float:
    """Return the share of one thread's second, in per cent, that the nanoseconds are."""
    return nanos * _NANOS_TO_PERCENTAGE_PER_SECOND


def _divide(dividend: float, divisor: float) -> float:
    if divisor:
        return dividend / divisor
    if not dividend or dividend != dividend:  # noqa: PLR0124 - NaN is the one value unlike itself
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)
